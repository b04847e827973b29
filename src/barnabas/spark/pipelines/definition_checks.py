"""Registers the definitions of a pipeline with Spark, and checks them before Spark runs them.

The checks compare the definitions with checkpoints (see `changes`), ask Spark's catalog and the
tables of sinks what earlier runs left, and ask the brokers whether the topics exist. Without a
topic, Spark starts a flow three times, and our source fails each time. A topic of a sink that was
deleted would be created again, with new rows only.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException, PySparkException
from pyspark.pipelines.output import Sink, TemporaryView
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry

from barnabas.client.errors import ClientError, UnknownTopicError
from barnabas.spark.errors import OptionError
from barnabas.spark.option_table import absolute_address
from barnabas.spark.pipelines.changes import (
    Change,
    Definitions,
    StoredTable,
    find_changes,
    find_state_changes,
    find_table_changes,
    own_name,
)
from barnabas.spark.pipelines.definition import (
    StreamSource,
    TopicUse,
    define_flow,
    inline_views,
    is_streaming,
    noted_options,
    relations,
    topic_reads,
)
from barnabas.spark.pipelines.expectations import collect_quarantine_flows
from barnabas.spark.pipelines.explained_errors import Place
from barnabas.spark.query_progress import count_written
from barnabas.spark.topics.clients import planning_client
from barnabas.spark.topics.options import parse_sink_options, parse_source_options
from barnabas.spark.topics.planner import Planner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.pipelines.flow import Flow
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.client.facade import Client
    from barnabas.spark.pipelines.checkpoints import Checkpoint
    from barnabas.spark.pipelines.definition import FlowDefinition
    from barnabas.spark.pipelines.project import Project
    from barnabas.spark.topics.options import ClientOptions

    Connect = Callable[[ClientOptions], Client]

_CREATION = "auto.create.topics.enable"
_PARTITIONS = "spark.sql.shuffle.partitions"


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
            rows = functools.partial(getattr, each, "rows")
            self.register_flow(
                dataclasses.replace(flow, name=each.name, target=each.target, func=rows)
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


def find_topic_changes(
    uses: Iterable[TopicUse], checkpoints: Iterable[Checkpoint], connect: Connect
) -> list[Change]:
    """Return what the flows lack: topics, and options that are right.

    Args:
        uses: all reads and writes of topics.
        checkpoints: the checkpoints of all flows.
        connect: returns a client, which others may use too.
    """
    begun = {each.key for each in checkpoints if each.committed_batch >= 0}
    found: list[Change] = []
    for use in uses:
        try:
            check = _sink_changes if use.is_sink else _source_changes
            found += check(use, connect, has_begun=use.key in begun)
        except OptionError as error:
            found.append(_refused(use, str(error), "correct the option"))
        except ClientError as error:
            # Other flows may use other brokers, so they run.
            remedy = "start the brokers, or correct kafka.bootstrap.servers"
            problem = f"its brokers cannot be asked for topics: {error}"
            found.append(Change(use.flow, use.target, problem, remedy, is_refused=False))
    return list(dict.fromkeys(found))


def _refused(use: TopicUse, problem: str, remedy: str) -> Change:
    """Return a change that a reset does not remove."""
    return Change(use.flow, use.target, problem, remedy, is_of_checkpoint=False)


def _source_changes(use: TopicUse, connect: Connect, *, has_begun: bool) -> Iterator[Change]:
    options = parse_source_options(use.options, streaming=True)
    if has_begun and not options.fail_on_data_loss:
        # The user accepts that topics are deleted while they are read.
        return
    try:
        partitions = Planner(connect(options.client), options).partitions()
    except UnknownTopicError as error:
        remedy = "correct the name, or create the topic"
        if has_begun:
            remedy = (
                "correct the name. A topic that is created again has other records at the offsets "
                "of the checkpoint, so its first ones would not be read"
            )
        yield _refused(use, str(error), remedy)
        return
    if not partitions and options.selection.pattern is not None:
        problem = f"no topic has a name as in subscribePattern={options.selection.pattern}"
        remedy = "check the pattern; the flow reads nothing until there is such a topic"
        yield Change(use.flow, use.target, problem, remedy, is_refused=False)


def _sink_changes(use: TopicUse, connect: Connect, *, has_begun: bool) -> Iterator[Change]:
    options = parse_sink_options(use.options)
    if options.topic is None:
        return
    client = connect(options.client)
    error = _missing(client, options.topic)
    if error is None:
        return
    if has_begun:
        yield _refused(
            use,
            f"topic {options.topic} does not exist, and its checkpoint is not at the beginning: a "
            "new topic would get new rows only",
            "correct the name; if the rows that it had are not needed, create it: "
            f"barnabas topics create {options.topic}. Or write all rows to it: "
            f"barnabas pipeline reset {own_name(use.target)}, which writes to all topics of "
            f"{own_name(use.target)} again; a topic that has its rows has them twice then",
        )
    elif not _creates_topics(client):
        yield _refused(use, f"{error}", f"create it: barnabas topics create {options.topic}")


def _missing(client: Client, topic: str) -> UnknownTopicError | None:
    try:
        client.describe_topics([topic])
    except UnknownTopicError as error:
        return error
    return None


def _creates_topics(client: Client) -> bool:
    """Return whether brokers create topics that producers name; true if they do not say."""
    try:
        broker = client.describe_cluster().brokers[0]
        entries = client.describe_broker_configs(broker.id)
    except ClientError:
        return True
    return all(each.value != "false" for each in entries if each.name == _CREATION)


def stored_table(session: SparkSession, project: Project, target: str) -> StoredTable:
    """Return what is there of a table of the pipeline."""
    try:
        columns = {field.name: field.dataType for field in session.table(target).schema.fields}
    except AnalysisException as error:
        if not (error.getCondition() or "").startswith("TABLE_OR_VIEW_NOT_FOUND"):
            raise
        return StoredTable(f"Spark's catalog has no table {target}")
    if not project.table_directory(target).is_dir():
        directory = _directory(session, target)
        if directory is not None and not directory.is_dir():
            return StoredTable(f"the files of {target} in {directory} are gone")
    return StoredTable(columns=columns)


def stored_sink(sink: Sink) -> StoredTable:
    """Return what is there of a sink that is a table of Delta or Iceberg."""
    options = {name.lower(): value for name, value in sink.options.items()}
    if sink.format == "barnabas_delta" and "path" in options:
        from deltalake import DeltaTable

        address = absolute_address(options["path"])
        if not DeltaTable.is_deltatable(address, _with_prefix(options, "storage.")):
            return StoredTable(f"there is no Delta table in {address}")
    table = options.get("table") or options.get("path")
    if sink.format == "barnabas_iceberg" and table:
        from pyiceberg.exceptions import NoSuchTableError

        from barnabas.spark.iceberg.catalog import DEFAULT_CATALOG, TableName, open_table

        catalog = options.get("catalog", DEFAULT_CATALOG)
        try:
            open_table(TableName(table, catalog, _with_prefix(options, "catalog.")))
        except NoSuchTableError:
            return StoredTable(f"the catalog has no Iceberg table {table}")
    return StoredTable()


def row_types(
    session: SparkSession, project: Project, plan: Any, views: Mapping[str, Any]
) -> dict[str, Any]:
    """Return Spark's types of the rows of a flow by column; none if Spark does not know them.

    Spark is asked outside of the pipeline, so tables that no run has made are unknown to it.

    Args:
        session: the session.
        project: the project, which has the tables.
        plan: the plan of the flow.
        views: the plans of the temporary views by name.
    """
    whole = type(plan)()
    whole.CopyFrom(plan)
    _name_tables(whole.root, project, views)
    connect: Any = session
    try:
        schema = connect.client.schema(whole)
    except PySparkException:
        return {}
    return {field.name: field.dataType for field in schema.fields}


def _name_tables(root: Any, project: Project, views: Mapping[str, Any]) -> None:
    """Replace temporary views by their plans, and give tables their whole names."""
    for relation in list(relations(root)):
        if relation.WhichOneof("rel_type") != "read":
            continue
        if relation.read.WhichOneof("read_type") != "named_table":
            continue
        table = relation.read.named_table
        name = table.unparsed_identifier.replace("`", "")
        if name in views:
            others = {key: view for key, view in views.items() if key != name}
            relation.CopyFrom(views[name].root)
            _name_tables(relation, project, others)
        else:
            table.unparsed_identifier = project.qualified(name)


def _with_prefix(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): value
        for name, value in options.items()
        if name.startswith(prefix)
    }


def _directory(session: SparkSession, target: str) -> Path | None:
    """Return the local directory of a table's files; None if they are elsewhere."""
    for row in session.sql(f"DESCRIBE TABLE EXTENDED {target}").collect():
        if row["col_name"] == "Location" and row["data_type"].startswith("file:"):
            return Path(urlsplit(row["data_type"]).path)
    return None


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
