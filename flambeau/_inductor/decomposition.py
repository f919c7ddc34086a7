"""The decompositions that inductor takes: everything is made of primitives already."""

from .._decomp import core_aten_decompositions, decomposition_table, register_decomposition

decompositions = decomposition_table


def select_decomp_table() -> dict:
    """All of them."""
    return decomposition_table


__all__ = ["core_aten_decompositions", "decompositions", "register_decomposition", "select_decomp_table"]
