"""A process of the transactional load: a mover, a member of the group, or a reader.

    python -m chaos.transactional.worker JSON

The argument holds the fields of `Task`. SIGTERM ends the process between two transactions. The exit
status `REPLACE_ME` means that the producer cannot continue: it was fenced, does not know the result
of a call, or a call of librdkafka does not return. A new process may then use its transactional id.
SIGUSR1 prints the stack of each thread.
"""

from __future__ import annotations

import faulthandler
import json
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from chaos.transactional.clients import (
    CONSUMERS,
    PRODUCERS,
    REPLACE_ME,
    TRANSACTION_TIMEOUT_MS,
    AbortableError,
    CommittedConsumer,
    FatalError,
    Read,
)
from chaos.transactional.history import (
    Content,
    Place,
    Result,
    code_of,
    content_in,
    number_of,
)
from chaos.transactional.journal import Journal

ACCOUNTS = 40
PADDING = b"." * 60
# Moves of one transaction, each of two records.
MOVES_MAX = 4
# Percentage of transactions that are aborted on purpose.
ABORTED_PERCENT = 15
LONG_PERCENT = 3
# Percentage of long transactions that exceed their timeout.
TOO_LONG_PERCENT = 20
BATCH_MAX = 20
# Maximum number of times that a record with an even amount is copied into the input topic.
HOPS_MAX = 2


@dataclass(frozen=True)
class Task:
    """Work of a process."""

    # "move", "process" or "read".
    role: str
    # "own" or "librdkafka".
    client: str
    bootstrap: str
    # Number of the process, which increases with each start.
    instance: int
    # The transactional id, or a reader's name.
    name: str
    journal: str
    input_topic: str
    output_topic: str
    input_partitions: int
    output_partitions: int
    group: str = ""
    # Transactions per second of a mover.
    rate: float = 5.0


