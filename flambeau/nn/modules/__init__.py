"""The layers, by kind."""

from . import (
    activation,
    batchnorm,
    container,
    conv,
    distance,
    dropout,
    instancenorm,
    lazy,
    linear,
    loss,
    module,
    normalization,
    padding,
    pooling,
    rnn,
    shaping,
    sparse,
    transformer,
    utils,
)
from .activation import *  # noqa: F403
from .batchnorm import *  # noqa: F403
from .container import *  # noqa: F403
from .conv import *  # noqa: F403
from .distance import *  # noqa: F403
from .dropout import *  # noqa: F403
from .instancenorm import *  # noqa: F403
from .linear import *  # noqa: F403
from .loss import *  # noqa: F403
from .module import Module
from .normalization import *  # noqa: F403
from .padding import *  # noqa: F403
from .pooling import *  # noqa: F403
from .rnn import *  # noqa: F403
from .shaping import *  # noqa: F403
from .sparse import *  # noqa: F403
from .transformer import *  # noqa: F403

_HOME = (activation, batchnorm, container, conv, distance, dropout, instancenorm, linear, loss, normalization, padding,
         pooling, rnn,
         shaping, sparse, transformer)
__all__ = ["Module", *sorted({
    name for home in _HOME for name, value in vars(home).items()
    if isinstance(value, type) and issubclass(value, Module) and not name.startswith("_") and value.__module__ == home.__name__
} | {"CrossMapLRN2d", "NLLLoss2d"})]

# Old homes of layers that other libraries import from.
upsampling = pixelshuffle = flatten = fold = channelshuffle = shaping
