"""Braid inside Spark: register the format `braid`, and read filtered streams.

    import braid.spark

    braid.spark.register(spark)
    spark.read.format("braid").option("brokers", url).option("log", "orders").load()
    braid.spark.stream(spark, url, where="price > 10", schema="symbol string, price double")

`docs/spark.md` shows all of it.
"""

from __future__ import annotations

from braid.pipeline.source.source import register, stream

__all__ = ["register", "stream"]
