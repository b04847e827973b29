"""A Spark session that is ready for `format("barnabas")`: Java found, workers' Python set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.spark.java import prepare_java

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

# Local defaults; whatever is given, or was set by spark-submit, wins.
_LOCAL_DEFAULTS = {
    "spark.ui.enabled": "false",
    # Spark's own bar would tear ours.
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
}


def spark_session(
    name: str = "barnabas",
    master: str | None = "local[*]",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Get or make a session.

    Args:
        name: shown by Spark.
        master: None to leave it to spark-submit or the environment.
        config: Spark settings.

    Raises:
        JavaNotFoundError: there is no Java.
    """
    from pyspark.sql import SparkSession

    prepare_java()
    builder = SparkSession.builder.appName(name)
    settings = dict(config or {})
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            settings = _LOCAL_DEFAULTS | settings
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
