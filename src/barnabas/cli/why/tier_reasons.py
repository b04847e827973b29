"""Reasons why records are not in the remote tier of a topic, stay on disk, or cannot be read.

The offsets, sizes and configs come from the Kafka protocol. Only the metrics listeners of brokers
name the cause of a wait, and the segments that cannot be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.units import size
from barnabas.cli.why.reasons import Reason, duration, note, ok, wrong
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.errors import ClientError
    from barnabas.client.topic_partition import TopicPartition


class WaitingCopy(NamedTuple):
    """The oldest closed segment without a copy, from the metrics of the leader."""

    # HOST:PORT of the metrics listener.
    address: str
    # A value of CopyCause.
    cause: str
    seconds: float
    base_offset: int | None


class UnreadableSpan(NamedTuple):
    """Offsets of segments that a broker could not read from the store."""

    address: str
    # "missing" or "damaged".
    kind: str
    first: int
    # Inclusive.
    last: int


@dataclass(frozen=True, slots=True)
class TierFacts:
    """The facts about the remote tier of one partition."""

    partition: TopicPartition
    leader: int
    # The configs of the topic. A retention of -1 has no limit.
    copies_disabled: bool = False
    local_retention_bytes: int = -1
    segment_bytes: int = 1 << 30
    # Offsets as reported by the leader; None if unknown.
    log_start: int | None = None
    # First offset on the disk of the leader.
    local_start: int | None = None
    # Last offset in the tier; None if there is none, or if the leader does not know it yet.
    last_copied: int | None = None
    # Bytes of the partition on the disk of the leader.
    local_bytes: int | None = None
    waiting: WaitingCopy | None = None
    unreadable: Sequence[UnreadableSpan] = ()
    # Metrics listener -> problem of the metadata topic: "missing" or "partition-count".
    metadata_problems: Sequence[tuple[str, str]] = ()


class _Cause(NamedTuple):
    """The explanation of a cause."""

    # Whether it ends by itself.
    passes: bool
    text: str
    remedy: str


_OBJECT = "restore it in the store: the log of the leader names it"
_CAUSES = {
    "metadata": _Cause(
        True,
        "the leader has not read all events of the topic __remote_log_metadata yet",
        "wait a moment; if it stays: {why_metadata}",
    ),
    "metadata-write": _Cause(
        False,
        "the leader cannot write events to the topic __remote_log_metadata",
        "{why_metadata} says what is wrong with the topic",
    ),
    "uncommitted": _Cause(
        True, "its records are not committed", "see the reasons about replicas and the ISR"
    ),
    "transaction": _Cause(
        True, "a transaction is open that has records in it or before it", "see the transaction"
    ),
    "copy-lag": _Cause(True, "remote.copy.lag.ms and remote.copy.lag.bytes delay copies", ""),
    "threads": _Cause(
        True,
        "all threads that copy are busy with other partitions",
        "if the lag grows, raise remote.log.manager.copier.thread.pool.size",
    ),
    "quota": _Cause(
        True,
        "copies exceed remote.log.manager.copy.max.bytes.per.second",
        "if the lag grows, raise this limit",
    ),
    "segments-max": _Cause(
        False,
        "the broker knows as many segments as barnabas.remote.segments.max allows",
        "raise barnabas.remote.segments.max or segment.bytes, or shorten retention.ms",
    ),
    "copying": _Cause(True, "it is being copied", ""),
    "metadata-too-large": _Cause(
        False,
        "the store returned more metadata than remote.log.metadata.custom.metadata.max.bytes, so "
        "this leader does not copy any more",
        "raise this limit, and restart the leader",
    ),
    "log": _Cause(
        False,
        "the leader cannot read the segment from its disk",
        "its log names the file: search for `Damage found` and for the partition",
    ),
    "unavailable": _Cause(
        False,
        "the store does not answer, or answers with an error of its own",
        "check that the store runs and its file system is mounted, and that the machine of the "
        "leader reaches it",
    ),
    "refused": _Cause(
        False,
        "the store refuses the broker",
        "check the rights of the broker in the store, its credentials and its clock",
    ),
    "full": _Cause(False, "the store is full", "free space in the store, or raise its limit"),
    "missing": _Cause(False, "an object is missing from the store", _OBJECT),
    "damaged": _Cause(False, "an object of the store is damaged", _OBJECT),
    "unexpected": _Cause(
        False,
        "the store failed with an unexpected error",
        "the log of the leader has the traceback: `Unexpected error of the remote store`",
    ),
}
_PROBLEMS = {
    "missing": (
        "the topic __remote_log_metadata does not exist yet",
        "the broker creates it; if it stays missing, the log of the broker says why",
    ),
    "partition-count": (
        "the topic __remote_log_metadata has not as many partitions as its configuration says",
        "set rlmm.config.remote.log.metadata.topic.num.partitions to their number, and restart it",
    ),
}


def tier_reasons(facts: TierFacts) -> list[Reason]:
    """Return the reasons for the state of a partition's remote tier, the most serious first."""
    reasons = [_unreadable(each) for each in facts.unreadable]
    for address, problem in facts.metadata_problems:
        what, remedy = _PROBLEMS[problem]
        reasons.append(
            wrong("tier-metadata", f"the broker at {address} uses no remote tier: {what}", remedy)
        )
    if _is_unknown(facts):
        reasons.append(
            note(
                "tier-metadata-loading",
                f"broker {facts.leader} has not read the metadata of the remote tier yet: offsets "
                f"{facts.log_start} to {(facts.local_start or 0) - 1} cannot be read until then",
                f"wait a moment; if it stays: {_why_metadata()}",
            )
        )
    if facts.waiting is not None and not facts.copies_disabled:
        reasons.append(_waiting(facts.waiting))
    held = _held_back(facts)
    if held is not None:
        reasons.append(held)
    if not reasons:
        reasons.append(_healthy(facts))
    return reasons


