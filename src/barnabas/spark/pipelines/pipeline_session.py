"""Starts Spark for a pipeline: a session with a Spark Connect server, and a client of it.

`spark-pipelines run` does the same with two Java processes and the fixed port 15002, where the
client of a second pipeline would reach the server of the first. Here the server takes a free port.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from barnabas.spark.pipelines.errors import ProjectError
from barnabas.spark.pipelines.project import file_address
from barnabas.spark.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from barnabas.spark.pipelines.project import Project

_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name of the variable
_SERVER = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.host": "127.0.0.1",
    # Flows may bring their own Python files.
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    "spark.sql.connect.serverStacktrace.enabled": "false",
    "spark.log.level": "ERROR",
}


def start_settings(project: Project, given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with which Spark starts.

    Args:
        project: the project; its own settings apply to all sessions.
        given: settings of the user, which override the others.
    """
    derby = f"-Dderby.stream.error.file={project.notes / 'derby.log'}"
    settings = {
        **_SERVER,
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": file_address(project.tables),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={project.metastore};create=true"
        ),
        **project.configuration,
        **given,
    }
    options = settings.get("spark.driver.extraJavaOptions", "")
    return settings | {"spark.driver.extraJavaOptions": f"{derby} {options}".strip()}


@contextmanager
def pipeline_session(
    project: Project, master: str, given: Mapping[str, str]
) -> Iterator[tuple[SparkSession, int]]:
    """Start Spark, and yield a session for the pipeline and the id of the Java process.

    The session is one of Spark Connect, as pipelines need it.

    Raises:
        JavaNotFoundError: no suitable Java was found.
        ProjectError: the specification has a setting with which Spark must start.
    """
    from barnabas.runtime.rng import SystemRng

    os.environ.pop("SPARK_REMOTE", None)
    os.environ[_TOKEN] = SystemRng().uuid().hex()
    server = spark_session(project.name, master, start_settings(project, given))
    try:
        java: Any = server._jvm
        service = getattr(java, "org.apache.spark.sql.connect.service.SparkConnectService$")
        port = getattr(service, "MODULE$").localPort()
        process_id = java.java.lang.ProcessHandle.current().pid()
        # From here on pyspark's functions make plans of Spark Connect.
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        # With this host the client sends the token without TLS.
        client: Any = ConnectSession.builder.remote(f"sc://localhost:{port}").create()
        try:
            _check_configuration(project, client)
            yield client, process_id
        finally:
            client.stop()
    finally:
        server.stop()


def _check_configuration(project: Project, session: Any) -> None:
    static = [key for key in project.configuration if not session.conf.isModifiable(key)]
    if static:
        raise ProjectError(
            f"{project.spec} sets {', '.join(static)}, which Spark takes at its start only. Remove "
            f"it there, and run with --conf {static[0]}={project.configuration[static[0]]}"
        )
