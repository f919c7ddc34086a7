"""`torch._refs.special` is torch.special."""

import sys

from .. import special

sys.modules[__name__] = special
