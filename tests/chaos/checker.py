"""Checks a history of a topic, and reports each violation by kind.

lost          acknowledged, but not in the log
duplicated    in the log twice
reordered     behind a later record of the same producer
phantom       in the log, but never sent
misplaced     acknowledged with another offset than in the log
two values    an offset with two records: for readers, for producers, or in the log
vanished      read by a consumer, but not in the log
gap           offsets of the log are not dense
unsettled     neither acknowledged nor expired: the history is incomplete
read twice    a reader got an offset again, or an earlier one, without a seek
skipped       a reader skipped a record of the log
unread        committed by the group, but never returned to a member
went back     a committed offset became smaller, or is beyond the end of the log
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chaos.history import ACKNOWLEDGED_SOMEWHERE, NOT_ACKNOWLEDGED, code_of, name_of

if TYPE_CHECKING:
    from chaos.history import Commit, History, PartitionLog, Run, Sends

# Number of findings of each kind that are reported in full.
REPORTED_MAX = 10

KINDS = (
    "lost",
    "duplicated",
    "reordered",
    "phantom",
    "misplaced",
    "two values",
    "vanished",
    "gap",
    "unsettled",
    "read twice",
    "skipped",
    "unread",
    "went back",
)


@dataclass(frozen=True)
class Finding:
    """One violation."""

    kind: str
    partition: int
    text: str
    # Offsets of the partition that show the violation; empty if there are none.
    offsets: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: partition {self.partition}: {self.text}"


@dataclass
class Verdict:
    """Number of violations of each kind, and the first ones in full."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    # Duplicates that a client sent under a new producer epoch. They are not faults of the cluster.
    sent_again: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not self.counts

    def add(self, kind: str, partition: int, text: str, *offsets: int) -> None:
        """Add a violation."""
        assert kind in KINDS
        self.counts[kind] += 1
        if self.counts[kind] <= REPORTED_MAX:
            self.findings.append(Finding(kind, partition, text, offsets))

    def __str__(self) -> str:
        if self.is_clean and self.sent_again:
            return f"no faults, {self.sent_again} records that librdkafka sent under two epochs"
        if self.is_clean:
            return "no faults"
        counts = ", ".join(f"{kind} {count}" for kind, count in self.counts.items())
        return "\n".join([counts, *map(str, self.findings)])


def check(history: History) -> Verdict:
    """Return all violations of a history."""
    verdict = Verdict()
    sends = {(each.producer, each.partition): each for each in history.sends}
    places: dict[int, dict[int, int]] = {}
    for log in history.logs.values():
        places[log.partition] = _check_log(log, sends, verdict)
    for each in history.sends:
        _check_sends(each, history.logs[each.partition], places[each.partition], verdict)
    _check_acknowledged_offsets(history.sends, verdict)
    contents = {
        number: dict(zip(log.offsets, log.codes, strict=True))
        for number, log in history.logs.items()
    }
    for run in history.runs + history.member_runs + history.modern_runs:
        _check_run(run, contents[run.partition], verdict)
    _check_runs_agree(history, contents, verdict)
    for commits, runs in (
        (history.commits, history.member_runs),
        (history.modern_commits, history.modern_runs),
    ):
        _check_commits(commits, contents, verdict)
        _check_group_read_all(history, commits, runs, verdict)
    return verdict


def _check_log(
    log: PartitionLog, all_sends: dict[tuple[int, int], Sends], verdict: Verdict
) -> dict[int, int]:
    """Return the offset of each record by its code: the first, or that of the latest epoch."""
    places: dict[int, int] = {}
    last_number: dict[int, int] = {}
    before = log.start_offset - 1
    for offset, code in zip(log.offsets, log.codes, strict=True):
        if offset == before:
            verdict.add("two values", log.partition, f"offset {offset} is in the log twice", offset)
        elif offset != before + 1:
            verdict.add("gap", log.partition, f"offset {offset} follows {before}", before, offset)
        before = offset
        producer, number = code >> 40, code & (1 << 40) - 1
        sends = all_sends.get((producer, log.partition))
        if code < 0 or sends is None or number >= sends.sent:
            verdict.add(
                "phantom", log.partition, f"{name_of(code)} at {offset} was never sent", offset
            )
            continue
        if code in places:
            if sends.may_start_new_epochs and log.has_new_epoch(places[code], offset):
                verdict.sent_again += 1
                places[code] = offset
                continue
            text = f"{name_of(code)} is at {places[code]} and at {offset}"
            verdict.add("duplicated", log.partition, text, places[code], offset)
            continue
        places[code] = offset
        if number < last_number.get(producer, -1):
            text = f"{name_of(code)} at {offset} comes behind {last_number[producer]}"
            verdict.add("reordered", log.partition, text, offset)
        last_number[producer] = max(number, last_number.get(producer, -1))
    return places


