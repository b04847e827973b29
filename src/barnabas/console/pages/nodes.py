"""What the nodes of a cluster share: the metadata quorum, log directories, and feature levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.routing import Route

from barnabas.cli.admin.brokers import feature_levels, places_of
from barnabas.cli.admin.quorum import (
    end_offset,
    is_in_danger,
    is_stale,
    leader_time,
    refuse_static,
    voter_directory,
    voter_endpoint,
)
from barnabas.client.admin.cluster import NO_DIRECTORY, UpgradeType
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.access.users import Role
from barnabas.console.console import console_of
from barnabas.console.formats import searched_partition
from barnabas.console.forms import FormError
from barnabas.console.navigation import Entry
from barnabas.console.pages.change import Done, Preview, change
from barnabas.console.tables import Column, columns_of, tabulate
from barnabas.protocol.primitives import uuid_to_string

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.cli.admin.brokers import Place
    from barnabas.client.admin.cluster import QuorumDescription, QuorumReplica
    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields

_QUORUM, _DIRECTORIES, _FEATURES = "/quorum", "/log-dirs", "/features"


class ReplicaRow(NamedTuple):
    """A voter or an observer of the metadata log; times are ages in ms, None if never."""

    node: int
    role: str
    end: int | None
    lag: int | None
    fetched: int | None
    caught_up: int | None
    is_stale: bool
    endpoints: str
    directory: str


REPLICA_COLUMNS: tuple[Column[ReplicaRow], ...] = (
    Column("node", "Node", lambda row: row.node),
    Column("role", "Role", lambda row: row.role),
    Column("end", "End offset", lambda row: row.end, "number"),
    Column("lag", "Lag", lambda row: row.lag, numeric=True),
    Column("fetched", "Last fetch", lambda row: row.fetched),
    Column("caught_up", "Last caught up", lambda row: row.caught_up),
    Column("endpoints", "Listens at", lambda row: row.endpoints, "mono"),
    Column("directory", "Directory id", lambda row: row.directory, "mono", is_shown=False),
)


async def show_quorum(request: Request) -> Response:
    """Show the metadata quorum."""
    console = console_of(request)
    found = await console.cluster.call(lambda client: client.admin.describe_quorum())
    now = leader_time(found)
    behind = [each.node_id for each in found.voters if is_stale(each, found, now)]
    return console.page(
        request,
        "quorum.html",
        quorum=found,
        table=tabulate(request, REPLICA_COLUMNS, replica_rows(found), sort="role"),
        behind=behind,
        is_in_danger=is_in_danger(len(found.voters), len(behind)),
        majority=len(found.voters) // 2 + 1,
        is_static=all(each.directory_id == NO_DIRECTORY for each in found.voters),
    )


def replica_rows(found: QuorumDescription) -> list[ReplicaRow]:
    """Return the voters and observers of a quorum."""
    now = leader_time(found)
    return [_replica(each, found, now) for each in (*found.voters, *found.observers)]


def _replica(replica: QuorumReplica, found: QuorumDescription, now: int) -> ReplicaRow:
    leads = replica.node_id == found.leader_id
    known = replica.log_end_offset >= 0
    endpoints = found.endpoints.get(replica.node_id, ()) if replica in found.voters else ()
    return ReplicaRow(
        replica.node_id,
        "leader" if leads else "voter" if replica in found.voters else "observer",
        replica.log_end_offset if known else None,
        max(0, end_offset(found) - replica.log_end_offset) if known else None,
        _age(replica.last_fetch_timestamp, now, leads=leads),
        _age(replica.last_caught_up_timestamp, now, leads=leads),
        is_stale(replica, found, now),
        " ".join(f"{each.listener}://{each.host}:{each.port}" for each in endpoints),
        uuid_to_string(replica.directory_id),
    )


def _age(timestamp: int, now: int, *, leads: bool) -> int | None:
    return None if leads or timestamp < 0 else max(0, now - timestamp)


_VOTERS = columns_of(("Node", "id"), "Change")


def add_voter(client: Client, form: Fields) -> Done:
    """Make an observer a voter."""
    node, found = form.number("node"), client.admin.describe_quorum()
    refuse_static(found)
    directory = voter_directory(found.observers, node, None, "observer")
    endpoints = [voter_endpoint(text) for text in form.required("endpoints").split()]
    client.admin.add_voter(node, directory, endpoints)
    return Done(f"added voter {node}", _QUORUM)


def preview_add_voter(client: Client, form: Fields) -> Preview:
    """Return the voters before and after."""
    node, found = form.number("node"), client.admin.describe_quorum()
    refuse_static(found)
    voter_directory(found.observers, node, None, "observer")
    for text in form.required("endpoints").split():
        voter_endpoint(text)
    after = len(found.voters) + 1
    rows: list[tuple[object, ...]] = [(each.node_id, "stays") for each in found.voters]
    text = f"{after // 2 + 1} of the {after} voters must then be available."
    rows.append((node, "becomes a voter"))
    return Preview(f"Make node {node} a voter?", "Add it", _VOTERS, rows, text)


def remove_voter(client: Client, form: Fields) -> Done:
    """Remove a voter."""
    node, found = form.number("node"), client.admin.describe_quorum()
    refuse_static(found)
    client.admin.remove_voter(node, voter_directory(found.voters, node, None, "voter"))
    return Done(f"removed voter {node}", _QUORUM)


def preview_remove_voter(client: Client, form: Fields) -> Preview:
    """Return the voters before and after."""
    node, found = form.number("node"), client.admin.describe_quorum()
    refuse_static(found)
    voter_directory(found.voters, node, None, "voter")
    left = len(found.voters) - 1
    if not left:
        raise FormError(f"voter {node} is the only one: a quorum needs a voter")
    rows: list[tuple[object, ...]] = [
        (each.node_id, "removed" if each.node_id == node else "stays") for each in found.voters
    ]
    text = f"{left // 2 + 1} of the {left} voters must then be available."
    return Preview(f"Remove voter {node}?", "Remove it", _VOTERS, rows, text)


class MoveRow(NamedTuple):
    """A replica that moves between two log directories of its broker."""

    broker: int
    partition: TopicPartition
    target: str
    # Bytes that are copied, and bytes of the current replica; None if it is not known.
    copied: int
    total: int | None
    lag: int


_MOVE_COLUMNS: tuple[Column[MoveRow], ...] = (
    Column("partition", "Partition", lambda row: row.partition),
    Column("broker", "Broker", lambda row: row.broker),
    Column("target", "To", lambda row: row.target, "mono"),
    Column("copied", "Copied", lambda row: row.copied, numeric=True),
    Column("lag", "Lag", lambda row: row.lag, "number"),
)


def _state(place: Place) -> str:
    error = place.directory.error
    return "usable" if error is None else str(error)


_PLACE_COLUMNS: tuple[Column[Place], ...] = (
    Column("directory", "Directory", lambda row: row.directory.path, "mono"),
    Column("broker", "Broker", lambda row: row.broker),
    Column("state", "State", _state),
    Column("size", "Size", lambda row: row.size, "size"),
    Column("replicas", "Replicas", lambda row: len(row.replicas) - row.future, "number"),
    Column("topics", "Topics", lambda row: len({tp.topic for tp in row.replicas}), "number"),
    Column("lag", "Largest lag", lambda row: row.lag, "number"),
    Column("moving", "Replicas that move to it", lambda row: row.future, "number"),
    Column("free", "Free", lambda row: row.directory.usable_bytes, numeric=True),
)


async def show_directories(request: Request) -> Response:
    """Show the log directories of all brokers."""
    console = console_of(request)
    found = await console.cluster.call(_load_directories)
    places: list[Place] = found["places"]
    table = tabulate(
        request,
        _PLACE_COLUMNS,
        places,
        text=lambda row: f"{row.broker} {row.directory.path} {_state(row)}",
        sort="broker",
    )
    return console.page(
        request,
        "log_dirs.html",
        table=table,
        state=_state,
        silent=found["silent"],
        moves=tabulate(
            request,
            _MOVE_COLUMNS,
            _moves(places),
            text=lambda row: f"{searched_partition(row.partition)} {row.broker} {row.target}",
            sort="partition",
            prefix="moves.",
        ),
        brokers=sorted({each.broker for each in places}),
        paths=sorted({each.directory.path for each in places}),
    )


def _load_directories(client: Client) -> dict[str, Any]:
    brokers = [each.id for each in client.describe_cluster().brokers]
    found = client.admin.describe_log_dirs(brokers, once=True)
    return {
        "places": list(places_of(found, ())),
        "silent": {node: each for node, each in found.items() if isinstance(each, ClientError)},
    }


def _moves(places: list[Place]) -> list[MoveRow]:
    current = {
        (place.broker, tp): replica.size
        for place in places
        for tp, replica in place.replicas.items()
        if not replica.is_future
    }
    return [
        MoveRow(
            place.broker,
            tp,
            place.directory.path,
            replica.size,
            current.get((place.broker, tp)),
            max(0, replica.offset_lag),
        )
        for place in places
        for tp, replica in place.replicas.items()
        if replica.is_future
    ]


def move_replica(client: Client, form: Fields) -> Done:
    """Move a replica to another log directory of its broker."""
    broker, tp, path = _wanted_move(form)
    client.admin.alter_replica_log_dirs({(broker, tp): path})
    return Done(f"the replica of {tp} on broker {broker} moves to {path}", _DIRECTORIES)


def preview_move_replica(client: Client, form: Fields) -> Preview:
    """Return the replica, its bytes and its directories."""
    broker, tp, path = _wanted_move(form)
    found = client.admin.describe_log_dirs([broker])[broker]
    if isinstance(found, ClientError):
        raise found
    if path not in {each.path for each in found}:
        known = ", ".join(each.path for each in found)
        raise FormError(f"broker {broker} has no directory {path}; it has {known}")
    holder = next((each for each in found if tp in each.replicas), None)
    if holder is None:
        raise FormError(f"broker {broker} has no replica of {tp}")
    row = (tp, broker, holder.path, path, holder.replicas[tp].size)
    columns = columns_of("Partition", ("Broker", "id"), "From", "To", ("Size", "size"))
    return Preview(f"Move the replica of {tp}?", "Move it", columns, [row])


def _wanted_move(form: Fields) -> tuple[int, TopicPartition, str]:
    tp = TopicPartition(form.required("topic"), form.number("partition"))
    return form.number("broker"), tp, form.required("directory")


class FeatureRow(NamedTuple):
    """A feature with its level, and the levels that all brokers support."""

    name: str
    level: int
    lowest: int | None
    highest: int | None

    @property
    def could_rise(self) -> bool:
        """Whether all brokers support a higher level."""
        return self.highest is not None and self.level < self.highest


_FEATURE_COLUMNS: tuple[Column[FeatureRow], ...] = (
    Column("name", "Feature", lambda row: row.name),
    Column("level", "Level", lambda row: row.level, numeric=True),
    Column("lowest", "Supported from", lambda row: row.lowest, "number"),
    Column("highest", "Supported to", lambda row: row.highest, "number"),
)


async def show_features(request: Request) -> Response:
    """Show the levels of features."""
    console = console_of(request)
    supported, finalized = await console.cluster.call(feature_levels)
    rows = [
        FeatureRow(name, finalized.get(name, 0), *supported.get(name, (None, None)))
        for name in sorted({*supported, *finalized})
    ]
    table = tabulate(request, _FEATURE_COLUMNS, rows, text=lambda row: row.name, sort="name")
    return console.page(request, "features.html", table=table, names=[row.name for row in rows])


def set_feature(client: Client, form: Fields) -> Done:
    """Set the level of a feature."""
    name, level = form.required("feature"), form.number("level")
    client.admin.update_features({name: level}, kind=_kind(client, name, level))
    return Done(f"set {name} to {level}", _FEATURES)


def preview_feature(client: Client, form: Fields) -> Preview:
    """Return the level before and after; the controller has validated it."""
    name, level = form.required("feature"), form.number("level")
    kind = _kind(client, name, level)
    client.admin.update_features({name: level}, kind=kind, validate_only=True)
    now = feature_levels(client)[1].get(name, 0)
    text = "Brokers of versions that do not support the level can no longer join."
    if kind is UpgradeType.SAFE_DOWNGRADE:
        text = "The cluster stops using the functions of the higher level."
    columns = columns_of("Feature", ("Now", "number"), ("After", "number"))
    return Preview(f"Set {name} to {level}?", "Set it", columns, [(name, now, level)], text)


def _kind(client: Client, name: str, level: int) -> UpgradeType:
    now = feature_levels(client)[1].get(name, 0)
    if level == now:
        raise FormError(f"the level of {name} is {now} already")
    return UpgradeType.UPGRADE if level > now else UpgradeType.SAFE_DOWNGRADE


NAVIGATION = [
    Entry("Cluster", "Quorum", _QUORUM),
    Entry("Cluster", "Log directories", _DIRECTORIES),
    Entry("Cluster", "Features", _FEATURES),
]
ROUTES = [
    Route(_QUORUM, show_quorum),
    Route(_DIRECTORIES, show_directories),
    Route(_FEATURES, show_features),
    change("/quorum/add", add_voter, preview_add_voter, role=Role.ADMIN),
    change("/quorum/remove", remove_voter, preview_remove_voter, role=Role.ADMIN),
    change("/log-dirs/move", move_replica, preview_move_replica),
    change("/features/set", set_feature, preview_feature, role=Role.ADMIN),
]
