"""Braid inside Spark: register the format `braid`, and read filtered streams.

    import braid.spark

    braid.spark.register(spark)
    spark.read.format("braid").option("brokers", url).option("log", "orders").load()

`docs/spark.md` shows all of it.
"""

from __future__ import annotations

from braid.pipeline.source.source import register

__all__ = ["register"]
