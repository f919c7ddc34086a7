"""The families of library calls, by the names that the op table's records have for them."""

from __future__ import annotations

from collections.abc import Mapping

from flambeau.inductor.library import convolutions, native, products, scans
from flambeau.inductor.library.record import LibraryCall, Lower
from flambeau.inductor.loop.ir import Extern, Step

LIBRARY: dict[str, LibraryCall] = {
    "product": products.PRODUCT, "grouped product": products.GROUPED, "convolution": convolutions.CONVOLUTION,
    "attention": native.ATTENTION, "draw": native.DRAW, "running": native.RUNNING, "order": native.ORDER, "counts": native.COUNTS,
    "scan": scans.SCAN,
}


def lowered_on(device: str) -> Mapping[str, Lower]:
    """How the families that there are on a type of device are lowered to, by their names."""
    return {name: call.lower[device] for name, call in LIBRARY.items() if device in call.lower}


def family_of(step: Extern) -> LibraryCall | None:
    """The record of a call; None where it goes through Python."""
    return None if step.in_python else LIBRARY.get(getattr(step.target, "library", ""))


def takes_epilogue(step: Step) -> bool:
    """Whether a step is a call that may end in more than it computes."""
    return isinstance(step, Extern) and (family := family_of(step)) is not None and family.fast is not None


def runs_fast(step: Extern) -> bool:
    """Whether there is a fast kernel for such a call as it now is, epilogue and all, that is right on every number."""
    family = family_of(step)
    return family is not None and family.fast is not None and family.fast(step)
