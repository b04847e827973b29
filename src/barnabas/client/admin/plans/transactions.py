"""Plans for transactions: list, describe, end, fence and abort them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin import transactions
from barnabas.client.admin.call import names_of, raise_failed
from barnabas.client.admin.plans.cluster import broker_ids
from barnabas.client.admin.sender import CoordinatorOf
from barnabas.client.connections.coordinators import TRANSACTION
from barnabas.client.errors import ClientError
from barnabas.client.transactions.state import fenced

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.client.admin.call import Plan
    from barnabas.client.admin.sender import AdminSender
    from barnabas.client.transactions.requests import ProducerIdAndEpoch
    from barnabas.client.transactions.state import OpenTransaction


def list_transactions(
    sender: AdminSender,
    producer_ids: Sequence[int] = (),
    *,
    states: Sequence[str] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> Plan[list[transactions.TransactionListing]]:
    """List transactions of all brokers that respond, in one attempt.

    Args:
        sender: bound by the admin client.
        producer_ids: empty for all.
        states: "Ongoing", "PrepareCommit", ...; empty for all.
        duration_ms: minimum duration of an open transaction in ms; -1 for all.
        pattern: a regular expression that matches the transactional id; None for all.
    """
    nodes = yield from broker_ids(sender)
    yield from sender.refresh()
    wanted = transactions.TransactionFilter(
        tuple(producer_ids), tuple(states), duration_ms, pattern
    )
    call = transactions.list_transactions(wanted)
    found: list[transactions.TransactionListing] = []
    results = yield from sender.send_each(dict.fromkeys(nodes, call), once=True)
    for result in results.values():
        if not isinstance(result, ClientError):
            found += result
    return found


def describe_transactions(
    sender: AdminSender, ids: Iterable[str]
) -> Plan[dict[str, transactions.TransactionDescription | ClientError]]:
    """Describe transactional ids.

    Returns:
        The description by the id's coordinator, or an error, for each id.
    """
    wanted = names_of(ids)
    places = yield from sender.coordinators(wanted, TRANSACTION)
    known = {name: place for name, place in places.items() if isinstance(place, int)}
    return (
        yield from sender.send_to_coordinators(
            wanted,
            lambda part: transactions.describe_transactions(part, known.get(part[0], -1)),
            key_type=TRANSACTION,
        )
    )


def fence_producers(
    sender: AdminSender, ids: Iterable[str], *, raise_errors: bool = True
) -> Plan[dict[str, transactions.FencedProducer | ClientError]]:
    """Fence the producers of transactional ids and abort their open transactions.

    Returns:
        The new producer id and epoch, or an error, for each id.

    Raises:
        AdminResultsError: an id failed; not raised with `raise_errors=False`.
    """
    found: dict[str, transactions.FencedProducer | ClientError] = {}
    for name in names_of(ids):
        call = transactions.fence_producer(name, sender.timeout_ms)
        try:
            found[name] = yield from sender.send(CoordinatorOf(name, TRANSACTION), call)
        except ClientError as error:
            found[name] = error
    if raise_errors:
        raise_failed(found)
    return found


def end_transactions(
    sender: AdminSender,
    given: Iterable[OpenTransaction],
    *,
    committed: bool,
    raise_errors: bool = True,
) -> Plan[dict[str, ProducerIdAndEpoch | ClientError]]:
    """Commit or abort transactions that producers have left with `detach_transaction`.

    The same call may be repeated after an unknown outcome: a transaction that has already ended in
    this way is no error.

    Returns:
        The producer id and epoch after the end, or an error, for each transactional id.

    Raises:
        AdminResultsError: an id failed; not raised with `raise_errors=False`. ProducerFencedError
            is the error of an id that another producer has taken over, or whose transaction the
            coordinator has aborted after its timeout.
    """
    calls = {
        CoordinatorOf(each.transactional_id, TRANSACTION): transactions.end_transaction(
            each, committed=committed
        )
        for each in given
    }
    results = yield from sender.send_to_each(calls)
    found = {
        to.key: fenced(result, to.key) if isinstance(result, ClientError) else result
        for to, result in results.items()
    }
    if raise_errors:
        raise_failed(found)
    return found


def abort_transaction(sender: AdminSender, given: transactions.AbortableTransaction) -> Plan[None]:
    """Abort a hanging transaction of one partition without its coordinator (KIP-664).

    Raises:
        ClientError: the leader refused the abort marker.
    """
    call = transactions.abort_transaction(given)
    results = yield from sender.send_to_leaders([given.partition], lambda _part: call)
    found = results[given.partition]
    if isinstance(found, ClientError):
        raise found


def terminate_transaction(sender: AdminSender, transactional_id: str) -> Plan[None]:
    """Abort the open transaction of a transactional id by fencing its producer.

    Raises:
        ClientError: the producer was not fenced.
    """
    found = (yield from fence_producers(sender, [transactional_id], raise_errors=False))[
        transactional_id
    ]
    if isinstance(found, ClientError):
        raise found
