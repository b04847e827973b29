"""A reason: a statement and its remedy. Here are those that partitions and groups share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cli.admin.held_back import NO_TIMEOUT_MS
from barnabas.cli.common.advice import Advice
from barnabas.cli.common.units import in_largest_unit
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.cli.admin.held_back import HeldBack, Owner
    from barnabas.client.admin.partitions import ActiveProducer
    from barnabas.client.admin.transactions import TransactionDescription


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, in words."""

    # The kind of reason, for programs.
    kind: str
    # "ok": as expected; "note": temporary, or worth knowing; "wrong": does not resolve itself.
    verdict: str
    what: str
    # What to do; empty if nothing is necessary.
    remedy: str = ""


def ok(kind: str, what: str) -> Reason:
    """Return a reason for an expected state."""
    return Reason(kind, "ok", what)


def note(kind: str, what: str, remedy: str = "") -> Reason:
    """Return a reason for a temporary state, or for a fact worth knowing."""
    return Reason(kind, "note", what, remedy)


def wrong(kind: str, what: str, remedy: str) -> Reason:
    """Return a reason that needs an action by the operator."""
    return Reason(kind, "wrong", what, remedy)


def is_healthy(reasons: list[Reason]) -> bool:
    """Return whether no reason has the verdict "wrong"."""
    return all(reason.verdict != "wrong" for reason in reasons)


def duration(elapsed_ms: float) -> str:
    """Return a duration in words: "4 s", "12 min", "3 h", "2 days"."""
    seconds = max(0.0, elapsed_ms) / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    value, unit = in_largest_unit(seconds)
    return f"{value:.0f} {'days' if unit == 'd' else unit}"


def transaction_reasons(held: HeldBack | None) -> list[Reason]:
    """Return the reason for an open transaction, which read_committed consumers wait for."""
    if held is None:
        return []
    stable = held.last_stable_offset
    head = (
        f"read_committed consumers receive no records from {stable} on, "
        f"{held.high_watermark - stable} offsets below the high watermark"
    )
    producer = held.first
    if producer is None:
        return [note("transaction-ends", f"{head}: a transaction is being completed", "look again")]
    more = len(held.producers) - 1
    others = f"; {more} more {'is' if more == 1 else 'are'} open" if more else ""
    if held.is_hanging(producer):
        return [_hanging(held, producer, head, others)]
    owner = held.owners.get(producer.producer_id)
    if owner is None or isinstance(owner.description, ClientError):
        return [
            _unknown(held, producer, owner, f"{head}: {_transaction_text(held, producer)}{others}")
        ]
    return [_known(held, producer, owner.transactional_id, owner.description, head, others)]


def _transaction_text(held: HeldBack, producer: ActiveProducer) -> str:
    """Return text about the transaction as the partition's leader knows it."""
    age_ms = held.now_ms - producer.last_timestamp
    wrote = f"wrote last {duration(age_ms)} ago" if producer.last_timestamp >= 0 else "has written"
    return (
        f"{_producer_text(producer)} has had a transaction open since offset "
        f"{producer.current_transaction_start_offset} and {wrote}"
    )


def _producer_text(producer: ActiveProducer) -> str:
    return f"producer id {producer.producer_id} epoch {producer.producer_epoch}"


def _hanging(held: HeldBack, producer: ActiveProducer, head: str, others: str) -> Reason:
    owner = held.owners.get(producer.producer_id)
    state_text = "no coordinator knows it"
    if owner is not None and not isinstance(owner.description, ClientError):
        found = owner.description
        state_text = (
            f"its coordinator, broker {found.coordinator_id}, does not have it open: transactional "
            f"id {owner.transactional_id} is {found.state}"
        )
    abort = Advice.ABORT_TRANSACTION.text(
        topic=held.partition.topic,
        partition=held.partition.partition,
        offset=producer.current_transaction_start_offset,
    )
    return wrong(
        "transaction-hangs",
        f"{head}: {_transaction_text(held, producer)}, and {state_text}, so it never ends{others}",
        f"if its producer will not return, abort it: {abort}",
    )


def _unknown(held: HeldBack, producer: ActiveProducer, owner: Owner | None, what: str) -> Reason:
    error = held.error if owner is None else owner.description
    name = "" if owner is None else f" of transactional id {owner.transactional_id}"
    return note(
        "transaction-open",
        f"{what}; the coordinator{name} does not answer: {error}",
        "repeat this command when the coordinator answers: only the coordinator knows "
        f"whether the transaction of producer id {producer.producer_id} will end",
    )


def _known(
    held: HeldBack,
    producer: ActiveProducer,
    name: str,
    found: TransactionDescription,
    head: str,
    others: str,
) -> Reason:
    has_timeout = found.timeout_ms != NO_TIMEOUT_MS
    limit = f"of its timeout of {duration(found.timeout_ms)}" if has_timeout else "without timeout"
    age = f"{duration(held.now_ms - found.start_time_ms)} {limit}"
    what = (
        f"{head}: transactional id {name} ({found.state} at its coordinator, broker "
        f"{found.coordinator_id}, for {age}): {_transaction_text(held, producer)}{others}"
    )
    if found.state != "Ongoing":
        return note(
            "transaction-ends",
            what,
            f"its result is decided, and broker {found.coordinator_id} is writing the "
            "markers; if this takes long, read the log of that broker",
        )
    waits = (
        "its producer commits or aborts it, or the coordinator aborts it after its timeout"
        if has_timeout
        else "it uses two-phase commit: only its producer, or the next producer with its "
        "id, ends it"
    )
    return note(
        "transaction-open",
        what,
        f"{waits}; if its producer is dead, abort it: "
        f"{Advice.TERMINATE_TRANSACTION.text(transactional_id=name)}",
    )


def missing_topics(topics: Iterable[str]) -> list[Reason]:
    """Return a reason for each of these topics."""
    return [
        wrong(
            "topic-missing",
            f"a member subscribes to {topic}, but this topic does not exist",
            f"`{Advice.CREATE_TOPIC.text(topic=topic)}`, or check the name",
        )
        for topic in sorted(topics)
    ]
