"""`import torch._dynamo.config` is `flambeau.dynamo.config`, the same module."""

import sys

from ..dynamo import config

sys.modules[__name__] = config
