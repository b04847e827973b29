"""Checks the history of transactional clients. The checker is a pure function of the history.

The checked guarantees of Kafka:

- Atomicity: all records of a transaction become visible to read_committed readers, or none. A
  commit without a response may be either. Partitions may show a transaction at different times,
  because each partition has its own marker, so only the end of the history shows a torn one.
- No record is visible before its producer has requested the commit. Records of an aborted
  transaction are never visible. Within a partition, a reader never skips a record of a
  transaction.
- Write order: Kafka does not order concurrent transactions. Their order may differ between two
  partitions (G0 between concurrent transactions is allowed). Transactions of one transactional id
  are ordered, and so are two transactions if one ended before the other began: in each partition
  all records of the earlier one come first.
- Information flows in that order only (G1c): if a transaction was made from a record of another
  transaction, the source comes first in each partition.
- Offsets that a transaction commits for a group take effect with its records.
- After `init_transactions` has returned, no earlier producer with that id can commit.
- Every transaction ends: none stays open longer than its timeout.

Kinds of findings:

lost               the commit was acknowledged, but no record is visible
torn               some records of a transaction are visible, others never
duplicated         a record is visible twice
reordered          records of a transaction in one partition in another order than sent
foreign            a visible record that no client sent there
aborted read       a record of an aborted transaction was read (G1a)
intermediate read  a record was read before the commit was requested, or a reader got only a part of
                   a transaction's records of a partition (G1b)
wrong order        an ordered pair of transactions has the other order in a partition (G0)
circular flow      a cycle of transactions, each made from the previous one (G1c)
zombie             a transaction of a fenced producer took effect
read twice         a reader got an offset again, or an earlier one, without a seek
skipped            a reader skipped a visible record
vanished           a reader got a record that is not visible at the end
two values         a reader got another record at an offset than the log has
offset ahead       a group's offset is beyond an input record without output, or beyond every
                   transaction that may have committed
offset behind      a group's offset does not cover an input record with output, or an acknowledged
                   transaction
offset went back   a group's offset became smaller
processed twice    two outputs of one input record
unbalanced         the amounts of all visible records do not add up to 0
hanging            a transaction that stays open, or a partition whose last stable offset stays
                   below its high watermark
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from chaos.transactional.history import (
    NO_SOURCE,
    CommittedLog,
    Content,
    Initialization,
    Place,
    ReadRun,
    Result,
    Transaction,
    TransactionHistory,
    index_of,
    name_of,
    name_of_transaction,
    transaction_of,
)
from chaos.verdict import FINDINGS_MAX, Verdict

KINDS = (
    "lost",
    "torn",
    "duplicated",
    "reordered",
    "foreign",
    "aborted read",
    "intermediate read",
    "wrong order",
    "circular flow",
    "zombie",
    "read twice",
    "skipped",
    "vanished",
    "two values",
    "offset ahead",
    "offset behind",
    "offset went back",
    "processed twice",
    "unbalanced",
    "hanging",
)
# States of a transactional id whose transaction has not ended.
UNENDED = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


def check_transactions(history: TransactionHistory) -> Verdict:
    """Return all violations of a history."""
    return _Check(history).run()


class _Check:
    """One run of the checker, with indexes of the history."""

    def __init__(self, history: TransactionHistory) -> None:
        self.history = history
        self.verdict = Verdict(KINDS)
        # By transaction: the offsets of its visible records, by place.
        self.visible: dict[int, dict[Place, list[int]]] = defaultdict(lambda: defaultdict(list))
        self.contents: dict[Place, dict[int, Content]] = {}
        # By transactional id.
        self.initializations: dict[str, list[Initialization]] = defaultdict(list)
        for each in history.initializations:
            self.initializations[each.transactional_id].append(each)

    def run(self) -> Verdict:
        for log in self.history.logs.values():
            self._check_log(log)
        self._check_duplicates()
        for transaction in self.history.transactions.values():
            self._check_transaction(transaction)
        for run in self.history.runs:
            self._check_run(run)
        self._check_session_order()
        self._check_order_in_time()
        self._check_flow()
        self._check_outputs()
        self._check_samples()
        self._check_end()
        return self.verdict

    def _known(self, code: int) -> Transaction | None:
        return None if code < 0 else self.history.transactions.get(transaction_of(code))

    # The visible records.

    def _check_log(self, log: CommittedLog) -> None:
        contents = self.contents[log.place] = {}
        indexes: dict[int, int] = {}
        before = -1
        for offset, content in zip(log.offsets, log.contents, strict=True):
            if offset <= before:
                self.verdict.add("two values", f"{log.place}: offset {offset} follows {before}")
            before = offset
            contents[offset] = content
            transaction = self._known(content.code)
            index = index_of(content.code) if transaction is not None else 0
            if (
                transaction is None
                or index >= len(transaction.places)
                or transaction.places[index] != log.place
                or content.count != len(transaction.places)
            ):
                self.verdict.add("foreign", f"{name_of(content.code)} at {offset} of {log.place}")
                continue
            if index < indexes.get(transaction.number, -1):
                text = f"{name_of(content.code)} at {offset} of {log.place} comes late"
                self.verdict.add("reordered", text)
            indexes[transaction.number] = index
            self.visible[transaction.number][log.place].append(offset)

    def _check_duplicates(self) -> None:
        seen: dict[int, tuple[Place, int]] = {}
        for place, contents in self.contents.items():
            for offset, content in contents.items():
                first = seen.setdefault(content.code, (place, offset))
                if first != (place, offset) and content.code >= 0:
                    text = f"{name_of(content.code)} is at {first} and at {(place, offset)}"
                    self.verdict.add("duplicated", text)

    def _check_transaction(self, transaction: Transaction) -> None:
        places = self.visible.get(transaction.number, {})
        shown = sum(len(offsets) for offsets in places.values())
        name = name_of_transaction(transaction.number)
        what = f"{name} of {transaction.transactional_id} ({transaction.result.value})"
        found = f"{shown} of {len(transaction.places)} records are visible: {dict(places)}"
        if transaction.must_be_invisible:
            if shown:
                self.verdict.add("aborted read", f"{what}: {found}")
        elif 0 < shown < len(transaction.places):
            self.verdict.add("torn", f"{what}: {found}")
        elif not shown and transaction.places and transaction.result is Result.COMMITTED:
            self.verdict.add("lost", f"{what} to {transaction.places}")
        fence = self._fence_of(transaction)
        if fence is not None and (shown or transaction.result is Result.COMMITTED):
            text = f"{what} was committed after instance {fence} was initialized: {found}"
            self.verdict.add("zombie", text)

    def _fence_of(self, transaction: Transaction) -> int | None:
        """Return the later instance that was initialized before the commit was requested.

        If two calls overlap, either may be the later one.
        """
        if transaction.commit_asked is None:
            return None
        all_of_id = self.initializations[transaction.transactional_id]
        own = [each.ended for each in all_of_id if each.instance == transaction.instance]
        for each in all_of_id:
            if own and max(own) < each.asked and each.ended < transaction.commit_asked:
                return each.instance
        return None

    # What readers got.

    def _check_run(self, run: ReadRun) -> None:
        contents = self.contents[run.place]
        log_offsets = self.history.logs[run.place].offsets
        seen = {transaction_of(code) for code in run.codes}
        before = None
        for offset, code, time in zip(run.offsets, run.codes, run.times, strict=True):
            self._check_read(run, offset, code, time)
            if before is not None and offset <= before:
                self.verdict.add(
                    "read twice", f"{run.reader}: {run.place}: {offset} after {before}"
                )
            elif before is not None:
                passed = log_offsets[
                    bisect_right(log_offsets, before) : bisect_left(log_offsets, offset)
                ]
                for missed in passed:
                    self._add_missed(run, missed, contents[missed].code, seen)
            before = offset

    def _add_missed(self, run: ReadRun, offset: int, code: int, seen: set[int]) -> None:
        kind = "intermediate read" if transaction_of(code) in seen else "skipped"
        self.verdict.add(kind, f"{run.reader} passed {name_of(code)} at {offset} of {run.place}")

    def _check_read(self, run: ReadRun, offset: int, code: int, time: float) -> None:
        transaction = self._known(code)
        text = f"{run.reader} got {name_of(code)} at {offset} of {run.place}"
        kept = self.contents[run.place].get(offset)
        if transaction is None:
            self.verdict.add("foreign", text)
        elif transaction.must_be_invisible:
            self.verdict.add("aborted read", text)
        elif transaction.commit_asked is not None and time < transaction.commit_asked:
            early = transaction.commit_asked - time
            self.verdict.add("intermediate read", f"{text}, {early:.3f} s before the commit")
        elif kept is None:
            self.verdict.add("vanished", text)
        if kept is not None and kept.code != code:
            self.verdict.add("two values", f"{text}, where {name_of(kept.code)} is")

    # Order and flow.

    def _check_session_order(self) -> None:
        """Check the order of the transactions of each transactional id in each partition."""
        last: dict[tuple[str, Place], tuple[int, int]] = {}
        ordered = sorted(self.visible, key=self._turn)
        for number in ordered:
            transactional_id = self.history.transactions[number].transactional_id
            for place, offsets in self.visible[number].items():
                key = (transactional_id, place)
                earlier, end = last.get(key, (-1, -1))
                if min(offsets) < end:
                    self._add_order(place, earlier, number)
                last[key] = (number, max(offsets))

    def _turn(self, number: int) -> tuple[float, int]:
        """Return the position of a transaction in the order of its transactional id."""
        return self.history.transactions[number].began, number

    def _check_order_in_time(self) -> None:
        """Check that an acknowledged transaction precedes transactions that began later."""
        for place, contents in self.contents.items():
            latest, latest_began = -1, 0.0
            committed_offset: set[tuple[int, int]] = set()
            for offset in sorted(contents):
                transaction = self._known(contents[offset].code)
                if transaction is None:
                    continue
                ended = transaction.ended
                is_late = ended is not None and ended < latest_began
                if (
                    is_late
                    and transaction.result is Result.COMMITTED
                    and (transaction.number, latest) not in committed_offset
                ):
                    committed_offset.add((transaction.number, latest))
                    self._add_order(place, transaction.number, latest)
                if transaction.began > latest_began:
                    latest, latest_began = transaction.number, transaction.began

    def _add_order(self, place: Place, earlier: int, later: int) -> None:
        one, other = name_of_transaction(earlier), name_of_transaction(later)
        self.verdict.add("wrong order", f"{place}: {other} lies before {one}, which ended first")

    def _flows(self) -> Iterator[tuple[int, int]]:
        """Yield (source transaction, transaction that was made from a record of it)."""
        for contents in self.contents.values():
            for content in contents.values():
                if content.source == NO_SOURCE or self._known(content.code) is None:
                    continue
                partition, offset = content.source
                source = self.contents.get((self.history.input_topic, partition), {}).get(offset)
                if source is not None and self._known(source.code) is not None:
                    yield transaction_of(source.code), transaction_of(content.code)

    def _check_flow(self) -> None:
        edges = set(self._flows())
        for source, made in edges:
            if source == made:
                self.verdict.add("circular flow", f"{name_of_transaction(made)} read itself")
                continue
            places = self.visible[source].keys() & self.visible[made].keys()
            for place in places:
                if max(self.visible[source][place]) > min(self.visible[made][place]):
                    one, other = name_of_transaction(source), name_of_transaction(made)
                    text = f"{place}: {other} was made from {one} and lies before it"
                    self.verdict.add("circular flow", text)
        circle = _members_of_cycles(edges | set(self._sessions()))
        if circle:
            names = ", ".join(name_of_transaction(each) for each in sorted(circle)[:FINDINGS_MAX])
            self.verdict.add("circular flow", f"each was made from the one before: {names}")

    def _sessions(self) -> Iterator[tuple[int, int]]:
        """Yield visible transactions of one id that follow each other."""
        by_id: dict[str, list[int]] = defaultdict(list)
        for number in sorted(self.visible, key=self._turn):
            by_id[self.history.transactions[number].transactional_id].append(number)
        for numbers in by_id.values():
            yield from pairwise(numbers)

    # The group.

    def _check_outputs(self) -> None:
        """Check that input records have one output below the group's offset, and none above."""
        outputs: Counter[tuple[int, int]] = Counter()
        for place, contents in self.contents.items():
            if place[0] == self.history.output_topic:
                outputs.update(each.source for each in contents.values())
        for source, count in outputs.items():
            partition, offset = source
            if count > 1:
                self.verdict.add("processed twice", f"input {source} has {count} outputs")
            if offset not in self.contents.get((self.history.input_topic, partition), {}):
                self.verdict.add(
                    "aborted read", f"input {source} was processed, and is not visible"
                )
            if offset >= self.history.committed_offsets.get(partition, 0):
                text = f"input {source} has an output, the group's offset is "
                committed_offset = self.history.committed_offsets.get(partition, 0)
                self.verdict.add("offset behind", f"{text}{committed_offset}")
        for (topic, partition), contents in self.contents.items():
            if topic != self.history.input_topic:
                continue
            end = self.history.committed_offsets.get(partition, 0)
            for offset in contents:
                if offset < end and not outputs[partition, offset]:
                    text = f"input {(partition, offset)} has no output, the group is at {end}"
                    self.verdict.add("offset ahead", text)

    def _check_samples(self) -> None:
        """Compare fetched committed offsets with those of the transactions."""
        # By partition: (time, offset) of acknowledged commits, and of all that may have committed.
        sure: dict[int, list[tuple[float, int]]] = defaultdict(list)
        possible: dict[int, list[tuple[float, int]]] = defaultdict(list)
        for each in self.history.transactions.values():
            for partition, offset in each.offsets.items():
                if each.commit_asked is not None and not each.must_be_invisible:
                    possible[partition].append((each.commit_asked, offset))
                if each.result is Result.COMMITTED and each.ended is not None:
                    sure[partition].append((each.ended, offset))
        highest: dict[int, tuple[float, int]] = {}
        for sample in sorted(self.history.samples, key=lambda each: each.started):
            text = f"input partition {sample.partition}: the group's offset was {sample.offset}"
            at_least = _highest(sure[sample.partition], sample.started)
            if sample.offset < at_least:
                self.verdict.add("offset behind", f"{text} after {at_least} was acknowledged")
            at_most = _highest(possible[sample.partition], sample.ended)
            if sample.offset > at_most:
                self.verdict.add(
                    "offset ahead", f"{text}, no commit was requested beyond {at_most}"
                )
            ended, before = highest.get(sample.partition, (0.0, 0))
            if sample.offset < before and ended < sample.started:
                self.verdict.add("offset went back", f"{text} after {before}")
            if sample.offset > before:
                highest[sample.partition] = (sample.ended, sample.offset)

    # The end.

    def _check_end(self) -> None:
        total = sum(
            each.amount for contents in self.contents.values() for each in contents.values()
        )
        if total:
            self.verdict.add("unbalanced", f"all amounts add up to {total}")
        for transactional_id, state in self.history.states.items():
            if state in UNENDED:
                self.verdict.add("hanging", f"{transactional_id} is in state {state}")
        for place, ends in self.history.ends.items():
            if ends.last_stable_offset != ends.high_watermark:
                self.verdict.add("hanging", f"{place}: {ends}")


def _highest(commits: list[tuple[float, int]], until: float) -> int:
    """Return the highest offset of commits at or before a time; 0 without one."""
    return max((offset for time, offset in commits if time <= until), default=0)


def _members_of_cycles(edges: set[tuple[int, int]]) -> set[int]:
    """Return the nodes on cycles, and on paths between two cycles."""
    edges = {(one, other) for one, other in edges if one != other}
    for is_forward in (True, False):
        following: dict[int, list[int]] = defaultdict(list)
        left: Counter[int] = Counter()
        for edge in edges:
            one, other = edge if is_forward else edge[::-1]
            following[one].append(other)
            left[other] += 1
        ready = [node for node in following if not left[node]]
        gone: set[int] = set()
        while ready:
            node = ready.pop()
            gone.add(node)
            for each in following[node]:
                left[each] -= 1
                if not left[each]:
                    ready.append(each)
        edges = {(one, other) for one, other in edges if not {one, other} & gone}
    return {node for edge in edges for node in edge}
