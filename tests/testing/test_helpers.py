"""The wheel's own test helpers (`torch.testing._internal`) work over Flambeau: they are imported, and small test cases run with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch's wheel has the helpers")

HELPERS = ["common_utils", "common_dtype", "common_cuda", "common_device_type", "common_methods_invocations", "common_modules", "common_nn",
           "common_optimizers", "common_jit", "jit_utils", "logging_tensor", "common_subclass", "composite_compliance", "custom_op_db",
           "autograd_function_db", "opinfo.core", "opinfo.definitions", "optests", "two_tensor", "subclasses", "hypothesis_utils",
           "common_quantized", "common_mkldnn", "common_mps", "common_xpu", "jit_metaprogramming_utils", "generated.annotated_fn_args"]

PROGRAM = '''
import importlib.util, os, sys, warnings
import flambeau.as_torch
import torch, torch.testing

folder = sys.argv[1]
class Wheel:
    def find_spec(self, name, path=None, target=None):
        if not name.startswith("torch.testing._internal"):
            return None
        at = os.path.join(folder, *name.split(".")[1:])
        package = os.path.isdir(at)
        file = os.path.join(at, "__init__.py") if package else at + ".py"
        places = [at] if package else None
        return importlib.util.spec_from_file_location(name, file, submodule_search_locations=places) if os.path.exists(file) else None

sys.meta_path.insert(0, Wheel())
warnings.simplefilter("ignore")
for name in sys.argv[2].split(","):
    importlib.import_module(f"torch.testing._internal.{name}")
print("imported", flush=True)

import numpy as np
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import deviceCountAtLeast, dtypes, instantiate_device_type_tests, onlyCPU, ops
from torch.testing._internal.common_methods_invocations import op_db, python_ref_db
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_optimizers import optim_db, optims
from torch.testing._internal.common_utils import (
    DeterministicGuard, TemporaryFileName, TestCase, freeze_rng_state, gradcheck, gradgradcheck, instantiate_parametrized_tests,
    noncontiguous_like, parametrize, run_tests, set_default_dtype, skipIfTorchDynamo, subtest, wrapDeterministicFlagAPITest)

class TestEqual(TestCase):
    def test_what_is_compared(self):
        x = torch.tensor([1.0, 2])
        for one, other in [(x, [1.0, 2]), (x, x.clone()), (3, torch.tensor(3)), ({"a": [x]}, {"a": [x.clone()]}), ({1}, {1}), ("a", "a"),
                           (torch.Size([1]), (1,)), (x.to_sparse(), x.to_sparse()), (x.storage(), x.clone().storage()), (None, None),
                           (torch.eye(2).to_sparse_csr(), torch.eye(2).to_sparse_csr()), (float("nan"), torch.tensor(float("nan"))),
                           (torch.float32, torch.float32), (True, torch.tensor(True)), (1j, torch.tensor(1j))]:
            self.assertEqual(one, other)
        self.assertEqual(np.array([1.0, 2]), x, exact_dtype=False)
        for one, other in [(x, x + 1), (1.0, 2.0), ({"a": x}, {"a": x + 1}), ("a", "b"), (x, torch.ones(3)), (x, x.double())]:
            self.assertNotEqual(one, other)
        with self.assertRaisesRegex(AssertionError, "not close"):
            self.assertEqual(x, x + 1)

    @parametrize("x", [1, 2])
    @parametrize("y", [subtest(3, name="three"), 4])
    def test_parameters(self, x, y):
        self.assertIn(x, (1, 2))

    @skipIfTorchDynamo("no")
    @wrapDeterministicFlagAPITest
    def test_scopes(self):
        with freeze_rng_state():
            first = torch.rand(2)
        self.assertEqual(first, torch.rand(2))
        with set_default_dtype(torch.double), DeterministicGuard(True):
            self.assertIs(torch.ones(1).dtype, torch.double)
        with TemporaryFileName() as file:
            torch.save(first, file)
            self.assertEqual(torch.load(file), first)
        self.assertFalse(noncontiguous_like(torch.ones(2, 2)).is_contiguous())
        with self.assertRaises(RuntimeError):
            torch.backends.cudnn.enabled = False
        with torch.backends.cudnn.flags(enabled=False):
            self.assertFalse(torch.backends.cudnn.enabled)

    def test_gradients(self):
        x = torch.ones(2, dtype=torch.double, requires_grad=True)
        self.assertTrue(gradcheck(torch.sin, x) and gradgradcheck(torch.sin, x))

instantiate_parametrized_tests(TestEqual)

class TestDevices(TestCase):
    @dtypes(torch.float32, torch.int64)
    def test_dtypes(self, device, dtype):
        self.assertIs(make_tensor((2,), device=device, dtype=dtype).dtype, dtype)

    @onlyCPU
    @deviceCountAtLeast(1)
    def test_devices(self, devices):
        self.assertEqual(devices[0], "cpu")

    @ops(op_db[3:6], allowed_dtypes=(torch.float32,))
    def test_ops(self, device, dtype, op):
        for sample in op.sample_inputs(device, dtype, requires_grad=True):
            op(sample.input, *sample.args, **sample.kwargs)

    @modules(module_db[:2], allowed_dtypes=(torch.float32,))
    def test_modules(self, device, dtype, module_info, training):
        for given in module_info.module_inputs_func(module_info, device=device, dtype=dtype, requires_grad=False, training=training):
            module_info.module_cls(*given.constructor_input.args, **given.constructor_input.kwargs)

    @optims(optim_db[:3], dtypes=[torch.float32])
    def test_optimizers(self, device, dtype, optim_info):
        for given in optim_info.optim_inputs_func(device=device):
            optim_info.optim_cls([torch.nn.Parameter(torch.ones(2))], **given.kwargs)

instantiate_device_type_tests(TestDevices, globals(), only_for="cpu")
sys.argv[1:] = []
run_tests()
'''


def test_they_run(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    folder = Path(torch.__file__).parent
    done = subprocess.run([sys.executable, str(program), str(folder), ",".join(HELPERS)], capture_output=True, text=True, cwd=tmp_path)
    assert "imported" in done.stdout and done.returncode == 0, done.stdout + done.stderr[-6000:]
    assert "OK" in done.stderr and "Ran 18 tests" in done.stderr, done.stderr[-3000:]
