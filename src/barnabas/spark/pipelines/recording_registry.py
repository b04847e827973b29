"""Registers the definitions of a pipeline with Spark, and keeps what `changes` compares."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pyspark.pipelines.output import Sink, TemporaryView
from pyspark.pipelines.spark_connect_graph_element_registry import (
    SparkConnectGraphElementRegistry,
)

from barnabas.spark.pipelines.changes import Definitions
from barnabas.spark.pipelines.definition import (
    StreamSource,
    define_flow,
    inline_views,
    noted_options,
)
from barnabas.spark.pipelines.expectations import collect_quarantine_flows

if TYPE_CHECKING:
    from pathlib import Path

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
        self._sinks: dict[str, StreamSource] = {}
        self._views: set[str] = set()
        self._is_partial = False
        # Own names of all datasets and sinks.
        self.outputs: set[str] = set()

    def register_output(self, output: Any) -> None:
        """Register a dataset or sink."""
        if isinstance(output, Sink):
            self._sinks[output.name] = StreamSource(output.format, noted_options(output.options))
        if isinstance(output, TemporaryView):
            self._views.add(output.name)
        self.outputs.add(output.name)
        super().register_output(output)

    def register_flow(self, flow: Any) -> None:
        """Register a flow, and keep the plan that its function returns."""

        def recorded() -> DataFrame:
            frame: DataFrame = flow.func()
            plan: Any = getattr(frame, "_plan")  # noqa: B009 - there is no public way to the plan
            self._plans.append((flow, plan.to_proto(self._connect.client)))
            return frame

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
        super().register_sql(sql_text, file_path)

    def register_auto_cdc_flow(self, flow: Any) -> None:
        """Register a flow of Auto CDC, whose plan Spark makes."""
        self._is_partial = True
        super().register_auto_cdc_flow(flow)

    def definitions(self) -> Definitions:
        """Return the definitions of all registered flows."""
        flows, views = [], {}
        for flow, plan in self._plans:
            sink = self._sinks.get(flow.target)
            target = flow.target if sink is not None else self._project.qualified(flow.target)
            defined = define_flow(target, flow.name.rsplit(".", 1)[-1], plan, sink)
            if flow.target in self._views:
                views[flow.target] = defined
            else:
                flows.append(defined)
        known = {name.rsplit(".", 1)[-1] for name in self.outputs} if self._is_partial else None
        return Definitions([inline_views(each, views, known) for each in flows], self._is_partial)
