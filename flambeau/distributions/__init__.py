"""torch.distributions: sampling, densities, entropies and divergences of the common distributions."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from typing import Any

from . import (
    constraint_registry,
    constraints,
    continuous,
    derived,
    discrete,
    distribution,
    further,
    kl,
    matrices,
    mixed,
    transformed,
    transforms,
    utils,
)
from .constraint_registry import biject_to, transform_to
from .continuous import *  # noqa: F403
from .derived import *  # noqa: F403
from .discrete import *  # noqa: F403
from .distribution import Distribution, ExponentialFamily, broadcast_all
from .further import *  # noqa: F403
from .kl import kl_divergence, register_kl
from .matrices import *  # noqa: F403
from .mixed import *  # noqa: F403
from .transformed import TransformedDistribution
from .transforms import *  # noqa: F403

_MODULES = (continuous, derived, discrete, further, matrices, mixed, transformed)
__all__ = [*(name for module in _MODULES for name in module.__all__), *transforms.__all__, "Distribution", "ExponentialFamily", "biject_to",
           "constraints", "kl_divergence", "register_kl", "transform_to", "transforms", "utils"]


def _home(name: str, **contents: Any) -> None:
    """A module where PyTorch keeps something, such as torch.distributions.normal with Normal."""
    module = module_from_spec(ModuleSpec(f"{__name__}.{name}", None))
    module.__doc__ = f"Where PyTorch keeps {', '.join(contents)} (torch.distributions.{name})."
    vars(module).update(contents, Distribution=Distribution, constraints=constraints, __all__=list(contents))
    globals()[name] = sys.modules[module.__name__] = module


# Classes whose module isn't called as they are.
_PLACES = {"ExpRelaxedCategorical": "relaxed_categorical", "ExponentialFamily": "exp_family", "FisherSnedecor": "fishersnedecor",
           "LKJCholesky": "lkj_cholesky", "LogitRelaxedBernoulli": "relaxed_bernoulli",
           "LowRankMultivariateNormal": "lowrank_multivariate_normal",
           "OneHotCategoricalStraightThrough": "one_hot_categorical", "RelaxedOneHotCategorical": "relaxed_categorical",
           "StudentT": "studentT"}
_contents: dict[str, dict[str, Any]] = defaultdict(dict)
for _name in ("ExponentialFamily", "ExpRelaxedCategorical", "LogitRelaxedBernoulli", *(name for module in _MODULES for name in module.__all__)):
    _place = _PLACES.get(_name) or re.sub("(?<=[a-z])(?=[A-Z])", "_", _name).lower()
    _contents[_place][_name] = globals().get(_name) or getattr(mixed, _name)
for _place, _found in _contents.items():
    _home(_place, **_found)
_TORCH_HOMES = {kind: place for place, found in _contents.items() for kind in found.values()}
"""By class, the module that it says it is of where the library stands for PyTorch."""
sys.modules[f"{__name__}.multivariate_normal"]._precision_to_scale_tril = continuous._precision_to_scale_tril  # type: ignore[attr-defined]