class Stop:
    """A flag that SIGTERM sets."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        self.asked = True


class Transacting:
    """A producer and its journal, which run transactions with any content."""

    def __init__(self, task: Task, journal: Journal) -> None:
        self.task = task
        self._journal = journal
        self._serial = 0
        self.producer = PRODUCERS[task.client](task.bootstrap, task.name, journal.errs)

    def initialize(self) -> None:
        """Fence all earlier producers of the id."""
        self._journal.asks_to_initialize()
        self.producer.initialize()
        self._journal.initialized()

    def next_number(self) -> int:
        """Return the number of the next transaction."""
        self._serial += 1
        return number_of(self.task.instance, self._serial)

    def begin(self, number: int, places: list[Place], offsets: dict[int, int]) -> None:
        """Write the plan of a transaction to the journal, and begin it."""
        self._journal.begins(number, places, offsets)
        self.producer.begin()

    def end(self, number: int, *, is_commit: bool) -> bool:
        """End the transaction; return whether it is committed."""
        if is_commit:
            self._journal.asks_to_commit(number)
            self.producer.commit()
            self._journal.ended(number, Result.COMMITTED)
            return True
        self.producer.abort()
        self._journal.ended(number, Result.ABORTED)
        return False


def move(task: Task, journal: Journal, stop: Stop) -> None:
    """Move amounts between keys, one transaction after the other."""
    rng = random.Random(task.instance)
    transacting = Transacting(task, journal)
    transacting.initialize()
    while not stop.asked:
        due = time.monotonic() + rng.expovariate(task.rate)
        number = transacting.next_number()
        try:
            _move_once(task, transacting, number, rng)
        except AbortableError:
            transacting.end(number, is_commit=False)
        time.sleep(max(0.0, due - time.monotonic()))
    transacting.producer.close()


def _move_once(task: Task, transacting: Transacting, number: int, rng: random.Random) -> None:
    planned: list[tuple[int, int]] = []
    for _ in range(rng.randint(1, MOVES_MAX)):
        debited, credited = rng.sample(range(ACCOUNTS), 2)
        amount = rng.randint(1, 100)
        planned += [(debited, -amount), (credited, amount)]
    places = [(task.input_topic, key % task.input_partitions) for key, _ in planned]
    transacting.begin(number, places, {})
    pause = 0.0
    if rng.randrange(100) < LONG_PERCENT:
        is_too_long = rng.randrange(100) < TOO_LONG_PERCENT
        pause = TRANSACTION_TIMEOUT_MS / 1000 * 1.2 if is_too_long else rng.random() * 2
    for index, (place, (key, amount)) in enumerate(zip(places, planned, strict=True)):
        content = Content(code_of(number, index), len(planned), amount)
        transacting.producer.send(place, b"%d" % key, content.to_value(PADDING))
        if index == len(planned) // 2:
            if rng.random() < 0.3:
                transacting.producer.flush()
            time.sleep(pause)
    is_commit = rng.randrange(100) >= ABORTED_PERCENT
    if not is_commit and rng.random() < 0.5:
        transacting.producer.flush()
    transacting.end(number, is_commit=is_commit)


def process(task: Task, journal: Journal, stop: Stop) -> None:
    """Consume, transform and produce as a member of the group."""
    rng = random.Random(task.instance)
    transacting = Transacting(task, journal)
    transacting.initialize()
    consumer = CONSUMERS[task.client](task.bootstrap, task.group, journal.errs)
    consumer.subscribe(task.input_topic)
    run = 0
    journal.starts_run(run)
    changes = consumer.changes
    while not stop.asked:
        reads = consumer.poll(BATCH_MAX, 0.2)
        if changes != consumer.changes:
            # The records may be from before the rebalance, so do not commit their offsets.
            changes = consumer.changes
            consumer.return_to_committed()
            run += 1
            journal.starts_run(run)
            continue
        if not reads:
            continue
        group = consumer.group_metadata()
        journal.reads([(each.place, each.offset, content_in(each.value).code) for each in reads])
        number = transacting.next_number()
        try:
            is_committed = _process_once(transacting, number, reads, group, rng)
        except AbortableError:
            is_committed = transacting.end(number, is_commit=False)
        if not is_committed:
            consumer.return_to_committed()
            run += 1
            journal.starts_run(run)
    consumer.close()
    transacting.producer.close()


def _process_once(
    transacting: Transacting, number: int, reads: list[Read], group: object, rng: random.Random
) -> bool:
    """Run a transaction; return whether it is committed."""
    task = transacting.task
    outputs: list[tuple[Place, int, int, tuple[int, int]]] = []
    for each in reads:
        content = content_in(each.value)
        source = (each.place[1], each.offset)
        place = (task.output_topic, content.code % task.output_partitions)
        outputs.append((place, 0, 0, source))
        if content.hops < HOPS_MAX and content.amount % 4 == 0:
            # The amount stays where it is: the copy carries none.
            copied = (task.input_topic, (each.place[1] + 1) % task.input_partitions)
            outputs.append((copied, 0, content.hops + 1, source))
    next_offsets = {each.place: each.offset + 1 for each in reads}
    consumed = {place[1]: offset for place, offset in next_offsets.items()}
    transacting.begin(number, [place for place, *_ in outputs], consumed)
    for index, (place, amount, hops, source) in enumerate(outputs):
        content = Content(code_of(number, index), len(outputs), amount, hops, source)
        transacting.producer.send(place, b"%d" % index, content.to_value(PADDING))
    transacting.producer.send_offsets(next_offsets, group)
    return transacting.end(number, is_commit=rng.randrange(100) >= ABORTED_PERCENT)


def read(task: Task, journal: Journal, stop: Stop) -> None:
    """Read all partitions of both topics from their start, without a group."""
    consumer: CommittedConsumer = CONSUMERS[task.client](task.bootstrap, "", journal.errs)
    consumer.assign(
        [
            *((task.input_topic, partition) for partition in range(task.input_partitions)),
            *((task.output_topic, partition) for partition in range(task.output_partitions)),
        ]
    )
    journal.starts_run(0)
    while not stop.asked:
        reads = consumer.poll(500, 0.1)
        journal.reads([(each.place, each.offset, content_in(each.value).code) for each in reads])
    consumer.close()


ROLES = {"move": move, "process": process, "read": read}


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    task = Task(**json.loads(sys.argv[1]))
    journal = Journal(Path(task.journal), task.instance, task.name)
    try:
        ROLES[task.role](task, journal, Stop())
    except FatalError:
        sys.exit(REPLACE_ME)
    except AbortableError as error:
        # It came outside a transaction, or the abort failed as well.
        journal.errs(error.__cause__)
        sys.exit(REPLACE_ME)


if __name__ == "__main__":
    main()
