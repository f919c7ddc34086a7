"""Run scripts one after another in this process, each as `__main__` and unmodified, and write what they print as JSON.

`python run_scripts.py NAME...` runs them on PyTorch, `python -m flambeau run run_scripts.py NAME...` on Flambeau.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
import traceback
import warnings
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


def printed_by(name: str) -> str:
    """What a script prints; the end of its traceback is the last of it where it stops."""
    out, argv = io.StringIO(), sys.argv
    sys.argv = [name]
    try:
        with contextlib.redirect_stdout(out), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    except Exception:
        out.write("".join(traceback.format_exc().splitlines(keepends=True)[-8:]))
    finally:
        sys.argv = argv
    return out.getvalue()


if __name__ == "__main__":
    print(json.dumps({name: printed_by(name) for name in sys.argv[1:]}))
