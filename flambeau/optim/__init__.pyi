"""torch.optim. Written by `python -m tools.stubs`."""

from collections.abc import Iterator
from flambeau._lazy import submodules as submodules
from flambeau.core.tensor import Tensor as _Tensor
from flambeau.optim import adam as adam
from flambeau.optim import adamw as adamw
from flambeau.optim import adaptive as adaptive
from flambeau.optim import lbfgs as lbfgs
from flambeau.optim import lr_scheduler as lr_scheduler
from flambeau.optim import muon as muon
from flambeau.optim import optimizer as optimizer
from flambeau.optim import sgd as sgd
from flambeau.optim import sparse_adam as sparse_adam
from flambeau.optim import swa_utils as swa_utils
from flambeau.optim import swapped as swapped
from flambeau.optim.adam import Adam as Adam
from flambeau.optim.adam import AdamW as AdamW
from flambeau.optim.adaptive import ASGD as ASGD
from flambeau.optim.adaptive import Adadelta as Adadelta
from flambeau.optim.adaptive import Adafactor as Adafactor
from flambeau.optim.adaptive import Adagrad as Adagrad
from flambeau.optim.adaptive import Adamax as Adamax
from flambeau.optim.adaptive import NAdam as NAdam
from flambeau.optim.adaptive import RAdam as RAdam
from flambeau.optim.adaptive import RMSprop as RMSprop
from flambeau.optim.adaptive import Rprop as Rprop
from flambeau.optim.lbfgs import LBFGS as LBFGS
from flambeau.optim.muon import Muon as Muon
from flambeau.optim.optimizer import Optimizer as Optimizer
from flambeau.optim.optimizer import Optimizer as _Optimizer
from flambeau.optim.sgd import SGD as SGD
from flambeau.optim.sparse_adam import SparseAdam as SparseAdam
from typing import Any
from typing import Any, overload
import builtins

adadelta: Any
adafactor: Any
adagrad: Any
adamax: Any
asgd: Any
nadam: Any
radam: Any
rmsprop: Any
rprop: Any

def swap_in_optimizer_params_and_state(optimizer: _Optimizer, swapin_parameters: builtins.dict[builtins.str, _Tensor], swapin_optim_state: builtins.dict[builtins.str, Any]) -> Iterator[None]: ...

__all__ = ['ASGD', 'Adadelta', 'Adafactor', 'Adagrad', 'Adam', 'AdamW', 'Adamax', 'LBFGS', 'Muon', 'NAdam', 'Optimizer', 'RAdam', 'RMSprop', 'Rprop', 'SGD', 'SparseAdam', 'adadelta', 'adafactor', 'adagrad', 'adam', 'adamax', 'adamw', 'adaptive', 'asgd', 'lbfgs', 'lr_scheduler', 'muon', 'nadam', 'optimizer', 'radam', 'rmsprop', 'rprop', 'sgd', 'sparse_adam', 'submodules', 'swa_utils', 'swap_in_optimizer_params_and_state', 'swapped']
