"""All checks of a pipeline's definitions before Spark runs them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from barnabas.spark.clients import planning_client
from barnabas.spark.pipelines.changes import Change, Definitions, find_changes
from barnabas.spark.pipelines.definition import is_streaming
from barnabas.spark.pipelines.stored_targets import row_types, stored_sink, stored_table
from barnabas.spark.pipelines.table_changes import find_state_changes, find_table_changes
from barnabas.spark.pipelines.topic_changes import find_topic_changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from barnabas.spark.pipelines.checkpoints import Checkpoint
    from barnabas.spark.pipelines.definition import FlowDefinition
    from barnabas.spark.pipelines.project import Project
    from barnabas.spark.pipelines.recording_registry import RecordingRegistry
    from barnabas.spark.pipelines.table_changes import StoredTable

_PARTITIONS = "spark.sql.shuffle.partitions"


class DefinitionChecks:
    """Compares the definitions with their checkpoints, tables and topics.

    Args:
        project: the project.
        session: the session with which the definitions were registered.
        registry: the registered definitions.
        settings: settings with which the user started Spark.
    """

    def __init__(
        self,
        project: Project,
        session: SparkSession,
        registry: RecordingRegistry,
        settings: Mapping[str, str],
    ) -> None:
        self._project = project
        self._session = session
        self._registry = registry
        default = {_PARTITIONS: str(session.conf.get(_PARTITIONS))}
        known = registry.definitions()
        views = registry.view_plans()
        # Spark's types of the rows of streaming flows, by key of the flow.
        self._types: dict[str, dict[str, Any]] = {
            key: row_types(session, project, plan, views)
            for key, _flow, plan in registry.written()
            if is_streaming(plan.root)
        }
        general = {**default, **settings, **project.configuration}
        self.definitions = Definitions(
            [self._with_columns(flow) for flow in known.flows],
            known.is_partial,
            {key: general | dict(flow.spark_conf) for key, flow, _plan in registry.written()},
        )

    def changes(
        self, checkpoints: Sequence[Checkpoint], noted: Mapping[str, FlowDefinition]
    ) -> Iterator[Change]:
        """Yield all changes.

        Args:
            checkpoints: the checkpoints of all flows.
            noted: by key, the definitions with which the flows ran last.
        """
        yield from find_changes(self.definitions, checkpoints, noted)
        flows = self.definitions.flows
        by_key = {checkpoint.key: checkpoint for checkpoint in checkpoints}
        for flow in flows:
            checkpoint = by_key.get(flow.key)
            if checkpoint is None or not flow.is_streaming:
                continue
            yield from find_table_changes(
                flow, flows, checkpoint, self._stored(flow), self._types.get(flow.key, {})
            )
            if flow.key in noted:
                yield from find_state_changes(flow, flows, noted[flow.key])
        yield from find_topic_changes(self._registry.topic_uses(), checkpoints, planning_client)

    def _with_columns(self, flow: FlowDefinition) -> FlowDefinition:
        types = self._types.get(flow.key, {})
        return replace(flow, columns={name: each.simpleString() for name, each in types.items()})

    def _stored(self, flow: FlowDefinition) -> StoredTable:
        if flow.sink is not None:
            return stored_sink(self._registry.sinks[flow.target])
        return stored_table(self._session, self._project, flow.target)
