"""`torch._refs.nn.functional` is torch.nn.functional."""

import sys

from ...nn import functional

sys.modules[__name__] = functional
