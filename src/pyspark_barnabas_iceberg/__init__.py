"""Where PySpark finds `format("barnabas_iceberg")`: it looks into modules named pyspark_*."""

from __future__ import annotations

from barnabas.spark.table_sinks import IcebergSink

__all__ = ["DefaultSource"]


class DefaultSource(IcebergSink):
    """The sink under the name that PySpark looks for."""
