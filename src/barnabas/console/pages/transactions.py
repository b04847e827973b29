"""Transactions: transactional ids, producers of partitions, and transactions that hang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.routing import Route

from barnabas.cli.admin.transactions import (
    STATES,
    abortable,
    age_ms,
    find_hanging,
    open_transactions,
)
from barnabas.cli.common.named_topics import partitions_of
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.access.users import Role
from barnabas.console.console import console_of
from barnabas.console.formats import searched_partition
from barnabas.console.forms import FormError, query_fields
from barnabas.console.navigation import Entry
from barnabas.console.pages.change import Done, Preview, change
from barnabas.console.rendering import link
from barnabas.console.tables import Column, columns_of, tabulate

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.cli.admin.transactions import OpenTransaction
    from barnabas.client.admin.partitions import ActiveProducer
    from barnabas.client.admin.transactions import TransactionDescription
    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields

# Open transactions that coordinators describe: a list has neither their times nor partitions.
_DESCRIBED_MAX = 500
_DEFAULT_AGE, _DEFAULT_AGE_MS = "15m", 15 * 60_000
_PATH = "/transactions"


class TransactionRow(NamedTuple):
    """A transactional id; what only an open transaction has is None without one."""

    name: str
    state: str
    producer_id: int
    described: TransactionDescription | None

    @property
    def open_ms(self) -> int | None:
        """How long the transaction has been open (ms)."""
        found = self.described
        return None if found is None or found.start_time_ms < 0 else age_ms(found.start_time_ms)

    @property
    def coordinator(self) -> int | None:
        """The broker that coordinates the transaction."""
        return None if self.described is None else self.described.coordinator_id

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions of the open transaction."""
        return [] if self.described is None else sorted(self.described.partitions)


_COLUMNS: tuple[Column[TransactionRow], ...] = (
    Column("name", "Transactional id", lambda row: row.name, "name"),
    Column("state", "State", lambda row: row.state),
    Column("open", "Open for", lambda row: row.open_ms),
    Column("coordinator", "Coordinator", lambda row: row.coordinator),
    Column("partitions", "Partitions", lambda row: len(row.partitions) or None),
    Column("producer", "Producer id", lambda row: row.producer_id, "mono"),
)  # fmt: skip


async def show_transactions(request: Request) -> Response:
    """Show the transactional ids, or those in one state."""
    console, query = console_of(request), query_fields(request)
    state = query.stripped("state")
    if state:
        query.one_of("state", STATES)
    rows, problem = await console.cluster.call(lambda client: _load(client, state))
    # Only administrators have buttons in the table.
    is_administrator = console.role_of(request) >= Role.ADMIN
    more: tuple[Column[Any], ...] = (Column("change", "Change"),) if is_administrator else ()
    columns = (*_COLUMNS, *more)
    table = tabulate(
        request, columns, rows, text=lambda row: f"{row.name} {row.producer_id}", sort="-open"
    )
    return console.page(
        request,
        "transactions.html",
        table=table,
        state=state,
        states=STATES,
        problem=problem,
        default_age=_DEFAULT_AGE,
    )


def _load(client: Client, state: str) -> tuple[list[TransactionRow], str]:
    try:
        listed = client.admin.list_transactions(states=[state] if state else ())
        is_open = {"Ongoing", "PrepareCommit", "PrepareAbort"}
        wanted = [each.transactional_id for each in listed if each.state in is_open]
        wanted = wanted[:_DESCRIBED_MAX]
        described = client.admin.describe_transactions(wanted) if wanted else {}
    except ClientError as error:
        return [], str(error)
    rows = []
    for each in listed:
        found = described.get(each.transactional_id)
        known = None if isinstance(found, ClientError) else found
        rows.append(TransactionRow(each.transactional_id, each.state, each.producer_id, known))
    return rows, ""


class ProducerRow(NamedTuple):
    """A producer that the leader of a partition knows."""

    partition: TopicPartition
    producer: ActiveProducer

    @property
    def start(self) -> int | None:
        """The first offset of the open transaction; None without one."""
        start = self.producer.current_transaction_start_offset
        return None if start < 0 else start


_PRODUCER_COLUMNS: tuple[Column[ProducerRow], ...] = (
    Column("partition", "Partition", lambda row: row.partition),
    Column("producer", "Producer id", lambda row: row.producer.producer_id, "mono"),
    Column("epoch", "Epoch", lambda row: row.producer.producer_epoch, "number"),
    Column("sequence", "Last sequence", lambda row: row.producer.last_sequence, "number"),
    Column("wrote", "Last wrote", lambda row: row.producer.last_timestamp, "moment"),
    Column("start", "Open transaction from", lambda row: row.start),
)


async def show_producers(request: Request) -> Response:
    """Show the producers of a topic."""
    console, query = console_of(request), query_fields(request)
    topic = query.stripped("topic")
    rows: list[ProducerRow] = []
    failed: dict[TopicPartition, ClientError] = {}
    if topic:
        rows, failed = await console.cluster.call(lambda client: _load_producers(client, topic))
    table = tabulate(
        request,
        _PRODUCER_COLUMNS,
        rows,
        text=lambda row: f"{searched_partition(row.partition)} {row.producer.producer_id}",
        sort="partition",
    )
    return console.page(request, "producers.html", table=table, topic=topic, failed=failed)


def _load_producers(
    client: Client, topic: str
) -> tuple[list[ProducerRow], dict[TopicPartition, ClientError]]:
    rows: list[ProducerRow] = []
    failed: dict[TopicPartition, ClientError] = {}
    partitions = partitions_of(client, [topic])
    for tp, producers in sorted(client.admin.describe_producers(partitions, once=True).items()):
        if isinstance(producers, ClientError):
            failed[tp] = producers
        else:
            rows += [ProducerRow(tp, each) for each in producers]
    return rows, failed


