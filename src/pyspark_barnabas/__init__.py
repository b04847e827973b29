"""Where PySpark finds `format("barnabas")` by itself: it looks into modules named pyspark_*."""

from __future__ import annotations

from barnabas.spark.topics.source import BarnabasSource

__all__ = ["DefaultSource"]


class DefaultSource(BarnabasSource):
    """The source under the name that PySpark looks for."""
