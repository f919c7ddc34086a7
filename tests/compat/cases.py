"""Every case by its name."""

from __future__ import annotations

import timm_cases
import transformers_cases

CASES = timm_cases.CASES | transformers_cases.CASES
