"""Checks the guarantees of consumer groups (KIP-848) in a history of its members.

`storms.checker` checks processed and committed records. The additional violations are:

owned twice         a member gets a partition while another one owns it and its session lasts
expelled            a member loses its partitions although it has sent heartbeats in time
unassigned          long after the last fault, a partition has no owner or two, or a member has too
                    few partitions
stale commit        an offset is committed with the epoch of an earlier assignment
commit after leave  an offset is committed by a member that has left or was removed
zombie served       a heartbeat is served for a member that has left or was removed
doubled instance    a second member joins with the instance id of a live one
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from chaos.verdict import Verdict
from storms.checker import check

if TYPE_CHECKING:
    from chaos.groups.member_history import MemberHistory

# Maximum difference between timers and the clock of the history.
SLACK_NS = 200_000_000
FOREVER_NS = 1 << 62

STORM_KINDS = ("unprocessed", "shared", "repeated", "returned", "disordered")
PROBE_KINDS = ("stale commit", "commit after leave", "zombie served", "doubled instance")
KINDS = (*STORM_KINDS, "owned twice", "expelled", "unassigned", *PROBE_KINDS)


class _Ownership(NamedTuple):
    """A time in which a member considered a partition its own."""

    member: str
    began_ns: int
    ended_ns: int


def check_consumer_group(history: MemberHistory) -> Verdict:
    """Return all violations of a history."""
    verdict = Verdict(KINDS)
    events = [
        each._replace(member=history.instances.get(each.member, each.member))
        for each in sorted(history.events)
    ]
    for problem in check(events, history.ends, history.seen).problems:
        kind, _, text = problem.partition(": ")
        verdict.add(kind, text)
    served = _served(history)
    for partition, owners in _ownerships(history).items():
        _check_owners(history, partition, owners, served, verdict)
    _check_expelled(history, served, verdict)
    for probe in history.probes:
        if not probe.error_code:
            verdict.add(probe.kind, probe.text)
    if history.final:
        _check_final(history, verdict)
    return verdict


def _served(history: MemberHistory) -> dict[str, list[int]]:
    """Return the send times of each member's successful heartbeats, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for each in history.heartbeats:
        if each.is_served:
            found[each.member].append(each.asked_ns)
    return {member: sorted(times) for member, times in found.items()}


def _session_end(
    history: MemberHistory, served: dict[str, list[int]], member: str, at_ns: int
) -> int:
    """Return when the session of a member ends at the earliest, by its heartbeats before."""
    times = served.get(member, [])
    index = bisect_left(times, at_ns)
    return times[index - 1] + history.session_ns if index else 0


def _ownerships(history: MemberHistory) -> dict[int, list[_Ownership]]:
    found: dict[int, list[_Ownership]] = defaultdict(list)
    began: dict[tuple[str, int], int] = {}
    for event in sorted(history.events):
        place = (event.member, event.partition)
        if event.kind == "assigned":
            began[place] = event.at_ns
        elif event.kind in ("revoked", "lost") and place in began:
            found[event.partition].append(_Ownership(event.member, began.pop(place), event.at_ns))
    for (member, partition), at_ns in began.items():
        ended_ns = history.deaths.get(member, FOREVER_NS)
        found[partition].append(_Ownership(member, at_ns, ended_ns))
    return found


def _check_owners(
    history: MemberHistory,
    partition: int,
    owners: list[_Ownership],
    served: dict[str, list[int]],
    verdict: Verdict,
) -> None:
    owners.sort(key=lambda each: each.began_ns)
    for index, later in enumerate(owners):
        for earlier in owners[:index]:
            at_ns = later.began_ns
            if earlier.member == later.member or earlier.ended_ns <= at_ns:
                continue
            is_alive = _session_end(history, served, earlier.member, at_ns) > at_ns + SLACK_NS
            if is_alive and not history.is_isolated(at_ns - history.session_ns, at_ns):
                verdict.add(
                    "owned twice",
                    f"partition {partition}: {later.member} got it at {at_ns / 1e9:.3f}, "
                    f"{earlier.member} has it since {earlier.began_ns / 1e9:.3f}",
                )


def _check_expelled(history: MemberHistory, served: dict[str, list[int]], verdict: Verdict) -> None:
    for event in history.events:
        if event.kind != "lost":
            continue
        ends_ns = _session_end(history, served, event.member, event.at_ns)
        is_early = event.at_ns < ends_ns - SLACK_NS
        if is_early and not history.is_isolated(event.at_ns - history.session_ns, event.at_ns):
            verdict.add(
                "expelled",
                f"partition {event.partition}: {event.member} lost it at "
                f"{event.at_ns / 1e9:.3f}, its session lasts until {ends_ns / 1e9:.3f}",
            )


def _check_final(history: MemberHistory, verdict: Verdict) -> None:
    owners = Counter(partition for each in history.final.values() for partition in each)
    for partition in history.ends:
        if owners[partition] != 1:
            verdict.add("unassigned", f"partition {partition} has {owners[partition]} owners")
    fair = len(history.ends) // len(history.final)
    for member, partitions in history.final.items():
        if len(partitions) < fair:
            verdict.add("unassigned", f"{member} has {len(partitions)} partitions, not {fair}")
