"""torch.utils. Written by `python -m tools.stubs`."""

from flambeau._lazy import submodules as submodules
from flambeau.utils import _contextlib as _contextlib
from flambeau.utils import _foreach_utils as _foreach_utils
from flambeau.utils import _ordered_set as _ordered_set
from flambeau.utils import _python_dispatch as _python_dispatch
from flambeau.utils import _pytree as _pytree
from flambeau.utils import _traceback as _traceback
from flambeau.utils import _triton as _triton
from flambeau.utils import benchmark as benchmark
from flambeau.utils import bottleneck as bottleneck
from flambeau.utils import checkpoint as checkpoint
from flambeau.utils import collect_env as collect_env
from flambeau.utils import cpp_extension as cpp_extension
from flambeau.utils import data as data
from flambeau.utils import deterministic as deterministic
from flambeau.utils import dlpack as dlpack
from flambeau.utils import flop_counter as flop_counter
from flambeau.utils import hooks as hooks
from flambeau.utils import model_zoo as model_zoo
from flambeau.utils import module_tracker as module_tracker
from flambeau.utils import safetensors as safetensors
from flambeau.utils import swapping as swapping
from flambeau.utils import tensorboard as tensorboard
from flambeau.utils import weak as weak
from flambeau.utils.swapping import swap_tensors as swap_tensors
from typing import Any
from typing import Any, overload
import builtins

Path: Any
bundled_inputs: Any
cmake_prefix_path: builtins.str
serialization: Any

def set_module(obj: Any, mod: Any) -> None: ...

__all__ = ['Path', 'benchmark', 'bottleneck', 'bundled_inputs', 'checkpoint', 'cmake_prefix_path', 'collect_env', 'cpp_extension', 'data', 'deterministic', 'dlpack', 'flop_counter', 'hooks', 'model_zoo', 'module_tracker', 'safetensors', 'serialization', 'set_module', 'submodules', 'swap_tensors', 'swapping', 'tensorboard', 'weak']
