"""What do a thousand runs say together?

Spark jobs over tables of publications, filters and traces. The session is made at the door, by
`session.spark_session`; everything behind it takes and returns data frames.
"""

from __future__ import annotations

from braid.pipeline.java import Java, find_java
from braid.pipeline.session import spark_session, start_session

__all__ = ["Java", "find_java", "spark_session", "start_session"]
