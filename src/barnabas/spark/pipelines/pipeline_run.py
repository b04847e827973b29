"""One run of a pipeline in a session: register, compare with the checkpoints, let Spark run it."""

from __future__ import annotations

import contextlib
import difflib
import re
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.pipelines import cli
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run
from pyspark.sql.streaming.listener import StreamingQueryListener

from barnabas.spark.pipelines.changes import own_name
from barnabas.spark.pipelines.checkpoints import read_checkpoints, read_notes, write_notes
from barnabas.spark.pipelines.definition import short_key
from barnabas.spark.pipelines.definition_checks import DefinitionChecks, RecordingRegistry
from barnabas.spark.pipelines.expectations import expectation_counts
from barnabas.spark.pipelines.explained_errors import (
    explain,
    is_summary,
    named_in,
    place_in_traceback,
    place_of_name,
)
from barnabas.spark.pipelines.project import ProjectError, file_address
from barnabas.spark.query_progress import query_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from barnabas.spark.metrics import QueryMetrics
    from barnabas.spark.pipelines.changes import Change
    from barnabas.spark.pipelines.definition import FlowDefinition
    from barnabas.spark.pipelines.project import Project
    from barnabas.spark.pipelines.runs import RunRequest
    from barnabas.spark.query_progress import QueryProgress

    Emit = Callable[[Mapping[str, Any]], None]

# "Flow spark_catalog.default.a is RUNNING.", "Flow 'a' has FAILED.", "Flow 'a' SKIPPED due to ..."
_FLOW = re.compile(r"Flow '?([^\s']+)'? (?:(?:is|has) )?([A-Z]{3,})")
# Of the last batch, after the run has ended.
_PROGRESS_WAIT_S = 5.0
_PROGRESS_PAUSE_S = 0.05
# By state of a flow that has ended: whether it failed.
_ENDED_STATES = {"completed": False, "stopped": False, "failed": True}
_ERROR = re.compile(r"\nError: (.*)", re.DOTALL)
# Of flows that Spark does not start.
_UNRESOLVED = re.compile(r"Failed to resolve flow( due to upstream failure)?: '([^']+)'")


def progress_event(flow: str, progress: QueryProgress) -> dict[str, Any]:
    """Return the event of one finished batch.

    Args:
        flow: the key of the flow.
        progress: the progress of its query.
    """
    behind: dict[str, int] = {}
    for tp, offsets in progress.lag.items():
        behind[tp.topic] = behind.get(tp.topic, 0) + offsets
    return {
        "event": "progress",
        "flow": flow,
        "query": progress.query_id,
        "batch": progress.batch,
        "time": progress.time,
        "rows_read": progress.rows_read,
        # None for flows of SQL files, except into sinks that count.
        "rows_written": progress.rows_written,
        "seconds": progress.seconds,
        # Rows read.
        "rows_per_second": progress.rows_per_second,
        # By topic, then by partition: the next offset to read.
        "offsets": progress.offsets,
        # By topic: records that had not been read at the end of the batch.
        "lag": behind,
        "watermark": progress.watermark,
        # None for a flow without state.
        "state_rows": progress.state_rows,
        "late_rows": progress.late_rows,
        "expectations": expectation_counts(progress.observed),
    }


