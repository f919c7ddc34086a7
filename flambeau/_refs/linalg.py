"""`torch._refs.linalg` is torch.linalg."""

import sys

from .. import linalg

sys.modules[__name__] = linalg
