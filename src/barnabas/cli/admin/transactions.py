"""The commands of `barnabas transactions`, as in Kafka's kafka-transactions tool (KIP-664).

A transaction hangs if it is older than the maximum timeout and no coordinator has it in progress in
its partition. The leader of the partition knows the producers with open transactions.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.admin.held_back import IN_PROGRESS, NO_TIMEOUT_MS
from barnabas.cli.common.named_topics import partitions_of, topic_arguments
from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    connected,
    echo_json,
    problem,
    require_api,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import bad, echo_table, good, header_option, warn
from barnabas.cli.common.terminal import confirm, yes_option
from barnabas.cli.common.units import duration_ms, utc_text
from barnabas.client.errors import ClientError
from barnabas.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.admin.partitions import ActiveProducer
    from barnabas.client.admin.transactions import AbortableTransaction, TransactionDescription
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

EXAMPLES = """\b
Examples:
  barnabas transactions list --state Ongoing
  barnabas transactions describe orders-writer-1
  barnabas transactions producers orders:0
  barnabas transactions find-hanging
  barnabas transactions abort orders:0 --start-offset 4711
"""
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
_DONE = {"Empty", "CompleteCommit", "CompleteAbort"}


@click.group(epilog=EXAMPLES)
def transactions() -> None:
    """List and describe transactions, find and abort hanging ones."""


@transactions.command(
    "list",
    epilog="\b\nExamples:\n  barnabas transactions list\n"
    "  barnabas transactions list --state Ongoing --longer-than 15m\n",
)
@click.argument("pattern", required=False)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES),
    help="Only transactions in this state.",
)
@click.option(
    "--producer-id",
    "producers",
    multiple=True,
    type=int,
    help="Only transactions of this producer.",
)
@click.option(
    "--longer-than",
    metavar="15m",
    help="Only transactions that have been open for longer than this.",
)
@header_option
@client_options
def list_transactions(
    pattern: str | None,
    states: Sequence[str],
    producers: Sequence[int],
    longer_than: str | None,
    options: ClientOptions,
) -> None:
    """List transactional ids; with PATTERN, a regular expression, only the matching ones."""
    duration = -1 if longer_than is None else _duration(longer_than, "--longer-than")
    with connected(options) as client:
        require_api(client, ApiKey.LIST_TRANSACTIONS, "ListTransactions", "a list of transactions")
        found = client.admin.list_transactions(
            producers, states=states, duration_ms=duration, pattern=pattern
        )
    found.sort(key=lambda each: each.transactional_id)
    if options.as_json:
        echo_json(
            [
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "state": each.state,
                }
                for each in found
            ]
        )
        return
    rows = [(each.transactional_id, each.producer_id, _state(each.state)) for each in found]
    echo_table(("transactional id", "producer", "state"), rows)


def _duration(text: str, option: str) -> int:
    found = duration_ms(text)
    if found is None:
        raise click.UsageError(f"{option} {text}: write 90s, 15m, 2h or 7d")
    return found


def _state(name: str) -> object:
    return good(name) if name in _DONE else warn(name)


@transactions.command(
    "describe", epilog="\b\nExamples:\n  barnabas transactions describe orders-writer-1 --json\n"
)
@click.argument("ids", nargs=-1, required=True, metavar="TRANSACTIONAL-ID...")
@header_option
@client_options
def describe_transactions(ids: Sequence[str], options: ClientOptions) -> None:
    """Show the coordinator, producer, state, timeout and partitions of transactions."""
    with connected(options) as client:
        name = "DescribeTransactions"
        require_api(client, ApiKey.DESCRIBE_TRANSACTIONS, name, "a description of transactions")
        found = client.admin.describe_transactions(ids)
    known = {name: each for name, each in found.items() if not isinstance(each, ClientError)}
    errors = {name: each for name, each in found.items() if isinstance(each, ClientError)}
    if options.as_json:
        listed = [_description_json(name, each) for name, each in sorted(known.items())]
        listed += [
            {"transactional_id": name, "error": str(error)} for name, error in errors.items()
        ]
        echo_json(listed)
    elif known:
        columns = (
            "transactional id", "broker", "producer", "epoch", "state", "open for", "partitions",
        )  # fmt: skip
        echo_table(columns, [_description_row(*item) for item in sorted(known.items())])
    for error in errors.values():
        problem(str(error))
    if errors:
        sys.exit(EXIT_FAILED)


def _description_row(name: str, found: TransactionDescription) -> tuple[object, ...]:
    return (
        name,
        found.coordinator_id,
        found.producer_id,
        found.producer_epoch,
        _state(found.state),
        None if found.start_time_ms < 0 else _open_for(found),
        " ".join(map(str, sorted(found.partitions))) or None,
    )


def _open_for(found: TransactionDescription) -> str:
    age = f"{age_ms(found.start_time_ms) / 1000:.0f} s"
    if found.timeout_ms == NO_TIMEOUT_MS:
        return f"{age}, no timeout"
    return f"{age} of {found.timeout_ms / 1000:g} s"


def _description_json(name: str, found: TransactionDescription) -> dict[str, Any]:
    return {
        "transactional_id": name,
        "coordinator": found.coordinator_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "state": found.state,
        "timeout_ms": found.timeout_ms,
        "start_time_ms": None if found.start_time_ms < 0 else found.start_time_ms,
        "partitions": [{"topic": t, "partition": n} for t, n in sorted(found.partitions)],
        "error": None,
    }


def age_ms(timestamp: int) -> int:
    """Return the time since a timestamp of the brokers (ms)."""
    return max(0, int(time.time() * 1000) - timestamp)


@transactions.command(
    "producers", epilog="\b\nExamples:\n  barnabas transactions producers orders:0,1\n"
)
@topic_arguments("specs", "TOPIC[:PARTITION,...]...")
@header_option
@client_options
def show_producers(specs: Sequence[str], options: ClientOptions) -> None:
    """Show the active idempotent and transactional producers of partitions."""
    with connected(options) as client:
        found = client.admin.describe_producers(partitions_of(client, specs))
    rows: list[tuple[object, ...]] = []
    listed = []
    failed = False
    for tp, producers in sorted(found.items()):
        if isinstance(producers, ClientError):
            failed = True
            problem(f"{tp}: {producers}")
            continue
        for each in sorted(producers, key=lambda one: one.producer_id):
            rows.append(_producer_row(tp, each))
            listed.append(_producer_json(tp, each))
    if options.as_json:
        echo_json(listed)
    else:
        columns = ("partition", "producer", "epoch", "sequence", "last wrote", "transaction from")
        echo_table(columns, rows)
    if failed:
        sys.exit(EXIT_FAILED)


def _producer_row(tp: TopicPartition, each: ActiveProducer) -> tuple[object, ...]:
    start = each.current_transaction_start_offset
    return (
        str(tp),
        each.producer_id,
        each.producer_epoch,
        each.last_sequence,
        _moment(each.last_timestamp),
        None if start < 0 else warn(start),
    )


def _moment(timestamp: int) -> str | None:
    if timestamp < 0:
        return None
    return utc_text(timestamp, "seconds")


def _producer_json(tp: TopicPartition, each: ActiveProducer) -> dict[str, Any]:
    start = each.current_transaction_start_offset
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "last_sequence": each.last_sequence,
        "last_timestamp": each.last_timestamp,
        "coordinator_epoch": each.coordinator_epoch,
        "transaction_start_offset": None if start < 0 else start,
    }


@transactions.command(
    "find-hanging",
    epilog="\b\nExamples:\n  barnabas transactions find-hanging\n"
    "  barnabas transactions find-hanging orders --longer-than 1h\n\n"
    "Exit status 1: a transaction hangs, or a partition's leader does not answer. To "
    "end a hanging transaction: barnabas transactions abort.\n",
)
@topic_arguments("specs", "TOPIC[:PARTITION,...]...", required=False)
@click.option(
    "--longer-than",
    default="15m",
    show_default=True,
    metavar="DURATION",
    help="Minimum age of a hanging transaction; use the brokers' transaction.max.timeout.ms.",
)
@header_option
@client_options
def find_hanging_transactions(
    specs: Sequence[str], longer_than: str, options: ClientOptions
) -> None:
    """Find transactions that are open in a partition, although no coordinator will end them."""
    limit_ms = _duration(longer_than, "--longer-than")
    with connected(options) as client:
        wanted = partitions_of(client, specs or client.topics(internal=True))
        found, failed = open_transactions(client, wanted)
        old = [each for each in found if age_ms(each.producer.last_timestamp) > limit_ms]
        if old:
            purpose = "the search for hanging transactions"
            require_api(client, ApiKey.LIST_TRANSACTIONS, "ListTransactions", purpose)
        hanging = find_hanging(client, old)
    if options.as_json:
        listed = [
            {**_producer_json(each.partition, each.producer), "transactional_id": name}
            for each in hanging
            for name in (each.transactional_id,)
        ]
        echo_json(listed)
    elif hanging:
        columns = ("partition", "start", "producer", "epoch", "no write for", "transactional id")
        echo_table(columns, [_hanging_row(each) for each in hanging])
    else:
        among = f"{len(found)} open, {len(old)} for longer than {longer_than}"
        echo(f"no transaction hangs ({among}, in {len(wanted)} partitions)", err=True)
    for tp, error in failed.items():
        problem(f"{tp}: {error}")
    if hanging or failed:
        sys.exit(EXIT_FAILED)


def _hanging_row(each: OpenTransaction) -> tuple[object, ...]:
    producer = each.producer
    return (
        str(each.partition),
        producer.current_transaction_start_offset,
        producer.producer_id,
        producer.producer_epoch,
        bad(f"{age_ms(producer.last_timestamp) / 1000:.0f} s"),
        each.transactional_id,
    )


@transactions.command(
    "abort",
    epilog="\b\nExamples:\n  barnabas transactions abort orders:0 --start-offset 4711 --yes\n\n"
    "The command writes the marker to the partition's leader without the coordinator. "
    "Use it only for a transaction that find-hanging shows. If the producer is known "
    "to be dead: barnabas transactions terminate.\n",
)
@click.argument("spec", metavar="TOPIC:PARTITION")
@click.option(
    "--start-offset",
    type=click.IntRange(0),
    required=True,
    metavar="N",
    help="First offset of the open transaction, as find-hanging and producers show it.",
)
@yes_option
@client_options
def abort_transaction(spec: str, start_offset: int, options: ClientOptions) -> None:
    """Abort a hanging transaction in one partition. Asks for confirmation on a terminal."""
    with connected(options) as client:
        (tp, *others) = partitions_of(client, [spec])
        if others:
            raise click.UsageError(f"{spec}: write TOPIC:PARTITION with one partition")
        given = abortable(client, tp, start_offset)
        require_api(
            client, ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", "the abort of a transaction"
        )
        confirm(f"Abort the transaction of producer {given.producer_id} in {tp}?")
        client.admin.abort_transaction(given)
    if options.as_json:
        echo_json(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "aborted_producer_id": given.producer_id,
                "transaction_start_offset": start_offset,
            }
        )
    else:
        echo(f"aborted the transaction of producer {given.producer_id} in {tp}")


def abortable(client: Client, tp: TopicPartition, start_offset: int) -> AbortableTransaction:
    """Return the open transaction of a partition that begins at an offset.

    Raises:
        ClientError: There is no such transaction, or the leader does not answer.
    """
    from barnabas.client.admin.transactions import AbortableTransaction

    found, failed = open_transactions(client, [tp])
    for error in failed.values():
        raise error
    by_start = {each.producer.current_transaction_start_offset: each.producer for each in found}
    producer = by_start.get(start_offset)
    if producer is None:
        starts = ", ".join(map(str, by_start))
        there = f"open transactions begin at {starts}" if starts else "there is no open transaction"
        raise ClientError(
            f"{tp} has no open transaction that begins at offset {start_offset}: {there}"
        )
    return AbortableTransaction(
        tp, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch
    )


@transactions.command(
    "terminate", epilog="\b\nExamples:\n  barnabas transactions terminate orders-writer-1 --yes\n"
)
@click.argument("name", metavar="TRANSACTIONAL-ID")
@yes_option
@client_options
def terminate_transaction(name: str, options: ClientOptions) -> None:
    """Fence the producer of a transactional id, and abort its transaction. Asks first."""
    with connected(options) as client:
        purpose = "the end of a transaction"
        require_api(client, ApiKey.DESCRIBE_TRANSACTIONS, "DescribeTransactions", purpose)
        known = client.admin.describe_transactions([name])[name]
        if isinstance(known, ClientError):
            # InitProducerId for an unknown id would create it.
            raise known
        confirm(f"Fence the producer of {name}?")
        client.admin.terminate_transaction(name)
    if options.as_json:
        echo_json({"terminated": name})
    else:
        echo(f"terminated {name}")


class OpenTransaction(NamedTuple):
    """One producer's open transaction in one partition."""

    partition: TopicPartition
    producer: ActiveProducer
    # None if no coordinator knows a transactional id for the producer.
    transactional_id: str | None = None


