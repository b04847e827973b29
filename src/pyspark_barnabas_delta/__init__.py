"""Where PySpark finds `format("barnabas_delta")`: it looks into modules named pyspark_*."""

from __future__ import annotations

from barnabas.spark.table_sinks import DeltaSink

__all__ = ["DefaultSource"]


class DefaultSource(DeltaSink):
    """The sink under the name that PySpark looks for."""
