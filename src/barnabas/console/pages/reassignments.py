"""Replicas that move, plans of moves, and partitions with problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.routing import Route

from barnabas.cli.common.printable import counted
from barnabas.cli.common.units import size_bytes
from barnabas.cli.partitions.move_progress import bytes_to_copy, known_sizes
from barnabas.cli.partitions.moving import (
    broker_limits,
    clear_throttles,
    moves_with_progress,
    set_throttles,
    throttled_replicas,
)
from barnabas.cli.partitions.planning import Move, moves
from barnabas.cli.partitions.reassign import current_replicas, read_specs
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.access.users import Role
from barnabas.console.console import console_of
from barnabas.console.formats import searched_partition, size
from barnabas.console.forms import FormError, query_fields
from barnabas.console.navigation import Entry
from barnabas.console.pages.change import Done, Preview, change
from barnabas.console.plans.move_plans import MOVES_MAX, MovePlan, load_plan
from barnabas.console.tables import Column, columns_of, tabulate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.cli.partitions.balancing import BrokerLoad
    from barnabas.client.admin.partitions import Reassignment
    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields

_PAGE = "/reassignments"


async def show_reassignments(request: Request) -> Response:
    """Show the reassignments."""
    console, query = console_of(request), query_fields(request)
    rows = await console.cluster.call(_load_reassignments)
    # Only users that may cancel a move have buttons in the table.
    columns = _ACTIVE if console.role_of(request) >= Role.OPERATOR else _ACTIVE[:-1]
    table = tabulate(
        request,
        columns,
        rows,
        text=lambda row: f"{searched_partition(row.partition)} {_nodes(row.move.replicas)}",
        sort="partition",
    )
    return console.page(request, "reassignments.html", table=table, topic=query.stripped("topic"))


class ActiveMove(NamedTuple):
    """A partition whose replicas move."""

    partition: TopicPartition
    move: Reassignment
    # The part of the log that is copied, from 0 to 1; None if it is unknown.
    progress: float | None


def _load_reassignments(client: Client) -> list[ActiveMove]:
    return [
        ActiveMove(shown.partition, move, progress)
        for shown, move, progress in moves_with_progress(client, ())
    ]


_ACTIVE: tuple[Column[ActiveMove], ...] = (
    Column("partition", "Partition", lambda row: row.partition),
    Column("copied", "Copied", lambda row: row.progress),
    Column("replicas", "Replicas", lambda row: _nodes(row.move.replicas), "text"),
    Column("adding", "Added", lambda row: _nodes(row.move.adding), "text"),
    Column("removing", "Removed", lambda row: _nodes(row.move.removing), "text"),
    Column("change", "Change"),
)


# A broker, with its load before and after a plan.
_LOADS: tuple[Column[tuple[int, tuple[BrokerLoad, BrokerLoad]]], ...] = (
    Column("broker", "Broker", lambda row: row[0]),
    Column("replicas", "Replicas", lambda row: row[1][1].replicas, numeric=True),
    Column("leaders", "Preferred leaders", lambda row: row[1][1].leaders, numeric=True),
    Column("size", "Size", lambda row: row[1][1].size, numeric=True),
)
_MOVES: list[Column[Move]] = [
    Column("partition", "Partition", lambda each: each.partition),
    Column("before", "Replicas now", lambda each: _nodes(each.before), "text"),
    Column("after", "Replicas after", lambda each: _nodes(each.after), "text"),
    Column("adding", "Copied to", lambda each: _nodes(each.adding), "text"),
    Column("removing", "Removed from", lambda each: _nodes(each.removing), "text"),
]


async def show_plan(request: Request) -> Response:
    """Show the choices of a plan and, if they are made, the plan."""
    console, query = console_of(request), query_fields(request)
    is_asked = query.has("plan")

    def load(client: Client) -> MovePlan:
        return load_plan(client, query, is_asked=is_asked)

    async with console.examining:
        found = await console.cluster.call(load)
    return console.page(
        request,
        "move_plan.html",
        404 if found.is_absent else 200,
        query=query,
        found=found,
        is_asked=is_asked,
        table=tabulate(
            request,
            _MOVES,
            found.planned,
            text=lambda each: searched_partition(each.partition),
            sort="partition",
        ),
        loads=tabulate(request, _LOADS, list(found.loads.items()), sort="broker", prefix="loads."),
        specs=" ".join(_spec(each) for each in found.planned[:MOVES_MAX]),
        left_out=max(0, len(found.planned) - MOVES_MAX),
    )


def _spec(move: Move) -> str:
    nodes = ",".join(map(str, move.after))
    return f"{move.partition.topic}:{move.partition.partition}={nodes}"


def _nodes(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, nodes))


def _wanted_moves(client: Client, form: Fields) -> list[Move]:
    """Return the changes that a form asks for.

    Raises:
        FormError: There is no such partition, or nothing changes.
    """
    if form.has("specs"):
        wanted = read_specs(form.text("specs").split())
    else:
        tp = TopicPartition(form.required("topic"), form.number("partition"))
        wanted = {tp: form.integers("brokers")}
    current = current_replicas(client, {tp.topic for tp in wanted})
    for tp in wanted:
        if tp not in current:
            raise FormError(f"{tp.topic} has no partition {tp.partition}", "partition")
    planned = moves(current, wanted)
    if not planned:
        raise FormError("nothing moves: all replicas are on these brokers already", "brokers")
    return planned


def _throttle(form: Fields) -> int | None:
    text = form.stripped("throttle")
    if not text:
        return None
    found = size_bytes(text)
    if not found:
        raise FormError("write bytes per second and broker, such as 50MB", "throttle")
    return found


def preview_moves(client: Client, form: Fields) -> Preview:
    """Return the replicas before and after the moves, and the bytes that are copied."""
    planned, throttle = _wanted_moves(client, form), _throttle(form)
    sizes = known_sizes(client)
    rows: list[tuple[object, ...]] = [
        (
            each.partition,
            each.before,
            each.after,
            len(each.adding) * sizes[each.partition] if each.partition in sizes else None,
        )
        for each in planned
    ]
    total = bytes_to_copy(planned, sizes)
    warning = f"{size(total)} will be copied between brokers, without a limit of the rate."
    if throttle is not None:
        warning = (
            f"{size(total)} will be copied, with at most {size(throttle)} a second to and from "
            f"each broker. The throttles stay until they are removed on the page of reassignments."
        )
    text = f"of {planned[0].partition}" if len(planned) == 1 else f"of {len(planned)} partitions"
    columns = columns_of(
        "Partition",
        ("Replicas now", "ids"),
        ("Replicas after", "ids"),
        ("Copied", "size", "unknown"),
    )
    return Preview(f"Move the replicas {text}?", "Move them", columns, rows, warning)


def start_moves(client: Client, form: Fields) -> Done:
    """Start the moves of a form, with a throttle if one is given."""
    planned, throttle = _wanted_moves(client, form), _throttle(form)
    if throttle is not None:
        set_throttles(client, planned, throttle)
    results = client.admin.alter_reassignments(
        {each.partition: each.after for each in planned}, raise_errors=False
    )
    _raise_failed(results, "move")
    if len(planned) == 1:
        [only] = planned
        return Done(f"began to move {only.partition} to {_nodes(only.after)}", _PAGE)
    return Done(f"began to move {len(planned)} partitions", _PAGE)


def _raise_failed(results: dict[TopicPartition, Any], verb: str) -> None:
    failed = {tp: error for tp, error in results.items() if error is not None}
    if failed:
        tp, error = min(failed.items(), key=lambda pair: pair[0])
        rest = len(results) - len(failed)
        raise FormError(f"{len(failed)} partitions do not {verb} ({rest} do), {tp}: {error}")


def preview_cancellation(client: Client, form: Fields) -> Preview:
    """Return the replicas of partitions now, and after their moves are canceled."""
    moving = _active(client, form)
    found = client.describe_topics({tp.topic for tp in moving}, may_be_new=False)
    rows: list[tuple[object, ...]] = []
    for tp, move in sorted(moving.items()):
        now = found[tp.topic].partitions[tp.partition].replicas
        after = [node for node in move.replicas if node not in move.adding]
        rows.append((tp, now, after))
    what = rows[0][0] if form.has("topic") else f"{len(rows)} partitions"
    columns = columns_of("Partition", ("Replicas now", "ids"), ("Replicas after", "ids"))
    return Preview(f"Cancel the move of {what}?", "Cancel the move", columns, rows)


def cancel_moves(client: Client, form: Fields) -> Done:
    """Cancel one move, or all of them and their throttles."""
    moving = _active(client, form)
    results = client.admin.alter_reassignments(dict.fromkeys(moving), raise_errors=False)
    _raise_failed(results, "stop")
    if form.has("topic"):
        return Done(f"canceled the reassignment of {min(moving)}", _PAGE)
    throttled = throttled_replicas(client).keys() & {tp.topic for tp in moving}
    if throttled:
        clear_throttles(client, throttled)
    return Done(f"canceled {len(moving)} reassignments", _PAGE)


def _active(client: Client, form: Fields) -> dict[TopicPartition, Any]:
    """Return the active reassignment of the named partition, or all of them."""
    if not form.has("topic"):
        found = client.admin.list_reassignments()
        if not found:
            raise FormError("no replicas move")
        return found
    tp = TopicPartition(form.required("topic"), form.number("partition"))
    found = client.admin.list_reassignments([tp])
    if tp not in found:
        raise FormError(f"the replicas of {tp} do not move")
    return found


def _moving(client: Client) -> list[Move]:
    """Return the active moves that copy replicas.

    Raises:
        FormError: There are none.
    """
    found = [
        Move(
            tp,
            tuple(node for node in active.replicas if node not in active.adding),
            tuple(node for node in active.replicas if node not in active.removing),
        )
        for tp, active in sorted(client.admin.list_reassignments().items())
        if active.adding
    ]
    if not found:
        raise FormError("no replicas move, so that there is nothing to limit")
    return found


def preview_limit(client: Client, form: Fields) -> Preview:
    """Return the limit of each broker now, and after the change."""
    planned, throttle = _moving(client), _throttle(form)
    brokers = sorted({node for each in planned for node in (*each.before, *each.adding)})
    rows: list[tuple[object, ...]] = [
        (broker, now, throttle) for broker, now in broker_limits(client, brokers).items()
    ]
    return Preview(
        f"Change the limit of {counted(len(planned), 'move')}?",
        "Change the limit",
        columns_of(
            ("Broker", "id"),
            ("Limit now", "speed", "no limit"),
            ("Limit after", "speed", "no limit"),
        ),
        rows,
        "Throttles stay after the moves, until they are removed on this page."
        if throttle is not None
        else "The replicas are then copied as fast as brokers and network can.",
    )


def change_limit(client: Client, form: Fields) -> Done:
    """Change the limit of the moves that are active, or remove it."""
    planned, throttle = _moving(client), _throttle(form)
    if throttle is None:
        clear_throttles(client, {each.partition.topic for each in planned})
        return Done(f"removed the limit of {counted(len(planned), 'move')}", _PAGE)
    set_throttles(client, planned, throttle)
    text = f"limited {counted(len(planned), 'move')} to {size(throttle)} a second and broker"
    return Done(text, _PAGE)


def preview_throttles(client: Client, _form: Fields) -> Preview:
    """Return the topics whose replicas are throttled."""
    rows: list[tuple[object, ...]] = [(name,) for name in sorted(throttled_replicas(client))]
    moving = client.admin.list_reassignments()
    warning = f"{len(moving)} partitions still move, and then without a limit." if moving else ""
    question = "Remove the throttles of replication from these topics and from all brokers?"
    return Preview(question, "Remove them", columns_of("Topic"), rows, warning)


def remove_throttles(client: Client, _form: Fields) -> Done:
    """Remove the throttles from all topics and brokers."""
    names = throttled_replicas(client)
    clear_throttles(client, names)
    return Done(f"removed the throttles of {len(names)} topics and of all brokers", _PAGE)


class ProblemPartition(NamedTuple):
    """A partition without a leader or a replica in sync, or with another leader than preferred."""

    partition: TopicPartition
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]

    @property
    def problem(self) -> str:
        """The worst problem; "" if there is none."""
        if self.leader < 0:
            return "offline"
        if len(self.isr) < len(self.replicas):
            return "under-replicated"
        return "not-preferred" if self.leader != self.replicas[0] else ""


_PROBLEMS: list[Column[ProblemPartition]] = [
    Column("partition", "Partition", lambda each: each.partition),
    Column("problem", "Problem", lambda each: each.problem),
    Column("leader", "Leader", lambda each: each.leader),
    Column("replicas", "Replicas", lambda each: _nodes(each.replicas), "text"),
    Column("isr", "In sync", lambda each: _nodes(each.isr), "text"),
]


async def show_partitions(request: Request) -> Response:
    """Show the partitions with problems, of all topics."""
    console = console_of(request)
    topics = await console.cluster.call(lambda client: client.describe_topics())
    every = [
        ProblemPartition(
            TopicPartition(name, number), found.leader, tuple(found.replicas), tuple(found.isr)
        )
        for name, topic in topics.items()
        for number, found in sorted(topic.partitions.items())
    ]
    found_problems = [each for each in every if each.problem]
    return console.page(
        request,
        "partitions.html",
        table=tabulate(
            request,
            _PROBLEMS,
            found_problems,
            text=lambda each: (
                f"{searched_partition(each.partition)} {each.problem} leader={each.leader}"
            ),
            sort="problem",
        ),
        count=len(every),
        not_preferred=sum(each.problem == "not-preferred" for each in found_problems),
    )


NAVIGATION = [
    Entry("Topics", "Partition problems", "/partitions"),
    Entry("Cluster", "Reassignments", _PAGE, ("/reassignments/plan",)),
]
ROUTES = [
    Route(_PAGE, show_reassignments),
    Route("/reassignments/plan", show_plan),
    Route("/partitions", show_partitions),
    change("/reassignments/start", start_moves, preview_moves),
    change("/reassignments/cancel", cancel_moves, preview_cancellation),
    change("/reassignments/limit", change_limit, preview_limit),
    change("/reassignments/throttles", remove_throttles, preview_throttles),
]
