"""Everything in this folder needs an NVIDIA GPU and CuPy."""

from __future__ import annotations

import pytest

import flambeau as fl


def _gpu() -> str | None:
    """Why there is no GPU to test on; None if there is one."""
    try:
        fl.zeros(1, device="cuda")
    except Exception as error:
        return str(error)
    return None


WHY_NOT = _gpu()


def pytest_collection_modifyitems(items: list) -> None:
    if WHY_NOT is not None:
        for item in items:
            if "tests/cuda/" in str(item.path):
                item.add_marker(pytest.mark.skip(reason=f"no NVIDIA GPU: {WHY_NOT}"))
