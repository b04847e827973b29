"""The reasons why links and their mirrors wait, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.printable import counted
from barnabas.cli.why.reasons import Reason, duration, note, ok, wrong
from barnabas.replication.links.link_table import MirrorState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.cli.links.mirrors import PartitionLag
    from barnabas.cli.links.status import LinkStatus, MirrorStatus

# Offsets are old after four intervals of their copies, but not before this time (ms).
_OLD_COPY_MS = 60_000.0
_OLD_INTERVALS = 4


def link_reasons(status: LinkStatus) -> list[Reason]:
    """Return why a link does not work, or that it works. Its mirrors have reasons of their own."""
    link = status.link
    describe = Advice.DESCRIBE_LINK.text(link=link.name)
    if link.problem:
        return [
            wrong(
                "link-invalid",
                f"link {link.name} does nothing: {link.problem}",
                f"correct the setting: {describe}",
            )
        ]
    if link.is_reversed:
        return [
            ok(
                "link-reversed",
                f"link {link.name} is reversed: {status.source} mirrors its topics from here",
            )
        ]
    if link.is_paused:
        return [
            note(
                "link-paused",
                f"link {link.name} is paused, so that its mirrors get no records",
                f"go on with it: {Advice.RESUME_LINK.text(link=link.name)}",
            )
        ]
    reasons = _unreachable(status, [lag for each in status.fetched for lag in each.partitions])
    if not status.mirrors:
        reasons.append(
            note(
                "link-empty",
                f"link {link.name} has no mirrors: no topic of the source matches its pattern, or "
                "the brokers of this cluster do not reach the source",
                "read the log of the broker with the lowest id, which looks for new topics",
            )
        )
    reasons += _old_copies(status)
    if reasons:
        return reasons
    behind = "all records of its source" if status.lag == 0 else f"lag {status.lag}"
    mirrors = counted(len(status.fetched), "mirror")
    return [ok("link-well", f"link {link.name} has {mirrors} with {behind}")]


def mirror_reasons(status: LinkStatus, mirror: MirrorStatus) -> list[Reason]:
    """Return that a topic is the mirror of a link, how far it is behind, and why it waits."""
    link, found = status.link.name, mirror.mirror
    if found.state is MirrorState.PROMOTED:
        return [ok("mirror-promoted", f"it was a mirror of link {link}, and is an ordinary topic")]
    if found.state is MirrorState.PROMOTING:
        return [
            note(
                "mirror-promoting",
                f"link {link} promotes it: it is read-only until the open transactions of the "
                "source are aborted",
                "if this takes longer than a minute, check that all its partitions have leaders",
            )
        ]
    if found.state is MirrorState.CONFLICT:
        return [
            note(
                "mirror-conflict",
                f"link {link} does not mirror it: {found.reason}",
                "if the source's records are wanted, delete this topic: then it is mirrored",
            )
        ]
    head = f"it is a read-only mirror of link {link}"
    promote = Advice.PROMOTE_MIRROR.text(link=link, topic=found.topic)
    resume = Advice.RESUME_MIRROR.text(link=link, topic=found.topic)
    follow = Advice.FOLLOW_SOURCE.text(link=link, topic=found.topic)
    if found.state is MirrorState.STOPPED:
        return [
            wrong(
                "mirror-stopped",
                f"{head}, which has stopped: {found.reason}",
                f"make it an ordinary topic as it is: {promote}; or delete the topic, and mirror "
                f"it from its start: {resume}; or, if the source has lost records, remove them "
                f"here too: {follow}",
            )
        ]
    if found.state is MirrorState.PAUSED:
        return [note("mirror-paused", f"{head}, which is paused", f"go on with it: {resume}")]
    if status.state in {"invalid", "paused"}:
        return [note("mirror-of-link", head), *link_reasons(status)]
    if mirror.is_missing:
        return [
            note(
                "mirror-missing",
                f"{head}, but the topic is not created yet",
                "if this takes longer than a minute, read the log of the broker with the lowest id",
            )
        ]
    return _active_reasons(status, mirror, head)


def _active_reasons(status: LinkStatus, mirror: MirrorStatus, head: str) -> list[Reason]:
    unreachable = _unreachable(status, mirror.partitions)
    if mirror.lag is None:
        return [note("mirror-of-link", f"{head}; its lag is not known"), *unreachable]
    if not mirror.lag:
        return [ok("mirror-of-link", f"{head}, with all records of its source"), *unreachable]
    behind_s = mirror.behind_s(status.now_ms)
    since = "" if behind_s is None else f", for {duration(behind_s * 1000)}"
    text = f"{head}, and {counted(mirror.lag, 'record')} behind its source{since}"
    return [note("mirror-behind", text, "" if unreachable else _way_to_speed(status)), *unreachable]


def _way_to_speed(status: LinkStatus) -> str:
    limit = status.link.bytes_per_second
    if limit is None:
        return "look again: it catches up while the lag falls"
    return (
        f"it catches up while the lag falls; the link is limited to {limit} bytes per second of "
        "each broker"
    )


def _unreachable(status: LinkStatus, lags: Sequence[PartitionLag]) -> list[Reason]:
    """Return the reason for those of these partitions to which the source does not respond."""
    silent, unanswered = set(status.silent), set(status.unanswered)
    waiting = [each for each in lags if each in silent or each in unanswered]
    if not waiting:
        return []
    oldest = min(waiting, key=lambda each: each.responded_ms or 0)
    where = f"{oldest.topic}-{oldest.partition}"
    name = status.link.name
    since = f"to {where} since its leader began to fetch"
    if oldest.responded_ms is not None:
        since = f"for {duration(status.now_ms - oldest.responded_ms)}, for example to {where}"
    return [
        wrong(
            "link-unreachable",
            f"the source of link {name}, {status.source}, has not responded {since}",
            "check that the source runs, and that the brokers of this cluster reach its advertised "
            "addresses; their logs have the errors. If the source is lost: "
            f"{Advice.PROMOTE_MIRROR.text(link=name, topic=oldest.topic)}",
        )
    ]


def _old_copies(status: LinkStatus) -> list[Reason]:
    limit_ms = max(_OLD_COPY_MS, float(_OLD_INTERVALS * status.link.group_sync_ms))
    old = [
        each
        for each in status.groups
        if each.copied_ms is not None
        and not each.has_members
        and status.now_ms - each.copied_ms > limit_ms
    ]
    if not old:
        return []
    oldest = min(old, key=lambda each: each.copied_ms or 0)
    age = duration(status.now_ms - (oldest.copied_ms or 0))
    return [
        wrong(
            "groups-not-copied",
            f"link {status.link.name} has not copied the offsets of {counted(len(old), 'group')}, "
            f"for example {oldest.group} for {age}",
            "check that the brokers of this cluster reach the source; their logs have the errors",
        )
    ]
