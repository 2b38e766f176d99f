"""Braid as a Spark data source and sink, for batch and Structured Streaming.

- `source`: `BraidSource`, the format `braid`, and how it is registered. Users come in through `braid.spark`.
- `options`: what may be asked for. `connecting`: clients with credentials, on the driver and on executors.
- `offsets`: where a query stands in its logs. `reading`: the batch and the stream reader.
- `schema`, `decoding`: what columns there are, and records straight into Arrow columns.
- `pushdown`: predicates that the broker applies. `writing`: the sink.
"""