class PipelineRun(StreamingQueryListener):
    """Runs the pipeline in a session, as often as it is asked to.

    Args:
        project: the project.
        request: what to run.
        session: a session of Spark Connect.
        emit: takes the events of the run, from several threads.
        metrics: counts the runs and batches of the flows.
    """

    def __init__(
        self,
        project: Project,
        request: RunRequest,
        session: SparkSession,
        emit: Emit,
        metrics: QueryMetrics,
    ) -> None:
        super().__init__()
        self._project = project
        self._request = request
        self._session = session
        self._emit = emit
        self._metrics = metrics
        # Guards the notes: progress arrives in another thread than events.
        self._lock = threading.Lock()
        self._notes = read_notes(project.notes)
        # By the name that Spark's events have.
        self._flows: dict[str, FlowDefinition] = {}
        # Keys of the flows that Spark started in this run.
        self._started: set[str] = set()
        session.streams.addListener(self)

    def close(self) -> None:
        """Receive no more progress; the session can be stopped then."""
        self._session.streams.removeListener(self)

    def run_once(self) -> bool:
        """Run the pipeline until it has read what is there; return whether that succeeded.

        Raises:
            ProjectError: a requested dataset is not defined.
        """
        try:
            graph_id, registry = self._register()
        except Exception as error:  # noqa: BLE001 - definitions are the user's code
            self._emit({"event": "problem", "flow": None, "text": self._definition_error(error)})
            return self._ended("failed")
        self._check_names(registry.outputs)
        checks = DefinitionChecks(self._project, self._session, registry, self._request.settings)
        definitions = checks.definitions
        changes = self._changes(checks)
        for change in changes:
            self._emit({"event": "change", **_change_json(change)})
        if any(change.is_refused for change in changes):
            return self._ended("refused")
        self._started = set()
        self._flows = {flow.flow: flow for flow in definitions.flows}
        try:
            self._let_spark_run(graph_id, registry)
        except PySparkException as error:
            if not is_summary(str(error)):
                self._emit({"event": "problem", "flow": None, "text": explain(str(error))})
            return self._ended("failed")
        self._await_progress()
        return self._ended("completed")

    def _register(self) -> tuple[str, RecordingRegistry]:
        spec = cli.load_pipeline_spec(self._project.spec)
        graph_id = create_dataflow_graph(
            self._session, spec.catalog, spec.database, sql_conf=spec.configuration
        )
        registry = RecordingRegistry(self._project, self._session, graph_id)
        with _compiled_anew():
            cli.register_definitions(self._project.spec, registry, spec, self._session, graph_id)
        return graph_id, registry

    def _check_names(self, outputs: set[str]) -> None:
        """Spark would run nothing, and report success, for a name that is not defined."""
        known = {self._project.qualified(name) for name in outputs}
        for name in (*self._request.refresh, *self._request.full_refresh):
            if self._project.qualified(name) not in known:
                close = difflib.get_close_matches(name, outputs, n=1)
                hint = f"Did you mean {close[0]}? " if close else ""
                raise ProjectError(
                    f"no dataset is called {name}. {hint}There are {', '.join(sorted(outputs))}"
                )

    def _definition_error(self, error: Exception) -> str:
        """Return what is wrong with a definition that was not registered, after its line."""
        place = place_in_traceback(error, self._project.directory)
        is_of_spark = isinstance(error, PySparkException)
        text = explain(str(error)) if is_of_spark else f"{type(error).__name__}: {error}"
        return text if place is None else f"{place}: {text}"

    def _changes(self, checks: DefinitionChecks) -> Sequence[Change]:
        """Return the changes that the request does not accept, refused ones first."""
        anew = {self._project.qualified(name) for name in self._request.full_refresh}
        found = checks.changes(read_checkpoints(self._project), self._notes.definitions)
        return sorted(
            (
                change
                for change in found
                if change.flow not in self._request.accepted
                and not (change.is_of_checkpoint and change.target in anew)
            ),
            key=lambda change: not change.is_refused,
        )

    def _let_spark_run(self, graph_id: str, registry: RecordingRegistry) -> None:
        results = start_run(
            self._session,
            graph_id,
            full_refresh=list(self._request.full_refresh),
            full_refresh_all=False,
            refresh=list(self._request.refresh),
            dry=self._request.check_only,
            storage=file_address(self._project.storage),
        )
        for result in results:
            if "pipeline_event_result" in result:
                self._on_message(result["pipeline_event_result"].event.message, registry)

    def _on_message(self, message: str, registry: RecordingRegistry) -> None:
        error = _ERROR.search(message)
        text = error[1] if error is not None else None
        unresolved = _UNRESOLVED.match(message)
        if unresolved is not None:
            if unresolved[1]:
                self._on_flow(unresolved[2], "skipped", explain(text or ""))
            else:
                self._on_flow(unresolved[2], "failed", self._placed(unresolved[2], text, registry))
            return
        found = _FLOW.match(message)
        if found is not None:
            self._on_flow(found[1], found[2].lower(), explain(text) if text else None)

    def _placed(self, flow: str, text: str | None, registry: RecordingRegistry) -> str:
        """Return what is wrong with a definition, after its line."""
        error, place = text or "", registry.place(own_name(flow))
        if place is None:
            return explain(error)
        where = place_of_name(place, named_in(error), self._project.directory)
        return f"{where}: {explain(error)}"

    def _on_flow(self, name: str, state: str, error: str | None) -> None:
        definition = self._flows.get(own_name(name))
        if state == "running" and definition is not None and definition.is_streaming:
            # From now on the checkpoint is one of this definition.
            self._started.add(definition.key)
            with self._lock:
                self._notes.definitions[definition.key] = definition
                write_notes(self._project.notes, self._notes)
        key = definition.key if definition is not None else name
        if state == "running":
            self._metrics.on_started(short_key(key))
        elif state in _ENDED_STATES:
            self._metrics.on_ended(short_key(key), failed=_ENDED_STATES[state])
        self._emit({"event": "flow", "flow": key, "state": state, "error": error})

    def _await_progress(self) -> None:
        """Wait for the progress of the last batches, which arrives in another thread."""
        deadline = time.monotonic() + _PROGRESS_WAIT_S
        waiting = [each for each in read_checkpoints(self._project) if each.key in self._started]
        while waiting and time.monotonic() < deadline:
            time.sleep(_PROGRESS_PAUSE_S)
            with self._lock:
                noted = {(each["query"], each["batch"]) for each in self._notes.progress.values()}
            waiting = [
                each for each in waiting if (each.query_id, each.committed_batch) not in noted
            ]

    def _ended(self, result: str) -> bool:
        if not self._request.check_only:
            with self._lock:
                self._notes.last_run = {"result": result, "ended_ms": int(time.time() * 1000)}
                write_notes(self._project.notes, self._notes)
        self._emit({"event": "ended", "result": result})
        return result == "completed"

    # Spark calls these in a thread of its own.

    def onQueryStarted(self, event: Any) -> None:
        """Spark requires it."""

    def onQueryProgress(self, event: Any) -> None:
        """Report and note a finished batch."""
        name = str(event.progress.name).rsplit(".", 1)[-1]
        definition = self._flows.get(name)
        progress = query_progress(event.progress.json)
        reported = progress_event(definition.key if definition else name, progress)
        self._metrics.on_progress(short_key(reported["flow"]), progress)
        with self._lock:
            self._notes.progress[reported["flow"]] = reported
            write_notes(self._project.notes, self._notes)
        self._emit(reported)

    def onQueryIdle(self, event: Any) -> None:
        """Spark requires it."""

    def onQueryTerminated(self, event: Any) -> None:
        """Spark requires it."""


def _change_json(change: Change) -> dict[str, Any]:
    return {
        "flow": change.flow,
        "target": change.target,
        "problem": change.problem,
        "remedy": change.remedy,
        "refused": change.is_refused,
    }


@contextlib.contextmanager
def _compiled_anew() -> Iterator[None]:
    """Keep no compiled form of the definitions.

    Python uses it again if the file has the same size, and was changed in the same second.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