def _check_sends(sends: Sends, log: PartitionLog, places: dict[int, int], verdict: Verdict) -> None:
    for number, offset in enumerate(sends.offsets):
        code = code_of(sends.producer, number)
        if offset == NOT_ACKNOWLEDGED:
            if number not in sends.failed:
                verdict.add("unsettled", sends.partition, name_of(code))
            continue
        if 0 <= offset < log.start_offset:
            continue
        place = places.get(code)
        if place is None:
            verdict.add(
                "lost", sends.partition, f"{name_of(code)}, acknowledged at {offset}", offset
            )
        elif offset not in (place, ACKNOWLEDGED_SOMEWHERE):
            text = f"{name_of(code)} was acknowledged at {offset} and lies at {place}"
            verdict.add("misplaced", sends.partition, text, offset, place)


def _check_acknowledged_offsets(all_sends: list[Sends], verdict: Verdict) -> None:
    """Check that each offset is acknowledged for one record only."""
    given: dict[tuple[int, int], int] = {}
    for sends in all_sends:
        for number, offset in enumerate(sends.offsets):
            if offset < 0:
                continue
            code = code_of(sends.producer, number)
            other = given.setdefault((sends.partition, offset), code)
            if other != code:
                text = f"offset {offset} was acknowledged for {name_of(other)} and {name_of(code)}"
                verdict.add("two values", sends.partition, text, offset)


def _check_run(run: Run, content: dict[int, int], verdict: Verdict) -> None:
    before = None
    for offset in run.offsets:
        if before is not None and offset <= before:
            text = f"{run.reader} got {offset} behind {before}"
            verdict.add("read twice", run.partition, text, before, offset)
        elif before is not None:
            missed = [each for each in range(before + 1, offset) if each in content]
            if missed:
                text = f"{run.reader} went from {before} to {offset}"
                verdict.add("skipped", run.partition, text, before, offset)
        before = offset


def _check_runs_agree(
    history: History, contents: dict[int, dict[int, int]], verdict: Verdict
) -> None:
    seen: dict[int, dict[int, int]] = {number: {} for number in contents}
    for run in history.runs + history.member_runs + history.modern_runs:
        partition = run.partition
        content, shown = contents[partition], seen[partition]
        start = history.logs[partition].start_offset
        for offset, code in zip(run.offsets, run.codes, strict=True):
            kept = content.get(offset)
            other = shown.setdefault(offset, code)
            if other == code and kept is not None:
                other = kept
            if other != code:
                text = (
                    f"{run.reader} got {name_of(code)} at {offset}, {name_of(other)} is there too"
                )
                verdict.add("two values", partition, text, offset)
            if kept is None and offset >= start:
                text = f"{run.reader} got {name_of(code)} at {offset}, where the log has nothing"
                verdict.add("vanished", partition, text, offset)


def _check_commits(
    commits: list[Commit], contents: dict[int, dict[int, int]], verdict: Verdict
) -> None:
    """Check that commits and reads of committed offsets do not go back.

    Only operations that do not overlap in time are compared.
    """
    ends = {number: max(content, default=-1) + 1 for number, content in contents.items()}
    by_partition: dict[int, list[Commit]] = {}
    for commit in commits:
        by_partition.setdefault(commit.partition, []).append(commit)
        if commit.offset > ends[commit.partition]:
            text = f"{commit.offset} is committed, the log ends at {ends[commit.partition]}"
            verdict.add("went back", commit.partition, text)
    for partition, own in by_partition.items():
        ended = sorted(own, key=lambda each: each.ended)
        highest = 0
        position = 0
        for commit in sorted(own, key=lambda each: each.started):
            while position < len(ended) and ended[position].ended <= commit.started:
                highest = max(highest, ended[position].offset)
                position += 1
            if commit.offset < highest:
                verb = "was found" if commit.was_found else "was committed"
                verdict.add("went back", partition, f"{commit.offset} {verb} after {highest}")


def _check_group_read_all(
    history: History, commits: list[Commit], runs: list[Run], verdict: Verdict
) -> None:
    """Check that each record below the group's offset was returned to a member."""
    committed: dict[int, int] = {}
    for commit in commits:
        committed[commit.partition] = max(commit.offset, committed.get(commit.partition, 0))
    for partition, end in committed.items():
        read: set[int] = set()
        for run in runs:
            if run.partition == partition:
                read.update(run.offsets)
        for offset in history.logs[partition].offsets:
            if offset < end and offset not in read:
                verdict.add("unread", partition, f"offset {offset}, committed up to {end}", offset)
