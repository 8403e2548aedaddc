"""The projections that every journal keeps."""

from __future__ import annotations

from typing import Any, Final

from .bindings import Bindings
from .cursors import Cursors
from .leases import Epochs, Leases
from .projection import Projection
from .queues import Queues
from .statistics import Statistics
from .unresolved import Unresolved

BUILT_IN: Final[tuple[Projection[Any], ...]] = (Unresolved(), Queues(), Cursors(), Bindings(), Leases(), Epochs(), Statistics())
