"""The primitives: one record each, all facets side by side. Import names from here: `prims.add`, `prims.permute`, ..."""

from typing import TYPE_CHECKING, Any

from .factories import *  # noqa: F403
from .indexing import *  # noqa: F403
from .linalg import *  # noqa: F403
from .pointwise import *  # noqa: F403
from .random import *  # noqa: F403
from .reductions import *  # noqa: F403
from .views import *  # noqa: F403
from .windows import *  # noqa: F403

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