def open_transactions(
    client: Client, partitions: Sequence[TopicPartition]
) -> tuple[list[OpenTransaction], dict[TopicPartition, ClientError]]:
    """Return the open transactions of partitions, and the errors of partitions by partition."""
    found: list[OpenTransaction] = []
    failed: dict[TopicPartition, ClientError] = {}
    for tp, producers in sorted(client.admin.describe_producers(partitions, once=True).items()):
        if isinstance(producers, ClientError):
            failed[tp] = producers
            continue
        found += [
            OpenTransaction(tp, producer)
            for producer in producers
            if producer.current_transaction_start_offset >= 0
        ]
    return found, failed


def find_hanging(client: Client, candidates: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Return the open transactions that no coordinator has in progress in their partition."""
    if not candidates:
        return []
    wanted = sorted({each.producer.producer_id for each in candidates})
    ids = {
        listing.producer_id: listing.transactional_id
        for listing in client.admin.list_transactions(wanted)
    }
    described = client.admin.describe_transactions(sorted(set(ids.values()))) if ids else {}
    return [
        each._replace(transactional_id=ids.get(each.producer.producer_id))
        for each in candidates
        if not _is_in_progress(each, ids, described)
    ]


def _is_in_progress(
    each: OpenTransaction,
    ids: Mapping[int, str],
    described: Mapping[str, TransactionDescription | ClientError],
) -> bool:
    name = ids.get(each.producer.producer_id)
    if name is None:
        return False
    found = described[name]
    if isinstance(found, ClientError):
        # The coordinator does not answer, so assume that the transaction is in progress.
        return True
    return (
        found.state in IN_PROGRESS
        and found.producer_id == each.producer.producer_id
        and each.partition in found.partitions
    )
