"""The layers, by kind."""

import sys

from .activation import *  # noqa: F403
from .adaptive import AdaptiveLogSoftmaxWithLoss
from .batchnorm import *  # noqa: F403
from .channelshuffle import ChannelShuffle
from .container import *  # noqa: F403
from .conv import *  # noqa: F403
from .distance import *  # noqa: F403
from .dropout import *  # noqa: F403
from .flatten import Flatten, Unflatten
from .fold import Fold, Unfold
from .instancenorm import *  # noqa: F403
from .linear import *  # noqa: F403
from .loss import *  # noqa: F403
from .module import Module
from .normalization import *  # noqa: F403
from .padding import *  # noqa: F403
from .pixelshuffle import PixelShuffle, PixelUnshuffle
from .pooling import *  # noqa: F403
from .rnn import *  # noqa: F403
from .sparse import *  # noqa: F403
from .transformer import *  # noqa: F403
from .upsampling import Upsample, UpsamplingBilinear2d, UpsamplingNearest2d

del NonDynamicallyQuantizableLinear  # noqa: F821  torch has it in .linear only

__all__ = sorted({name for name, value in globals().items()
                  if isinstance(value, type) and (issubclass(value, Module) or name == "LinearCrossEntropyOptions")
                  and not name.startswith("_")} - {"FunctionModule"})
for _module in [module for name, module in sys.modules.items() if name.startswith(f"{__name__}.") and not hasattr(module, "__all__")]:
    vars(_module)["__all__"] = [name for name, value in vars(_module).items()
                                if isinstance(value, type) and value.__module__ == _module.__name__ and not name.startswith("_")]
