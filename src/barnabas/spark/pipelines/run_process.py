"""The process of a run: `python -m barnabas.spark.pipelines.run_process`.

It reads a request from standard input and writes events as lines of JSON to standard output.
What Spark and the definitions print goes to standard error. When standard input ends, the command
has ended, and this process ends with its Java: the next run goes on where the checkpoints are.

`spark-pipelines run` starts Spark with two Java processes and the fixed port 15002, where the
client of a second pipeline would reach the server of the first. Here one Java process has both, and
its Spark Connect server takes a free port.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from barnabas.spark.java import JavaNotFoundError
from barnabas.spark.pipelines.project import (
    MissingExtraError,
    ProjectError,
    file_address,
    load_project,
)
from barnabas.spark.pipelines.runs import RunLock, RunRequest, is_java
from barnabas.spark.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from barnabas.spark.metrics import QueryMetrics
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
_SUCCEEDED, _FAILED = 0, 1
# Between two looks at Java.
_LOOK_S = 0.5


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


class EventWriter:
    """Writes events from several threads, one on a line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()

    def emit(self, event: Mapping[str, Any]) -> None:
        """Write an event."""
        with self._lock:
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()


def main() -> int:
    """Run what the first line of standard input asks for, and return the exit status."""
    # Java inherits standard output, so events need a descriptor of their own.
    events = EventWriter(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)
    request = RunRequest.from_json(sys.stdin.readline())
    threading.Thread(target=_end_with_command, daemon=True).start()
    try:
        return _run(request, events)
    except (ProjectError, JavaNotFoundError) as error:
        events.emit({"event": "problem", "flow": None, "text": str(error)})
        events.emit({"event": "ended", "result": "failed"})
        return _FAILED


def _run(request: RunRequest, events: EventWriter) -> int:
    project = load_project(Path(request.spec))
    lock = RunLock(project.notes, lambda: events.emit({"event": "waiting"})).acquire()
    events.emit({"event": "starting"})
    try:
        import pyspark.pipelines.cli  # noqa: F401 - with all packages that it needs
    except ModuleNotFoundError as error:
        raise MissingExtraError(error) from None

    from barnabas.spark.metrics import QueryMetrics

    metrics = QueryMetrics()
    with (
        _served(metrics, request, events),
        pipeline_session(project, request.master, request.settings) as (session, java),
    ):
        lock.note_java(java)
        ending = threading.Event()
        threading.Thread(target=_end_with_java, args=(java, ending, events), daemon=True).start()
        # Imports pyspark, which costs a second; by now errors of the project are reported.
        from barnabas.spark.pipelines.pipeline_run import PipelineRun

        run = PipelineRun(project, request, session, events.emit, metrics)
        try:
            while (succeeded := run.run_once()) and request.every_s is not None:
                time.sleep(request.every_s)
        finally:
            run.close()
            ending.set()
        return _SUCCEEDED if succeeded else _FAILED


@contextmanager
def _served(metrics: QueryMetrics, request: RunRequest, events: EventWriter) -> Iterator[None]:
    """Serve metrics if the request asks for that, and tell their address."""
    if request.metrics is None:
        yield
        return
    # Imports pyspark.
    from barnabas.spark.metrics import QueryMetricsServer

    host, port = request.metrics
    try:
        server = QueryMetricsServer(metrics, host, port)
    except OSError as error:
        raise ProjectError(f"metrics cannot be served at {host}:{port}: {error}") from None
    with server:
        events.emit({"event": "metrics", "address": server.address})
        yield


def _end_with_command() -> None:
    """Wait for the end of standard input, then end the process group, with Java in it."""
    while sys.stdin.readline():
        pass
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    # Someone started this process in a group of others.
    os._exit(_FAILED)


def _end_with_java(process_id: int, ending: threading.Event, events: EventWriter) -> None:
    """End this process when Java has ended: Spark's client would try to reach it for minutes."""
    while not ending.wait(_LOOK_S):
        if not is_java(process_id):
            text = "Spark's Java process was killed, or ended; its log may say why"
            events.emit({"event": "problem", "flow": None, "text": text})
            events.emit({"event": "ended", "result": "failed"})
            os._exit(_FAILED)


if __name__ == "__main__":
    sys.exit(main())
