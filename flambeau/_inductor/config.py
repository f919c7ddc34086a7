"""`import torch._inductor.config` is `flambeau.inductor.config`, the same module."""

import sys

from ..inductor import config

sys.modules[__name__] = config
