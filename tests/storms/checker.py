"""Whether a group kept its promises, by its members' diaries and the offsets seen from outside.

*Unprocessed*: a record that nobody processed. *Shared*: a partition processed by two members in one
generation. *Repeated*: a record processed by a member that got the partition after the record's
commit was acknowledged. *Returned*: a committed offset lower than one acknowledged before it was
asked for, or seen lower from outside. *Disordered*: a member that skips or repeats records of a
partition while it keeps it. Processing again what was not committed is allowed, and counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from storms.history import Event

# Of each kind so many are told in words, the rest only counted.
_TOLD = 5
UNKNOWN_GENERATION = -1


@dataclass
class Verdict:
    """What was found; without `problems` all promises were kept."""

    problems: list[str] = field(default_factory=list)
    processed: int = 0
    # Records processed once more than needed, all of them uncommitted when the next owner began.
    again: int = 0
    commits: int = 0
    # Commits that the coordinator refused, since the member's generation was over.
    refused: int = 0
    generations: int = 0
    # Of the processed: without knowledge of the generation, so not judged for being shared.
    of_no_generation: int = 0


def check(
    events: Sequence[Event], ends: Mapping[int, int], seen: Mapping[int, Sequence[int]]
) -> Verdict:
    """Judge.

    Args:
        events: all members', in order of time.
        ends: end offset of each partition.
        seen: committed offsets of each partition as read from outside, in order of time.
    """
    verdict = Verdict()
    found: dict[str, list[str]] = defaultdict(list)
    processed = [event for event in events if event.kind == "processed"]
    _count(verdict, events, processed)
    _check_coverage(found["unprocessed"], verdict, processed, ends)
    _check_sharing(found["shared"], processed)
    for partition in ends:
        own = [event for event in events if event.partition == partition]
        _check_commits(found["returned"], own)
        _check_repeats(found["repeated"], own)
        _check_order(found["disordered"], own)
        _check_seen(found["returned"], partition, seen.get(partition, ()))
    for kind, problems in found.items():
        verdict.problems += [f"{kind}: {problem}" for problem in problems[:_TOLD]]
        if len(problems) > _TOLD:
            verdict.problems.append(f"{kind}: {len(problems) - _TOLD} more")
    return verdict


def _count(verdict: Verdict, events: Iterable[Event], processed: Iterable[Event]) -> None:
    kinds = [event.kind for event in events]
    verdict.commits = kinds.count("committed")
    verdict.refused = kinds.count("refused")
    known = [event.generation for event in events if event.kind == "assigned"]
    verdict.generations = len({number for number in known if number != UNKNOWN_GENERATION})
    for event in processed:
        verdict.processed += event.end - event.first
        if event.generation == UNKNOWN_GENERATION:
            verdict.of_no_generation += event.end - event.first


def _check_coverage(
    problems: list[str], verdict: Verdict, processed: Iterable[Event], ends: Mapping[int, int]
) -> None:
    ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in processed:
        ranges[event.partition].append((event.first, event.end))
    distinct = 0
    for partition, end in ends.items():
        reached = 0
        for first, last in sorted(ranges[partition]):
            if first > reached:
                problems.append(f"partition {partition}: {reached} to {first - 1}")
            distinct += max(0, last - max(reached, first))
            reached = max(reached, last)
        if reached < end:
            problems.append(f"partition {partition}: {reached} to {end - 1}, the last ones")
        if reached > end:
            problems.append(f"partition {partition}: processed to {reached}, beyond its end {end}")
    verdict.again = verdict.processed - distinct


def _check_sharing(problems: list[str], processed: Iterable[Event]) -> None:
    owners: dict[tuple[int, int], set[str]] = defaultdict(set)
    for event in processed:
        if event.generation != UNKNOWN_GENERATION:
            owners[event.partition, event.generation].add(event.member)
    for (partition, generation), members in owners.items():
        if len(members) > 1:
            names = ", ".join(sorted(members))
            problems.append(f"partition {partition} in generation {generation}: {names}")


def _check_commits(problems: list[str], events: Iterable[Event]) -> None:
    """A commit is not lower than any that was acknowledged before it was asked for."""
    moments: list[tuple[int, int, Event]] = []
    for event in events:
        if event.kind == "committed":
            moments += [(event.began_ns, 1, event), (event.at_ns, 0, event)]
    highest = 0
    for _, begins, event in sorted(moments):
        if not begins:
            highest = max(highest, event.end)
        elif event.end < highest:
            where = f"partition {event.partition}"
            problems.append(f"{where}: {event.member} commits {event.end} after {highest}")


def _check_seen(problems: list[str], partition: int, seen: Sequence[int]) -> None:
    for before, after in pairwise(seen):
        if after < before:
            problems.append(f"partition {partition}: {after} seen after {before}")


def _check_repeats(problems: list[str], events: Iterable[Event]) -> None:
    """A new owner of a partition starts at or after the commits before its assignment."""
    committed = 0
    # The least offset that each member may process, by what was committed when it was assigned.
    begins: dict[str, int] = {}
    for event in events:
        if event.kind == "committed":
            committed = max(committed, event.end)
        elif event.kind == "assigned":
            begins[event.member] = committed
        elif event.kind == "processed" and event.first < begins.get(event.member, 0):
            problems.append(
                f"partition {event.partition}: {event.member} processes {event.first}, though "
                f"{begins[event.member]} was committed when it got the partition"
            )


def _check_order(problems: list[str], events: Iterable[Event]) -> None:
    reached: dict[str, int] = {}
    for event in events:
        if event.kind in ("assigned", "revoked", "lost"):
            reached.pop(event.member, None)
        elif event.kind == "processed":
            expected = reached.get(event.member, event.first)
            if event.first != expected:
                problems.append(
                    f"partition {event.partition}: {event.member} goes from {expected} to "
                    f"{event.first}"
                )
            reached[event.member] = event.end
