"""The transaction checker finds each kind of fault, and nothing in a history without one."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.transaction_checker import KINDS, check_transactions
from chaos.transactional.history import (
    CommittedLog,
    Content,
    Ends,
    Initialization,
    OffsetSample,
    Place,
    ReadRun,
    Result,
    Transaction,
    TransactionHistory,
    code_of,
    content_in,
    number_of,
    transaction_of,
)
from chaos.transactional.journal import Journal, JournalReader
from chaos.verdict import Verdict

IN0, IN1, OUT = ("in", 0), ("in", 1), ("out", 0)
PLACES = (IN0, IN1, OUT)


class Builder:
    """Writes a history step by step; each step takes a second."""

    def __init__(self) -> None:
        self.history = TransactionHistory("in", "out")
        self.now = 0.0
        self.serials: dict[int, int] = defaultdict(int)
        # What readers see at the end, by place and offset. A marker takes an offset as well.
        self.visible: dict[Place, dict[int, Content]] = {place: {} for place in PLACES}
        self.next_offsets = dict.fromkeys(PLACES, 0)
        self.seen_at: dict[int, float] = {}

    def tick(self) -> float:
        self.now += 1.0
        return self.now

    def initialize(self, name: str, instance: int) -> None:
        asked = self.tick()
        self.history.initializations.append(Initialization(name, instance, asked, self.tick()))

    def transact(
        self,
        name: str,
        instance: int,
        places: list[Place],
        result: Result = Result.COMMITTED,
        sources: tuple[tuple[int, int], ...] = (),
    ) -> Transaction:
        """Run a transaction; return it. One with sources commits the offsets behind them."""
        self.serials[instance] += 1
        number = number_of(instance, self.serials[instance])
        offsets = {partition: offset + 1 for partition, offset in sources}
        made = Transaction(number, name, instance, tuple(places), self.tick(), offsets)
        self.history.transactions[number] = made
        contents: dict[Place, dict[int, Content]] = defaultdict(dict)
        for index, place in enumerate(places):
            amount = 0 if sources else (-5, 5)[index % 2]
            source = sources[index] if sources else (-1, -1)
            content = Content(code_of(number, index), len(places), amount, 0, source)
            contents[place][self.next_offsets[place]] = content
            self.next_offsets[place] += 1
        for place in contents:
            self.next_offsets[place] += 1
        if result is not Result.ABORTED:
            made.commit_asked = self.tick()
        made.ended, made.result = self.tick(), result
        if result is Result.COMMITTED:
            for place, found in contents.items():
                self.visible[place].update(found)
            self.history.committed_offsets.update(offsets)
        self.seen_at[number] = self.tick()
        self.sample()
        return made

    def sample(self) -> None:
        started = self.tick()
        ended = self.tick()
        self.history.samples += [
            OffsetSample(partition, offset, started, ended)
            for partition, offset in self.history.committed_offsets.items()
        ]

    def finish(self) -> TransactionHistory:
        for place in PLACES:
            log = self.history.logs[place] = CommittedLog(place)
            run = ReadRun("reader", place)
            for offset, content in sorted(self.visible[place].items()):
                log.add(offset, content)
                run.add(offset, content.code, self.seen_at[transaction_of(content.code)])
            self.history.runs.append(run)
            end = self.next_offsets[place]
            self.history.ends[place] = Ends(end, end)
        self.history.states = {"mover": "CompleteCommit", "member": "CompleteAbort"}
        return self.history


def correct() -> Builder:
    """Two movers, one of which is replaced, and a member that makes an output of each input."""
    builder = Builder()
    builder.initialize("mover", 1)
    builder.initialize("other", 2)
    builder.initialize("member", 3)
    builder.transact("mover", 1, [IN0, IN1])
    builder.transact("other", 2, [IN0, IN0], Result.ABORTED)
    builder.transact("other", 2, [IN1, IN1, IN0, IN0])
    builder.transact("member", 3, [OUT, OUT], sources=((0, 0), (1, 0)))
    builder.initialize("mover", 4)
    builder.transact("mover", 4, [IN0, IN1])
    inputs = [(0, 5), (0, 6), (1, 2), (1, 3)]
    builder.transact("member", 3, [OUT] * 4, sources=tuple(inputs))
    builder.transact("member", 3, [OUT, OUT], sources=((0, 8), (1, 5)))
    return builder


def test_nothing_is_found_in_a_correct_history() -> None:
    verdict = check_transactions(correct().finish())
    assert verdict.is_clean, verdict
    assert str(verdict) == "no faults"


def history_by_chance(seed: int) -> TransactionHistory:
    """A correct history: movers with any result, and a member that follows."""
    rng = random.Random(seed)
    builder = Builder()
    instance = {"a": 1, "b": 2}
    for name, number in instance.items():
        builder.initialize(name, number)
    builder.initialize("member", 3)
    done = {0: -1, 1: -1}
    for _ in range(60):
        name = rng.choice("ab")
        if rng.random() < 0.1:
            instance[name] = max(*instance.values(), 3) + 1
            builder.initialize(name, instance[name])
        places = [rng.choice((IN0, IN1)) for _ in range(2 * rng.randint(1, 3))]
        builder.transact(name, instance[name], places, rng.choice(list(Result)))
        inputs = [
            (partition, offset)
            for _, partition in (IN0, IN1)
            for offset in sorted(builder.visible["in", partition])
            if offset > done[partition]
        ]
        if inputs and rng.random() < 0.5:
            done.update(inputs)
            builder.transact("member", 3, [OUT] * len(inputs), sources=tuple(inputs))
    return builder.finish()


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_found_in_correct_histories_by_chance(seed: int) -> None:
    verdict = check_transactions(history_by_chance(seed))
    assert verdict.is_clean, verdict


def test_an_unanswered_commit_may_be_visible_or_not_but_must_be_atomic() -> None:
    builder = correct()
    unknown = builder.transact("mover", 4, [IN0, IN1], Result.UNKNOWN)
    assert check_transactions(builder.finish()).is_clean

    builder = correct()
    unknown = builder.transact("mover", 4, [IN0, IN1])
    unknown.result = Result.UNKNOWN
    assert check_transactions(builder.finish()).is_clean

    del builder.history.logs[IN0].offsets[-1], builder.history.logs[IN0].contents[-1]
    del builder.history.runs[0].offsets[-1], builder.history.runs[0].codes[-1]
    del builder.history.runs[0].times[-1]
    assert set(check_transactions(builder.history).counts) == {"torn", "unbalanced"}


# Each seeds one fault into a correct history; the value is what must be found, and no more.
FAULTS: dict[str, tuple[Callable[[Builder], None], set[str]]] = {}


def fault(*kinds: str) -> Callable[[Callable[[Builder], None]], Callable[[Builder], None]]:
    def register(change: Callable[[Builder], None]) -> Callable[[Builder], None]:
        FAULTS[change.__name__.replace("_", " ")] = change, set(kinds)
        return change

    return register


def hide(builder: Builder, place: Place, offset: int) -> None:
    del builder.visible[place][offset]


@fault("lost")
def a_committed_transaction_that_is_nowhere(builder: Builder) -> None:
    builder.transact("mover", 4, [IN0, IN1])
    hide(builder, IN0, 10)
    hide(builder, IN1, 7)


@fault("torn", "unbalanced")
def a_transaction_that_one_partition_never_shows(builder: Builder) -> None:
    builder.transact("mover", 4, [IN0, IN1])
    hide(builder, IN1, 7)


@fault("torn", "unbalanced")
def a_part_of_a_transaction_within_a_partition(builder: Builder) -> None:
    builder.transact("mover", 4, [IN0, IN0])
    hide(builder, IN0, 11)


@fault("duplicated", "unbalanced")
def a_record_that_was_written_twice(builder: Builder) -> None:
    mover = builder.transact("mover", 4, [IN0, IN1])
    content = builder.visible[IN0][10]
    builder.visible[IN0][11] = content
    assert transaction_of(content.code) == mover.number


@fault("reordered")
def records_of_a_transaction_in_another_order(builder: Builder) -> None:
    builder.transact("mover", 4, [IN0, IN0])
    contents = builder.visible[IN0]
    contents[10], contents[11] = contents[11], contents[10]


@fault("foreign")
def a_record_that_was_never_sent(builder: Builder) -> None:
    builder.visible[IN0][11] = Content(code_of(number_of(9, 9), 0), 1, 0)
    builder.seen_at[number_of(9, 9)] = builder.now


@fault("foreign", "torn", "unbalanced")
def a_record_in_another_partition(builder: Builder) -> None:
    builder.transact("mover", 4, [IN0, IN1])
    content = builder.visible[IN0].pop(10)
    builder.visible[IN1][9] = content._replace(amount=content.amount + 1)


@fault("aborted read")
def an_aborted_transaction_that_is_visible(builder: Builder) -> None:
    builder.transact("other", 2, [IN0, IN1]).result = Result.ABORTED


@fault("aborted read")
def a_visible_transaction_without_a_commit_request(builder: Builder) -> None:
    made = builder.transact("other", 2, [IN0, IN1])
    made.result, made.commit_asked = Result.UNKNOWN, None


@fault("aborted read")
def an_output_of_an_aborted_record(builder: Builder) -> None:
    aborted = builder.transact("other", 2, [IN0, IN0], Result.ABORTED)
    assert aborted.must_be_invisible
    builder.transact("member", 3, [OUT, OUT], sources=((0, 10), (0, 11)))


@fault("zombie")
def a_transaction_of_a_fenced_producer(builder: Builder) -> None:
    builder.transact("mover", 1, [IN0, IN1])


@fault("zombie")
def an_acknowledged_commit_of_a_fenced_producer_without_records(builder: Builder) -> None:
    builder.transact("mover", 1, [])


@fault("wrong order")
def transactions_of_one_id_in_another_order_in_one_partition(builder: Builder) -> None:
    swap_last_two(builder, "mover", 4)


@fault("wrong order")
def transactions_that_follow_each_other_in_another_order(builder: Builder) -> None:
    swap_last_two(builder, "other", 2)


def swap_last_two(builder: Builder, name: str, instance: int) -> None:
    """Two transactions, acknowledged one after the other, lie differently in two partitions."""
    builder.transact("mover", 4, [IN0, IN1])
    builder.transact(name, instance, [IN0, IN1])
    contents = builder.visible[IN0]
    first, second = sorted(contents)[-2:]
    contents[first], contents[second] = contents[second], contents[first]


@fault("circular flow")
def a_transaction_that_lies_before_the_one_it_was_made_from(builder: Builder) -> None:
    source = builder.transact("mover", 4, [IN0, IN0])
    made = builder.transact("member", 3, [OUT, OUT, IN0], sources=((0, 10), (0, 11), (0, 11)))
    # Nothing is known of their times.
    source.ended, made.began = None, source.began
    contents = builder.visible[IN0]
    copy = max(contents)
    contents[9] = contents.pop(copy)._replace(source=(0, 11))
    builder.transact("member", 3, [OUT], sources=((0, 9),))
    builder.history.committed_offsets[0] = 12
    del builder.history.samples[:]
    builder.next_offsets[IN0] = 13


@fault("circular flow")
def transactions_that_are_made_from_each_other(builder: Builder) -> None:
    """Each of two members copies the record of the other one into its own partition."""
    builder.initialize("second", 5)
    one = builder.transact("member", 3, [IN0, OUT], sources=((1, 7), (1, 7)))
    other = builder.transact("second", 5, [IN1, OUT], sources=((0, 10), (0, 10)))
    assert (max(builder.visible[IN0]), max(builder.visible[IN1])) == (10, 7)
    assert one.number != other.number


@fault("offset ahead")
def an_offset_beyond_an_input_record_without_output(builder: Builder) -> None:
    builder.transact("mover", 4, [IN0, IN0])
    builder.history.committed_offsets[0] = 12


@fault("offset ahead")
def an_offset_that_no_transaction_may_have_committed(builder: Builder) -> None:
    last = builder.history.samples[-1]
    builder.history.samples.append(replace(last, offset=last.offset + 1))


@fault("offset ahead")
def an_offset_of_an_aborted_transaction(builder: Builder) -> None:
    builder.transact("mover", 4, [IN0, IN0])
    builder.transact("member", 3, [OUT, OUT], Result.ABORTED, ((0, 10), (0, 11)))
    now = builder.tick()
    builder.history.samples.append(OffsetSample(0, 12, now, now))


@fault("offset behind")
def an_output_whose_offset_is_not_committed(builder: Builder) -> None:
    builder.history.committed_offsets[0] -= 1


@fault("offset behind", "offset went back")
def an_acknowledged_offset_that_is_not_there(builder: Builder) -> None:
    last = builder.history.samples[-1]
    now = builder.tick()
    builder.history.samples.append(replace(last, offset=last.offset - 1, started=now, ended=now))


@fault("offset went back")
def an_offset_of_an_unanswered_commit_that_was_seen_once(builder: Builder) -> None:
    builder.transact("mover", 4, [IN0, IN0])
    builder.transact("member", 3, [OUT, OUT], Result.UNKNOWN, ((0, 10), (0, 11)))
    for offset in (12, 9):
        now = builder.tick()
        builder.history.samples.append(OffsetSample(0, offset, now, now))


@fault("processed twice")
def an_input_record_with_two_outputs(builder: Builder) -> None:
    builder.transact("member", 3, [OUT], sources=((0, 8),))


@fault("unbalanced")
def an_amount_that_changed(builder: Builder) -> None:
    builder.transact("mover", 4, [IN0, IN1])
    content = builder.visible[IN0][10]
    builder.visible[IN0][10] = content._replace(amount=content.amount + 1)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str) -> None:
    change, kinds = FAULTS[name]
    builder = correct()
    change(builder)
    assert set(check_transactions(builder.finish()).counts) == kinds


# Faults of the records that readers received, and of the end; inserted into the finished history.
READER_FAULTS: dict[str, tuple[Callable[[TransactionHistory], None], set[str]]] = {}


def reader_fault(*kinds: str) -> Callable[[Callable[[TransactionHistory], None]], None]:
    def register(change: Callable[[TransactionHistory], None]) -> None:
        READER_FAULTS[change.__name__.replace("_", " ")] = change, set(kinds)

    return register


def drop(run: ReadRun, index: int) -> None:
    del run.offsets[index], run.codes[index], run.times[index]


def insert(run: ReadRun, index: int, offset: int, code: int, time: float) -> None:
    run.offsets.insert(index, offset)
    run.codes.insert(index, code)
    run.times.insert(index, time)


@reader_fault("intermediate read")
def a_record_that_was_read_before_the_commit_request(history: TransactionHistory) -> None:
    run = history.runs[0]
    asked = history.transactions[transaction_of(run.codes[0])].commit_asked
    assert asked is not None
    run.times[0] = asked - 0.5


@reader_fault("intermediate read")
def a_reader_that_got_a_part_of_a_transaction(history: TransactionHistory) -> None:
    # The transaction has two records in this partition.
    drop(history.runs[0], 2)


@reader_fault("skipped")
def a_reader_that_passed_a_transaction(history: TransactionHistory) -> None:
    drop(history.runs[0], 1)
    drop(history.runs[0], 1)


@reader_fault("aborted read")
def a_reader_that_got_an_aborted_record(history: TransactionHistory) -> None:
    aborted = next(t for t in history.transactions.values() if t.result is Result.ABORTED)
    insert(history.runs[0], 1, 2, code_of(aborted.number, 0), 100.0)


@reader_fault("vanished")
def a_record_that_was_read_and_is_gone(history: TransactionHistory) -> None:
    """The commit was not answered; a reader saw the transaction once."""
    number = number_of(1, 99)
    history.transactions[number] = Transaction(number, "mover", 1, (IN0,), 1.0, {}, 5.0)
    insert(history.runs[0], 1, 2, code_of(number, 0), 6.0)


@reader_fault("foreign")
def a_reader_that_got_a_record_that_was_never_sent(history: TransactionHistory) -> None:
    insert(history.runs[0], 1, 2, -1, 6.0)


@reader_fault("two values")
def a_reader_that_got_another_record_than_others(history: TransactionHistory) -> None:
    run = history.runs[0]
    run.codes[0] = history.runs[1].codes[0]


@reader_fault("read twice")
def a_reader_that_got_a_record_twice(history: TransactionHistory) -> None:
    run = history.runs[0]
    insert(run, 1, run.offsets[0], run.codes[0], run.times[0])


@reader_fault("two values")
def an_offset_that_the_log_has_twice(history: TransactionHistory) -> None:
    history.logs[IN0].offsets[1] = history.logs[IN0].offsets[0]
    del history.logs[IN0].offsets[1:], history.logs[IN0].contents[1:]
    history.logs[IN0].add(history.logs[IN0].offsets[0], history.logs[IN0].contents[0])
    keep_only(history, history.logs[IN0].contents[0].code)


@reader_fault("hanging")
def a_transaction_that_stays_open(history: TransactionHistory) -> None:
    history.states["mover"] = "Ongoing"


@reader_fault("hanging")
def a_transaction_that_stays_prepared(history: TransactionHistory) -> None:
    history.states["mover"] = "PrepareCommit"


@reader_fault("hanging")
def a_last_stable_offset_that_stays_behind(history: TransactionHistory) -> None:
    history.ends[IN1] = Ends(3, 9)


def keep_only(history: TransactionHistory, code: int) -> None:
    """Reduce the history to the transaction of one record."""
    number = transaction_of(code)
    history.transactions = {number: history.transactions[number]}
    for place in (IN1, OUT):
        log = history.logs[place]
        kept = [
            (offset, content)
            for offset, content in zip(log.offsets, log.contents, strict=True)
            if transaction_of(content.code) == number
        ]
        history.logs[place] = CommittedLog(place)
        for offset, content in kept:
            history.logs[place].add(offset, content)
    history.runs, history.samples = [], []
    history.committed_offsets = {}


@pytest.mark.parametrize("name", READER_FAULTS)
def test_a_fault_of_readers_or_of_the_final_state_is_found(name: str) -> None:
    change, kinds = READER_FAULTS[name]
    history = correct().finish()
    change(history)
    verdict = check_transactions(history)
    assert set(verdict.counts) == kinds, verdict


def test_every_kind_of_finding_has_a_test_history() -> None:
    shown = set[str]().union(*(kinds for _, kinds in (*FAULTS.values(), *READER_FAULTS.values())))
    assert shown == set(KINDS)


def test_a_verdict_contains_each_kind_and_the_first_findings() -> None:
    verdict = Verdict(KINDS)
    for number in range(30):
        verdict.add("torn", f"transaction {number}")
    verdict.add("lost", "transaction 30")
    assert str(verdict).startswith("torn 30, lost 1\ntorn: transaction 0\n")
    assert len(verdict.findings) == 11


def test_concurrent_transactions_may_have_another_order_in_each_partition() -> None:
    builder = correct()
    one = builder.transact("mover", 4, [IN0, IN1])
    other = builder.transact("other", 2, [IN0, IN1])
    other.began = one.began
    contents = builder.visible[IN0]
    first, second = sorted(contents)[-2:]
    contents[first], contents[second] = contents[second], contents[first]
    assert check_transactions(builder.finish()).is_clean


def test_a_commit_requested_before_the_fence_may_be_visible() -> None:
    """The response is lost, and the later producer waits for the end of the transaction."""
    builder = correct()
    made = builder.transact("mover", 4, [IN0, IN1])
    builder.initialize("mover", 5)
    made.result, made.ended = Result.UNKNOWN, None
    assert check_transactions(builder.finish()).is_clean


def test_of_two_overlapping_initializations_either_may_be_the_later_one() -> None:
    builder = correct()
    first, second = builder.tick(), builder.tick()
    for instance in (5, 6):
        builder.history.initializations.append(Initialization("mover", instance, first, second))
    builder.transact("mover", 5, [IN0, IN1])
    assert check_transactions(builder.finish()).is_clean
    builder.initialize("mover", 7)
    builder.transact("mover", 6, [])
    assert set(check_transactions(builder.finish()).counts) == {"zombie"}


def test_journals_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.txt"
    journal = Journal(path, 3, "member")
    history = TransactionHistory("in", "out")
    reader = JournalReader(path, history)
    journal.asks_to_initialize()
    journal.initialized()
    journal.starts_run(0)
    journal.reads([(IN0, 4, 99), (IN0, 5, 100)])
    journal.begins(7, [OUT, IN1], {0: 6})
    journal.asks_to_commit(7)
    reader.catch_up()
    unended = history.transactions[7]
    assert (unended.result, unended.ended) == (Result.UNKNOWN, None)
    journal.ended(7, Result.COMMITTED)
    journal.starts_run(1)
    journal.reads([(IN0, 4, 99)])
    journal.begins(8, [], {})
    journal.ended(8, Result.ABORTED)
    journal.errs(ValueError("one\ntwo"))
    with path.open("a") as file:
        file.write("read in 0 5 ")
    reader.catch_up()
    reader.catch_up()
    assert [each.instance for each in history.initializations] == [3]
    assert [(list(run.offsets), list(run.codes)) for run in history.runs] == [
        ([4, 5], [99, 100]),
        ([4], [99]),
    ]
    committed, aborted = history.transactions.values()
    assert (committed.places, committed.offsets) == ((OUT, IN1), {0: 6})
    assert (committed.result, aborted.must_be_invisible) == (Result.COMMITTED, True)
    assert committed.commit_asked is not None
    assert reader.errors == ["ValueError one two"]
    assert reader.committed_begin == committed.began


def test_a_value_keeps_its_content() -> None:
    content = Content(code_of(number_of(3, 4), 5), 6, -7, 1, (2, 1000))
    assert content_in(content.to_value(b"..")) == content
    assert [content_in(each).code for each in (b"another client's", None)] == [-1, -1]
