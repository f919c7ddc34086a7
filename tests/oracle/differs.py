"""What is known to differ and is still to be mended: `reading | entry | kind`, one a line, written by `./dev test --full --write`."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).with_name("differs.txt")


def listed() -> dict[tuple[str, str], str]:
    """The kind of difference by (reading, entry)."""
    lines = [line.split(" | ") for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    return {(reading, title): kind for reading, title, kind in lines}


def write(found: dict[tuple[str, str], tuple[str, str]]) -> None:
    """Bring the file up to date: what agrees by now goes, what differs comes, what was not run stays."""
    known = {pair: kind for pair, kind in listed().items() if pair not in found}
    known |= {pair: kind for pair, (kind, _) in found.items() if kind not in ("agrees", "none")}
    head = "# reading | entry | kind of difference; written by ./dev test --full --write\n"
    FILE.write_text(head + "".join(f"{reading} | {title} | {kind}\n" for (reading, title), kind in sorted(known.items())))