def is_only_in_tier(facts: TierFacts, offset: int) -> bool:
    """Return whether the leader has an offset only in the remote tier."""
    start, local = facts.log_start, facts.local_start
    return start is not None and local is not None and start <= offset < local


def unread_reason(facts: TierFacts, offset: int, error: ClientError | TimeoutError) -> Reason:
    """Return the reason for a failed read of an offset that only the remote tier has."""
    return wrong(
        "tier-unreadable",
        f"offset {offset} is only in the remote tier, and reading it failed: "
        f"{str(error) or 'the leader did not send it in time'}",
        f"the log of broker {facts.leader} names the object and the cause: `Read of the remote "
        "tier failed`",
    )


def _unreadable(span: UnreadableSpan) -> Reason:
    return wrong(
        "tier-unreadable",
        f"reads of offsets {span.first} to {span.last} fail: objects of the remote tier are "
        f"{span.kind}, says the broker at {span.address}",
        "restore them in the store: its log names them (`Read of the remote tier failed`)",
    )


def _is_unknown(facts: TierFacts) -> bool:
    """Return whether the tier has records, and the leader does not know it yet."""
    start, local = facts.log_start, facts.local_start
    return facts.last_copied is None and start is not None and local is not None and start < local


def _waiting(waiting: WaitingCopy) -> Reason:
    cause = _CAUSES.get(waiting.cause)
    at = "" if waiting.base_offset is None else f" at offset {waiting.base_offset}"
    what = f"the segment{at} has waited {duration(1000 * waiting.seconds)} for its copy to the tier"
    if cause is None:
        return note("tier-copy-waits", f"{what}: {waiting.cause}")
    make = note if cause.passes else wrong
    remedy = cause.remedy.format(why_metadata=_why_metadata())
    return make("tier-copy-waits", f"{what}: {cause.text}", remedy)


def _why_metadata() -> str:
    return f"`{Advice.WHY_TOPIC.text(topic=REMOTE_LOG_TOPIC)}`"


def _held_back(facts: TierFacts) -> Reason | None:
    """Return the reason for more local bytes than local retention allows; None if there are none.

    The active segment always stays. Retention also keeps the segment at the limit.
    """
    limit, held = facts.local_retention_bytes, facts.local_bytes
    if limit < 0 or held is None or facts.copies_disabled or _is_unknown(facts):
        return None
    above = held - limit
    if above <= 2 * facts.segment_bytes:
        return None
    what = (
        f"the disk of broker {facts.leader} holds {size(held)}, {size(above)} above "
        "local.retention.bytes"
    )
    if facts.last_copied is not None and facts.last_copied >= (facts.local_start or 0):
        return note(
            "tier-local-retention",
            f"{what}; offsets up to {facts.last_copied} are in the remote tier, and leave the disk "
            "when the broker has checked their copies",
            "wait for log.retention.check.interval.ms; the log of the broker says if the store has "
            "lost copies",
        )
    if facts.waiting is not None:
        remedy = "repair the cause above: segments leave the disk after they were copied"
    else:
        remedy = (
            "segments leave the disk after they were copied: --metrics HOST:PORT with the metrics "
            f"listener of broker {facts.leader} adds the cause to this list"
        )
    return wrong(
        "tier-local-retention",
        f"{what}, because offsets from {facts.local_start} on are not copied to the remote tier",
        remedy,
    )


def _healthy(facts: TierFacts) -> Reason:
    start, local, last = facts.log_start, facts.local_start, facts.last_copied
    if facts.copies_disabled:
        set_by = Advice.DESCRIBE_TOPIC_CONFIGS.text(topic=facts.partition.topic)
        return note(
            "tier-copies-disabled",
            "no more segments are copied to the remote tier: remote.log.copy.disable is true",
            f"`{set_by}` shows the configs of the topic",
        )
    if last is None:
        return ok("tier", "the remote tier has no records yet")
    only = ""
    if start is not None and local is not None and start < local:
        only = f", and offsets {start} to {local - 1} only there"
    return ok("tier", f"the remote tier has offsets up to {last}{only}")
