"""Creates a Spark session for `format("barnabas")` with Java and the workers' Python set up."""

from __future__ import annotations

import os
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.spark.java import prepare_java

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

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


def prepare_local_workers(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let workers of local sessions import the installed pyspark, instead of an archive of it.

    Spark starts a Python process for each streaming query, and several ones in each session. Their
    start takes most of the processor time of a small query. Python keeps no compiled form of the
    modules of archives. With compiled modules, a process imports pyspark in a third of the time. A
    Python that the user chose for the workers is kept.
    """
    launcher = str(resources.files("barnabas.spark").joinpath("python_home", "bin", "python3"))
    if os.name != "posix" or not _is_spark_of_pyspark(environment):
        return
    environment["BARNABAS_WORKER_PYTHON"] = sys.executable
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if environment.get(name, sys.executable) == sys.executable:
            environment[name] = launcher


def _is_spark_of_pyspark(environment: MutableMapping[str, str]) -> bool:
    """Whether Spark is the one inside the installed package, so that both have one version."""
    import pyspark

    installed = Path(pyspark.__file__).resolve().parent
    return Path(environment.get("SPARK_HOME", installed)).resolve() == installed
