"""What a case is: a model of somebody else's, how to build it, its inputs and its loss.

Written against `torch`, which is PyTorch or Flambeau: `worker.py` decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """One model. `build()`, `inputs(rng)` gives keyword arguments as arrays, `loss(outputs)` a scalar tensor.

    `generates`: also compare the tokens that `generate` finds.
    """

    library: str
    build: Callable[[], Any]
    inputs: Callable[[np.random.Generator], dict[str, np.ndarray]]
    loss: Callable[[Any], Any]
    generates: bool = False
