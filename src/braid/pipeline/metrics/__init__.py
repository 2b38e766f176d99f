"""What does a trace amount to?

Each quantity of the papers is one function from data frames of a trace to a data frame with a row (or a
series) per `run`; `docs/metrics.md` lists them.

- `forwarding`: hops, pure forwarders, yield, throughput. `traffic`: what crosses links, control overhead.
- `delay`: delivery delay, delivery ratio, hops in a DHT. `ordering`: the ordering degree.
- `overlay`: the number of end-to-end paths. `cost`: cost(N, T). `state`: covering sets, state per peer.
- `availability`: OT, RT, PDRD, LMPT.
- `frames`: intervals and periods. `intervals`: means over seeds with confidence. `registry`: all, by name.
"""

from __future__ import annotations

from braid.pipeline.metrics.frames import within
from braid.pipeline.metrics.intervals import MeanInterval, mean_interval
from braid.pipeline.metrics.registry import METRICS, Metric, metric

__all__ = ["METRICS", "MeanInterval", "Metric", "mean_interval", "metric", "within"]
