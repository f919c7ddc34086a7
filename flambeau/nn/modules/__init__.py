"""The layers, by kind."""

import sys

from .. import common_types, init
from ..parameter import Parameter
from . import utils
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

_TUPLES = "_single _pair _triple _size_1_t _size_2_t _size_3_t"
_SHARED = {"batchnorm": "Parameter init", "conv": _TUPLES, "dropout": "Module", "fold": "Module _size_any_t", "normalization": "Parameter",
           "padding": "_pair _quadruple _size_2_t _size_4_t _size_6_t",
           "pooling": f"{_TUPLES} _ratio_2_t _ratio_3_t _size_any_t _size_any_opt_t _size_2_opt_t _size_3_opt_t",
           "pixelshuffle": "Module", "upsampling": "_size_2_t _size_any_t _ratio_2_t _ratio_any_t"}
for _place, _names in _SHARED.items():      # names of each other's that libraries import from torch's modules
    vars(sys.modules[f"{__name__}.{_place}"]).update(
        {name: next(vars(of)[name] for of in (utils, common_types, sys.modules[__name__]) if name in vars(of)) for name in _names.split()})
