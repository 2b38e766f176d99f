"""What a network is doing now, kept current from the traces that its brokers write.

- `measures`: yield, hops, delay, drops and cost of each broker and link by periods, as Spark tables.
- `table`: where the answers lie, and how a dashboard reads them, without Spark.
- `job`: the streaming query that brings them up to date.
"""

from __future__ import annotations
