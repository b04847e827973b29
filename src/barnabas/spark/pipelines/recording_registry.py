"""Registers the definitions of a pipeline with Spark, and keeps what the checks of a run need."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.pipelines.output import Sink, TemporaryView
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry

from barnabas.spark.pipelines.changes import Definitions, short as own_name
from barnabas.spark.pipelines.definition import (
    StreamSource,
    TopicUse,
    define_flow,
    inline_views,
    is_streaming,
    noted_options,
    topic_reads,
)
from barnabas.spark.pipelines.expectations import collect_quarantine_flows
from barnabas.spark.pipelines.explained_errors import Place
from barnabas.spark.query_progress import count_written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.pipelines.flow import Flow
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.spark.pipelines.expectations import QuarantineFlow
    from barnabas.spark.pipelines.project import Project


class RecordingRegistry(SparkConnectGraphElementRegistry):
    """Spark's registry, which also keeps the plans of the flows."""

    def __init__(self, project: Project, session: SparkSession, graph_id: str) -> None:
        super().__init__(session, graph_id)
        self._project = project
        self._connect: Any = session
        self._plans: list[tuple[Flow, Any]] = []
        self._views: set[str] = set()
        # Where Python files define flows, by the flow's own name.
        self._places: dict[str, Place] = {}
        self._sql_files: dict[Path, str] = {}
        self._is_partial = False
        # Own names of all datasets and sinks.
        self.outputs: set[str] = set()
        # Sinks by name, with all options: these may hold secrets.
        self.sinks: dict[str, Sink] = {}

    def register_output(self, output: Any) -> None:
        """Register a dataset or sink."""
        if isinstance(output, Sink):
            self.sinks[output.name] = output
        if isinstance(output, TemporaryView):
            self._views.add(output.name)
        self.outputs.add(output.name)
        super().register_output(output)

    def register_flow(self, flow: Any) -> None:
        """Register a flow, keep the plan that its function returns, and count its rows."""
        location = flow.source_code_location
        self._places[own_name(flow.name)] = Place(
            Path(location.filename), location.line_number or 1
        )

        def recorded() -> DataFrame:
            frame: DataFrame = flow.func()
            plan: Any = getattr(frame, "_plan")  # noqa: B009 - there is no public way to the plan
            proto = plan.to_proto(self._connect.client)
            self._plans.append((flow, proto))
            is_counted = flow.target not in self._views and is_streaming(proto.root)
            return count_written(frame) if is_counted else frame

        with collect_quarantine_flows() as quarantines:
            super().register_flow(dataclasses.replace(flow, func=recorded))
        for each in quarantines:
            self._register_quarantine(each, flow)

    def _register_quarantine(self, given: QuarantineFlow, of: Flow) -> None:
        """Register the flow of the rows that an expectation of another flow removes."""
        self.register_flow(
            dataclasses.replace(of, name=given.name, target=given.target, func=lambda: given.rows)
        )

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        """Register an SQL file, which Spark parses."""
        self._is_partial = True
        self._sql_files[Path(file_path)] = sql_text
        super().register_sql(sql_text, file_path)

    def register_auto_cdc_flow(self, flow: Any) -> None:
        """Register a flow of Auto CDC, whose plan Spark makes."""
        self._is_partial = True
        super().register_auto_cdc_flow(flow)

    def definitions(self) -> Definitions:
        """Return the definitions of all registered flows."""
        flows, views = [], {}
        for flow, plan in self._plans:
            given = self.sinks.get(flow.target)
            sink = StreamSource(given.format, noted_options(given.options)) if given else None
            defined = define_flow(self._target(flow), own_name(flow.name), plan, sink)
            if flow.target in self._views:
                views[flow.target] = defined
            else:
                flows.append(defined)
        known = {name.rsplit(".", 1)[-1] for name in self.outputs} if self._is_partial else None
        return Definitions([inline_views(each, views, known) for each in flows], self._is_partial)

    def written(self) -> Iterator[tuple[str, Flow, Any]]:
        """Yield the flows that are no views: the key, the flow, and its plan."""
        for flow, plan in self._plans:
            if flow.target not in self._views:
                yield f"{self._target(flow)}/{own_name(flow.name)}", flow, plan

    def view_plans(self) -> Mapping[str, Any]:
        """Return the plans of the temporary views by name."""
        return {flow.target: plan for flow, plan in self._plans if flow.target in self._views}

    def topic_uses(self) -> Iterator[TopicUse]:
        """Yield the reads and writes of topics of all flows and views."""
        for flow, plan in self._plans:
            target, name = self._target(flow), own_name(flow.name)
            for options in topic_reads(plan.root):
                yield TopicUse(target, name, options, is_sink=False)
            sink = self.sinks.get(flow.target)
            if sink is not None and sink.format == "barnabas":
                yield TopicUse(target, name, sink.options, is_sink=True)

    def place(self, flow: str) -> Place | None:
        """Return where a flow is defined, by its own name; None if that is unknown."""
        if flow in self._places:
            return self._places[flow]
        for path, text in self._sql_files.items():
            for number, line in enumerate(text.splitlines(), 1):
                if re.search(rf"(?<!\w){re.escape(flow)}(?!\w)", line):
                    return Place(path, number)
        return None

    def _target(self, flow: Flow) -> str:
        return flow.target if flow.target in self.sinks else self._project.qualified(flow.target)
