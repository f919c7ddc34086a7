"""`functorch.compile`."""

from ..aot_autograd import aot_function, aot_module, aot_module_simplified, make_boxed_compiler, make_boxed_func
from ..compilers import memory_efficient_fusion, nop, print_compile
from ..partitioners import default_partition, min_cut_rematerialization_partition

compiled_function, compiled_module = aot_function, aot_module

__all__ = ["aot_function", "aot_module", "aot_module_simplified", "compiled_function", "compiled_module", "default_partition",
           "make_boxed_compiler", "make_boxed_func", "memory_efficient_fusion", "min_cut_rematerialization_partition", "nop",
           "print_compile"]