async def show_hanging(request: Request) -> Response:
    """Search all partitions for transactions that no coordinator will end."""
    console, query = console_of(request), query_fields(request)
    age = query.stripped("age") or _DEFAULT_AGE
    try:
        limit_ms = query.duration("age") if query.stripped("age") else _DEFAULT_AGE_MS
    except FormError as error:
        return console.page(request, "hanging.html", 400, age=age, problem=str(error))
    async with console.examining:
        found = await console.cluster.call(lambda client: _load_hanging(client, limit_ms))
    # Only administrators have buttons in the table.
    is_administrator = console.role_of(request) >= Role.ADMIN
    table = tabulate(
        request,
        _HANGING if is_administrator else _HANGING[:-1],
        found.pop("hanging"),
        text=_hanging_text,
        sort="-quiet",
    )
    return console.page(request, "hanging.html", age=age, problem="", table=table, **found)


def _hanging_text(row: OpenTransaction) -> str:
    partition = searched_partition(row.partition)
    return f"{partition} {row.producer.producer_id} {row.transactional_id or ''}"


def _quiet_ms(row: OpenTransaction) -> int:
    """Return the time since the last write of the producer (ms)."""
    return age_ms(row.producer.last_timestamp)


_HANGING: tuple[Column[OpenTransaction], ...] = (
    Column("partition", "Partition", lambda row: row.partition),
    Column(
        "start",
        "From offset",
        lambda row: row.producer.current_transaction_start_offset,
        numeric=True,
    ),
    Column("producer", "Producer id", lambda row: row.producer.producer_id, "mono"),
    Column("epoch", "Epoch", lambda row: row.producer.producer_epoch, "number"),
    Column("quiet", "No write for", _quiet_ms, numeric=True),
    Column("id", "Transactional id", lambda row: row.transactional_id, "name"),
    Column("change", "Change"),
)


def _load_hanging(client: Client, limit_ms: int) -> dict[str, Any]:
    partitions = partitions_of(client, client.topics(internal=True))
    found, failed = open_transactions(client, partitions)
    old = [each for each in found if age_ms(each.producer.last_timestamp) > limit_ms]
    hanging: list[OpenTransaction] = find_hanging(client, old)
    return {
        "hanging": hanging,
        "failed": failed,
        "open": len(found),
        "old": len(old),
        "partitions": len(partitions),
    }


def abort(client: Client, form: Fields) -> Done:
    """Abort an open transaction in one partition without its coordinator."""
    tp, start = _given(form)
    found = abortable(client, tp, start)
    client.admin.abort_transaction(found)
    done = f"aborted the transaction of producer {found.producer_id} in {tp}"
    return Done(done, link(f"{_PATH}/producers", topic=tp.topic))


def preview_abort(client: Client, form: Fields) -> Preview:
    """Return the transaction that is aborted, and whether it hangs."""
    tp, start = _given(form)
    abortable(client, tp, start)
    found, _ = open_transactions(client, [tp])
    each = next(o for o in found if o.producer.current_transaction_start_offset == start)
    is_hanging = bool(find_hanging(client, [each]))
    quiet = age_ms(each.producer.last_timestamp)
    row = (tp, start, each.producer.producer_id, each.producer.producer_epoch, quiet)
    columns = columns_of(
        "Partition",
        ("From offset", "number"),
        ("Producer id", "id"),
        ("Epoch", "number"),
        ("No write for", "age"),
    )
    text = "Readers of committed records do not see its records."
    if not is_hanging:
        text = (
            "A coordinator has this transaction in progress, so that it does not hang. Its "
            "producer may still commit it; records of it are lost if it is aborted here."
        )
    return Preview("Abort this transaction?", "Abort it", columns, [row], text)


def _given(form: Fields) -> tuple[TopicPartition, int]:
    tp = TopicPartition(form.required("topic"), form.number("partition"))
    return tp, form.number("start")


def fence(client: Client, form: Fields) -> Done:
    """Fence the producer of a transactional id, and abort its transaction."""
    name = form.required("id")
    _described(client, name)
    client.admin.terminate_transaction(name)
    return Done(f"fenced the producer of {name}", _PATH)


def preview_fence(client: Client, form: Fields) -> Preview:
    """Return the transaction that ends."""
    name = form.required("id")
    found = _described(client, name)
    row = (
        name,
        found.state,
        found.producer_id,
        found.producer_epoch,
        tuple(sorted(found.partitions)) or None,
    )
    columns = columns_of(
        "Transactional id",
        "State",
        ("Producer id", "id"),
        ("Epoch", "number"),
        ("Partitions", "ids"),
    )
    text = "An open transaction is aborted. The producer fails with its next request."
    return Preview(f"Fence the producer of {name}?", "Fence it", columns, [row], text)


def _described(client: Client, name: str) -> TransactionDescription:
    # InitProducerId for an unknown id would create it.
    found = client.admin.describe_transactions([name])[name]
    if isinstance(found, ClientError):
        raise found
    return found


NAVIGATION = [
    Entry("Cluster", "Transactions", _PATH, (f"{_PATH}/producers", f"{_PATH}/hanging")),
]
ROUTES = [
    Route(_PATH, show_transactions),
    Route(f"{_PATH}/producers", show_producers),
    Route(f"{_PATH}/hanging", show_hanging),
    change(f"{_PATH}/abort", abort, preview_abort, role=Role.ADMIN),
    change(f"{_PATH}/fence", fence, preview_fence, role=Role.ADMIN),
]
