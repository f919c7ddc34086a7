"""torch.optim: optimizers and learning-rate schedules."""

from .._lazy import submodules
from . import adam, adamw, lr_scheduler, optimizer, sgd, swa_utils
from .adam import Adam, AdamW
from .adaptive import ASGD, Adadelta, Adafactor, Adagrad, Adamax, NAdam, RAdam, RMSprop, Rprop
from .lbfgs import LBFGS
from .muon import Muon
from .optimizer import Optimizer
from .sgd import SGD
from .sparse_adam import SparseAdam
from .swapped import swap_in_optimizer_params_and_state

__getattr__ = submodules(__name__)

_TORCH_HOMES = {kind: kind.__name__.lower() for kind in (ASGD, Adadelta, Adagrad, Adamax, AdamW, NAdam, RAdam, RMSprop, Rprop)} | dict.fromkeys(
    (Adafactor, Muon), "")
"""By class, the module that it says it is of where the library stands for PyTorch."""

__all__ = ["ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam",
           "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "adam", "adamw", "lr_scheduler", "optimizer", "sgd", "swa_utils",
           "swap_in_optimizer_params_and_state"]
