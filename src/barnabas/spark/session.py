"""Creates a Spark session for `format("barnabas")` with Java and the workers' Python set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.spark.java import prepare_java
from barnabas.spark.worker_python import prepare_local_workers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

# Plans, the UI and logs hide the values of these options. Spark's default hides those whose name or
# value contains secret, password, token or access.key; it shows private keys.
_REDACTED = r"(?i)url|secret|password|jaas|keystore[.]key|key[.]pem|PRIVATE.KEY"
_DEFAULTS = {"spark.sql.redaction.options.regex": _REDACTED}
# Defaults of local sessions; settings of the caller and of spark-submit take precedence.
_LOCAL_DEFAULTS = {
    "spark.ui.enabled": "false",
    # Spark's progress bar would break the progress bar of the command line.
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    # On a TCP connection, the end of each Python task waits 40 ms for a delayed acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
}


def spark_session(
    name: str = "barnabas",
    master: str | None = "local[*]",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the active Spark session, or create one.

    Args:
        name: the application name.
        master: Spark's master URL; None leaves the choice to spark-submit or the environment.
        config: Spark settings.

    Raises:
        JavaNotFoundError: no suitable Java was found.
    """
    from pyspark.sql import SparkSession

    prepare_java()
    builder = SparkSession.builder.appName(name)
    settings = _DEFAULTS | dict(config or {})
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            prepare_local_workers()
            settings = _LOCAL_DEFAULTS | settings
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
