"""Groups of every kind: state, members, offsets, lag in records and seconds, assignments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.routing import Route

from barnabas.cli.admin.group_lag import group_progress
from barnabas.cli.load.lag_age import LagAges
from barnabas.cli.why.reasons import duration
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.admin.share_groups import ShareRecordState
from barnabas.client.errors import ClientError
from barnabas.console.access.users import Role
from barnabas.console.cluster_history import GROUP
from barnabas.console.console import console_of
from barnabas.console.formats import searched_partition
from barnabas.console.forms import query_fields
from barnabas.console.history.charts import chosen_span
from barnabas.console.navigation import Entry
from barnabas.console.pages.configs import config_tables
from barnabas.console.plans.config_sources import explained_configs
from barnabas.console.plans.streams_picture import draw_topology
from barnabas.console.tables import Column, tabulate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.cli.admin.group_lag import GroupProgress, PartitionProgress
    from barnabas.cli.load.rates import GroupSample
    from barnabas.client.admin.group_descriptions import (
        GroupDescription,
        GroupMember,
        StreamsGroupDescription,
        StreamsMember,
        Subtopology,
    )
    from barnabas.client.admin.groups import GroupListing
    from barnabas.client.admin.share_groups import ShareState
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.console.plans.assignments import Assignment
    from barnabas.console.plans.config_sources import ExplainedConfig
    from barnabas.console.tables import Table

# Share partitions whose stored state the page asks for.
_STATES_MAX = 100
_DEAD_LETTERS = "errors.deadletterqueue.topic.name"


class ListedGroup(NamedTuple):
    """A row of the list; the numbers are those of the last samples."""

    listing: GroupListing
    sample: GroupSample | None
    # Records per second by which the lag grows; None if unknown.
    growth: float | None

    def sampled(self, name: str) -> Any:
        """Return a field of the sample; None without one."""
        return None if self.sample is None else getattr(self.sample, name)


_LISTED: list[Column[ListedGroup]] = [
    Column("group", "Group", lambda each: each.listing.group_id),
    Column("type", "Type", lambda each: each.listing.type, "text"),
    Column("state", "State", lambda each: each.listing.state),
    Column("members", "Members", lambda each: each.sampled("members"), "number"),
    Column("lag", "Lag", lambda each: each.sampled("lag"), "number"),
    Column(
        "seconds",
        "Lag in time",
        lambda each: each.sampled("lag_seconds"),
        numeric=True,
        hint="Age of the oldest record that the group has not committed",
    ),
    Column("growth", "Growth/s", lambda each: each.growth, numeric=True),
]


async def show_groups(request: Request) -> Response:
    """Show all groups."""
    console = console_of(request)
    found = await console.cluster.call(lambda client: client.admin.list_groups())
    history = console.history
    samples = history.latest.groups if history.latest else {}
    growth = history.rates.lag_growth if history.rates else {}
    rows = [
        ListedGroup(each, samples.get(each.group_id), growth.get(each.group_id)) for each in found
    ]
    return console.page(
        request,
        "groups.html",
        table=tabulate(
            request,
            _LISTED,
            rows,
            text=lambda each: f"{each.listing.group_id} {each.listing.type} {each.listing.state}",
            sort="group",
        ),
    )


class ShownOffset(NamedTuple):
    """A row of the offsets of a group."""

    progress: PartitionProgress
    # Age of the oldest record that is not committed (s); None if it is unknown.
    seconds: float | None
    # Stored state of a share partition.
    state: ShareState | None

    # Members that read the partition; several may read one of a share group.
    members: str

    def records(self, *states: ShareRecordState) -> int | None:
        """Return the number of records that are stored with one of the states."""
        if self.state is None:
            return None
        return sum(each.count for each in self.state.batches if each.delivery_state in states)

    @property
    def deliveries(self) -> int | None:
        """The largest number of deliveries of a record; None if no state is stored."""
        counts = [each.delivery_count for each in self.state.batches] if self.state else []
        return max(counts, default=None)


def _offset_columns(offset: str, *more: Column[ShownOffset]) -> list[Column[ShownOffset]]:
    """Return the columns of all kinds of groups, with the label of the offset, and others."""
    return [
        Column("partition", "Partition", lambda each: each.progress.partition),
        Column("offset", offset, lambda each: each.progress.offset, "number"),
        Column("end", "End", lambda each: each.progress.end, "number"),
        Column("lag", "Lag", lambda each: each.progress.lag, "number"),
        Column("seconds", "Lag in time", lambda each: each.seconds, numeric=True),
        *more,
    ]


_OFFSETS = _offset_columns("Committed", Column("member", "Member", lambda each: each.members))
_SHARE_OFFSETS = _offset_columns(
    "Start",
    Column(
        "again",
        "To deliver again",
        lambda each: each.records(ShareRecordState.AVAILABLE),
        "number",
        hint="Delivered before; a member may have them now",
    ),
    Column(
        "acknowledged",
        "Acknowledged",
        lambda each: each.records(ShareRecordState.ACKNOWLEDGED),
        "number",
    ),
    Column(
        "given_up",
        "Given up",
        lambda each: each.records(ShareRecordState.ARCHIVING, ShareRecordState.ARCHIVED),
        "number",
        hint="Rejected, or delivered too often",
    ),
    Column("deliveries", "Most deliveries", lambda each: each.deliveries, "number"),
    Column("member", "Members", lambda each: each.members),
)


async def show_group(request: Request) -> Response:
    """Show a group."""
    console, query = console_of(request), query_fields(request)
    name = query.required("id")
    found = await console.cluster.call(lambda client: _load_group(client, name))
    history = console.history
    span = chosen_span(query.stripped("span"), history.now)
    is_share = found["group"].type == "share"
    assignments = history.assignments.of(name)
    return console.page(
        request,
        "group.html",
        404 if found["is_missing"] else 200,
        name=name,
        lags=await history.points(GROUP + name, span.begin),
        span=span,
        growth=history.rates.lag_growth.get(name) if history.rates else None,
        offsets=tabulate(
            request,
            _SHARE_OFFSETS if is_share else _OFFSETS,
            found["offsets"],
            text=lambda each: f"{searched_partition(each.progress.partition)} {each.members}",
            sort="partition",
        ),
        member_table=_member_table(request, found["group"]),
        assignments=assignments,
        moved=_moved_table(request, assignments, history.latest.at if history.latest else 0.0),
        configs=config_tables(request, found["configs"]),
        **_streams_tables(request, found["streams"]),
        **{key: value for key, value in found.items() if key not in {"offsets", "configs"}},
    )


_MEMBERS: tuple[Column[GroupMember], ...] = (
    Column("member", "Member", lambda row: row.instance_id or row.member_id),
    Column("client", "Client", lambda row: row.client_id, "name"),
    Column("host", "Host", lambda row: row.host, "text"),
    Column("epoch", "Epoch", lambda row: row.epoch if row.epoch >= 0 else None, "number"),
    Column("assigned", "Partitions", lambda row: len(row.assignment), "number"),
    Column("assignment", "Assignment"),
    Column("change", "Change"),
)


def _member_table(request: Request, group: GroupDescription) -> Table[GroupMember]:
    """Return the members as a table. Only members of classic groups can be removed."""
    can_remove = console_of(request).role_of(request) >= Role.OPERATOR and group.type == "classic"
    return tabulate(
        request,
        _MEMBERS if can_remove else _MEMBERS[:-1],
        group.members,
        text=lambda row: f"{row.instance_id or ''} {row.member_id} {row.client_id} {row.host}",
        sort="member",
        prefix="m",
    )


_SUBTOPOLOGIES: tuple[Column[Subtopology], ...] = (
    Column("id", "Subtopology", lambda row: row.id),
    Column("sources", "Source topics", lambda row: len(row.source_topics), style="name"),
    Column(
        "repartitions",
        "Repartition topics read",
        lambda row: len(row.repartition_source_topics),
        style="name",
    ),
    Column(
        "sinks",
        "Repartition topics written",
        lambda row: len(row.repartition_sink_topics),
        style="name",
    ),
    Column("changelogs", "Changelogs", lambda row: len(row.changelog_topics), style="name"),
)
_TASKS: tuple[Column[StreamsMember], ...] = (
    Column("member", "Member", lambda row: row.instance_id or row.member_id, "name"),
    Column("process", "Process", lambda row: row.process_id, "name"),
    Column("client", "Client", lambda row: row.client_id, "name"),
    Column("active", "Active", lambda row: len(row.assignment.active), style="name"),
    Column("standby", "Standby", lambda row: len(row.assignment.standby), style="name"),
    Column("warmup", "Warm-up", lambda row: len(row.assignment.warmup), style="name"),
    Column("epoch", "Epoch", lambda row: row.epoch, numeric=True),
)


def _streams_tables(
    request: Request, streams: StreamsGroupDescription | None
) -> dict[str, Table[Any] | None]:
    """Return the tables of a streams group: parts of its topology, and tasks of its members."""
    if streams is None:
        return {"subtopologies": None, "tasks": None}
    return {
        "subtopologies": tabulate(
            request, _SUBTOPOLOGIES, streams.subtopologies, sort="id", prefix="subtopologies."
        ),
        "tasks": tabulate(
            request,
            _TASKS,
            streams.members,
            text=lambda row: f"{row.instance_id or ''} {row.member_id} {row.process_id}",
            sort="process",
            prefix="tasks.",
        ),
    }


def _load_group(client: Client, name: str) -> dict[str, Any]:
    progress = group_progress(client, [name])[name]
    if isinstance(progress, ClientError):
        raise progress
    group = progress.description
    states, states_problem = _share_states(client, progress)
    configs = _configs(client, group)
    return {
        "group": group,
        "coordinator": progress.coordinator,
        "streams": progress.streams,
        "picture": draw_topology(progress.streams.subtopologies) if progress.streams else None,
        "offsets": _offsets(client, progress, states),
        "topics": sorted({each.partition.topic for each in progress.partitions}),
        "lag": progress.lag,
        "is_missing": group.state == "Dead" and not progress.partitions,
        "states_problem": states_problem,
        "configs": configs,
        "dead_letters": next(
            (each.value for each in configs if each.name == _DEAD_LETTERS and each.value), ""
        ),
    }


def _offsets(
    client: Client, progress: GroupProgress, states: dict[TopicPartition, ShareState]
) -> list[ShownOffset]:
    name = progress.description.group_id
    seconds = LagAges(client).of_partitions(name, progress)
    return [
        ShownOffset(
            each,
            0.0 if each.lag == 0 else seconds.get(each.partition),
            states.get(each.partition),
            reading_members(progress.description, each),
        )
        for each in progress.partitions
    ]


def reading_members(group: GroupDescription, each: PartitionProgress) -> str:
    """Return the members that read a partition; "" for none."""
    if group.type == "share":
        found = [member for member in group.members if each.partition in member.assignment]
    else:
        found = [each.member] if each.member else []
    return ", ".join(member.member_id for member in found)


def _share_states(
    client: Client, progress: GroupProgress
) -> tuple[dict[TopicPartition, ShareState], str]:
    """Return the stored states of share partitions, and why there are none."""
    if progress.description.type != "share":
        return {}, ""
    name = progress.description.group_id
    wanted = [each.partition for each in progress.partitions[:_STATES_MAX]]
    try:
        found = client.admin.describe_share_group_states(name, wanted)
    except ClientError as error:
        return {}, str(error)
    errors = [each for each in found.values() if isinstance(each, ClientError)]
    states = {tp: each for tp, each in found.items() if not isinstance(each, ClientError)}
    return states, str(errors[0]) if errors and not states else ""


def _configs(client: Client, group: GroupDescription) -> list[ExplainedConfig]:
    """Return the configs for the kind of a group; empty if the cluster does not tell them.

    Brokers describe those of all kinds. Classic groups have none.
    """
    resource = ConfigResource(ResourceType.GROUP, group.group_id)
    prefixes = (f"{group.type}.", "errors.") if group.type == "share" else (f"{group.type}.",)
    try:
        found = client.admin.describe_configs([resource], synonyms=True, documentation=True)
    except ClientError:
        return []
    entries = found[resource]
    if isinstance(entries, ClientError):
        return []
    return explained_configs(each for each in entries if each.name.startswith(prefixes))


class _Moved(NamedTuple):
    """A partition whose owner has changed."""

    partition: TopicPartition
    # The owners at the time of each assignment; "" for none.
    owners: list[str]


def _moved_table(request: Request, assignments: Sequence[Assignment], now: float) -> Table[_Moved]:
    """Return the owners by time of the partitions whose owner has changed."""
    columns: list[Column[_Moved]] = [
        Column("partition", "Partition", lambda row: row.partition),
        *(
            Column(f"{index}", f"{duration((now - each.since) * 1000)} ago", _owner_at(index))
            for index, each in enumerate(assignments)
        ),
    ]
    partitions = sorted({tp for each in assignments for tp in each.owners})
    rows = [_Moved(tp, [each.owners.get(tp, "") for each in assignments]) for tp in partitions]
    return tabulate(
        request,
        columns,
        [row for row in rows if len(set(row.owners)) > 1],
        text=lambda row: f"{searched_partition(row.partition)} {' '.join(row.owners)}",
        sort="partition",
        prefix="moved.",
    )


def _owner_at(index: int) -> Callable[[_Moved], str]:
    return lambda row: row.owners[index]


NAVIGATION = [
    Entry("Groups", "Groups", "/groups", ("/group",)),
]
ROUTES = [
    Route("/groups", show_groups),
    Route("/group", show_group),
]
