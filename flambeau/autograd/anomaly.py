"""Anomaly detection: remember where each node was made, and stop at the first NaN gradient."""

from __future__ import annotations

import warnings
from typing import Any

from .graph import Settings


class set_detect_anomaly:
    """Turn anomaly detection on or off; as a context manager it restores the old setting."""

    def __init__(self, mode: bool, check_nan: bool = True):
        self.before = Settings.anomaly, Settings.check_nan
        Settings.detect(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        Settings.detect(*self.before)


class detect_anomaly(set_detect_anomaly):
    """Anomaly detection within a block."""

    def __init__(self, check_nan: bool = True):
        before = Settings.anomaly, Settings.check_nan
        super().__init__(before[0], before[1])
        warnings.warn("Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.",
                      stacklevel=2)
        self.wanted = check_nan

    def __enter__(self) -> None:
        Settings.detect(True, self.wanted)


def is_anomaly_enabled() -> bool:
    """Whether anomaly detection is on."""
    return Settings.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly detection looks for NaN."""
    return Settings.check_nan


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Turn anomaly detection on or off."""
    set_detect_anomaly(mode, check_nan)
