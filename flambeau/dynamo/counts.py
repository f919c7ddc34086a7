"""What was captured and compiled in this process: `torch._dynamo.utils.counters`, and the seconds of each compilation."""

from __future__ import annotations

from collections import Counter, defaultdict

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
"""`frames` (total, ok), `stats` (unique_graphs, calls_captured), `graph_break` (by reason), `recompiles`, `inductor` (cache hits)."""

seconds: defaultdict[str, list[float]] = defaultdict(list)
"""By stage, for each compilation."""
