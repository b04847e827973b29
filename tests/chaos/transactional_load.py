"""Transactional clients during faults of a cluster, each in a separate process.

Movers write transactions to several partitions and abort some of them. Members of a group consume,
transform and produce, and commit the group's offsets in the transaction. Readers follow with
read_committed. Each kind runs with our client and with librdkafka. Meanwhile processes are killed
or paused, and other processes with the same transactional id start: these must fence the earlier
ones.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition

from barnabas.client.errors import ClientError
from barnabas.client.facade import Client
from chaos.missing_offsets import uncommitted
from chaos.resources import Leftovers
from chaos.transaction_checker import UNENDED
from chaos.transactional.clients import CALL_S, QUICK, REPLACE_ME, TRANSACTION_TIMEOUT_MS
from chaos.transactional.history import (
    CommittedLog,
    Ends,
    OffsetSample,
    Place,
    Result,
    TransactionHistory,
    content_in,
)
from chaos.transactional.journal import JournalReader
from chaos.transactional.watchdog import HungCallError
from chaos.transactional.worker import Task
from group_offsets import committed_offsets
from waiting import PATIENCE_S, eventually

INPUT_TOPIC = "moves"
OUTPUT_TOPIC = "results"
GROUP = "processors"
TESTS = Path(__file__).parents[1]
# Seconds between two faults of clients.
DISTURBED_EVERY_S = (4.0, 10.0)
# Duration of a pause of a process: at most longer than a session and a transaction timeout.
PAUSE_S = (0.5, 14.0)
# Time without a process for a transactional id: at most longer than a transaction timeout.
DEAD_S = (0.0, 13.0)
# Coordinators abort transactions after their timeout, and check it every second.
END_OF_TRANSACTIONS_S = TRANSACTION_TIMEOUT_MS / 1000 + 20.0
LOOP_S = 0.1


@dataclass(frozen=True)
class TransactionalOptions:
    """The size of the load."""

    input_partitions: int = 4
    output_partitions: int = 2
    # Transactions per second of each mover.
    rate: float = 4.0
    # Whether clients are killed, paused and doubled.
    has_faults: bool = True


@dataclass
class Worker:
    """A process of the load."""

    task: Task
    process: subprocess.Popen[bytes]
    journal: JournalReader
    # Another process has its transactional id.
    is_replaced: bool = False
    # Whether the process was told to stop.
    is_stopped: bool = False
    # When it is resumed (SIGCONT), monotonic seconds; None unless it is paused.
    resumes_at: float | None = None


@dataclass
class _Due:
    """A process that will be started."""

    at: float
    role: str
    client: str
    name: str


@dataclass
class Counts:
    """Counts of faults of clients."""

    killed: int = 0
    paused: int = 0
    doubled: int = 0
    replaced: int = 0
    # Processes that ended because a call of librdkafka did not return.
    hung: int = 0

    def __str__(self) -> str:
        return (
            f"{self.killed} clients killed, {self.paused} paused, {self.doubled} doubled, "
            f"{self.replaced} replaced after an error, {self.hung} ended in a hung call"
        )


# Errors of librdkafka's `committed` while a group gets another coordinator.
class TransactionalLoad:
    """All transactional clients; their topics exist.

    Args:
        bootstrap: servers of the cluster.
        directory: holds the journals.
        seed: seed of the random faults of clients.
        options: size of the load.
    """

    def __init__(
        self, bootstrap: str, directory: Path, seed: int, options: TransactionalOptions
    ) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._rng = random.Random(seed)
        self.options = options
        self.history = TransactionHistory(INPUT_TOPIC, OUTPUT_TOPIC)
        self.counts = Counts()
        self._errors: Counter[str] = Counter()
        self._workers: list[Worker] = []
        self._due: list[_Due] = []
        self._next_instance = 1
        # Guards all fields: the campaign and the supervisor thread use them.
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._may_disturb = threading.Event()
        self._death: BaseException | None = None
        # Input partitions in which the group has committed.
        self._committed: set[int] = set()
        self._thread = threading.Thread(target=self._guarded, name="transactional", daemon=True)
        self._marked_at = 0.0

    @property
    def topics(self) -> dict[str, int]:
        """The topics with their numbers of partitions."""
        return {
            INPUT_TOPIC: self.options.input_partitions,
            OUTPUT_TOPIC: self.options.output_partitions,
        }

    def start(self) -> None:
        """Start all clients."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for client in ("own", "librdkafka"):
            for role in ("move", "process", "read"):
                self._launch(role, client, f"{role}-{client}")
        self._thread.start()

    def begin_faults(self) -> None:
        """Kill, pause and double clients from now on, if the options say so."""
        if self.options.has_faults:
            self._may_disturb.set()

    def _launch(self, role: str, client: str, name: str) -> None:
        instance = self._next_instance
        self._next_instance += 1
        journal = self._directory / f"{instance:04}-{name}.txt"
        task = Task(
            role,
            client,
            self._bootstrap,
            instance,
            name,
            str(journal),
            INPUT_TOPIC,
            OUTPUT_TOPIC,
            self.options.input_partitions,
            self.options.output_partitions,
            GROUP if role == "process" else "",
            self.options.rate,
        )
        with journal.with_suffix(".log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "chaos.transactional.worker", json.dumps(asdict(task))],
                cwd=TESTS,
                env=os.environ | {"PYTHONPATH": str(TESTS)},
                stderr=log,
                stdout=log,
            )
        self._workers.append(Worker(task, process, JournalReader(journal, self.history)))

    # The supervisor.

    def _guarded(self) -> None:
        try:
            self._supervise()
        except BaseException as error:  # noqa: BLE001 - raised again by `check_alive`
            self._death = error

    def _supervise(self) -> None:
        disturbed_at = time.monotonic() + self._rng.uniform(*DISTURBED_EVERY_S)
        while not self._stopping.wait(LOOP_S):
            with self._lock:
                self._check_processes()
                now = time.monotonic()
                for due in [each for each in self._due if each.at <= now]:
                    self._due.remove(due)
                    self._launch(due.role, due.client, due.name)
                if now >= disturbed_at and self._may_disturb.is_set():
                    self._disturb()
                    disturbed_at = now + self._rng.uniform(*DISTURBED_EVERY_S)

    def _check_processes(self) -> None:
        now = time.monotonic()
        for worker in list(self._workers):
            if worker.resumes_at is not None and worker.resumes_at <= now:
                worker.process.send_signal(signal.SIGCONT)
                worker.resumes_at = None
            status = worker.process.poll()
            worker.journal.catch_up()
            for error in worker.journal.errors:
                self._errors[f"{worker.task.name}: {error}"] += 1
                self.counts.hung += error.startswith(HungCallError.__name__)
            worker.journal.errors.clear()
            if status is None:
                continue
            self._workers.remove(worker)
            if status == REPLACE_ME and not (worker.is_replaced or worker.is_stopped):
                self.counts.replaced += 1
                self._replace(worker, now)
            elif status not in (REPLACE_ME, 0, -signal.SIGKILL, -signal.SIGTERM):
                log = Path(worker.task.journal).with_suffix(".log").read_text()
                raise AssertionError(f"{worker.task.name} ended with {status}:\n{log[-3000:]}")

    def _replace(self, worker: Worker, at: float) -> None:
        task = worker.task
        worker.is_replaced = True
        self._due.append(_Due(at, task.role, task.client, task.name))

    def _disturb(self) -> None:
        """Kill, pause or double a random client."""
        victims = [
            each
            for each in self._workers
            if each.task.role != "read" and not each.is_replaced and each.resumes_at is None
        ]
        if not victims:
            return
        now = time.monotonic()
        victim = self._rng.choice(victims)
        action = self._rng.choice(("kill", "pause", "double", "pause and double"))
        if action == "kill":
            self.counts.killed += 1
            victim.process.kill()
            self._replace(victim, now + self._rng.uniform(*DEAD_S) * self._rng.choice((0, 1)))
            return
        if "pause" in action:
            self.counts.paused += 1
            victim.process.send_signal(signal.SIGSTOP)
            victim.resumes_at = now + self._rng.uniform(*PAUSE_S)
        if "double" in action:
            self.counts.doubled += 1
            self._replace(victim, now)

    # Options of the campaign.

    def check_alive(self) -> None:
        """Raise the exception of the supervisor or of a dead client."""
        if self._death is not None:
            raise self._death

    def errors(self) -> dict[str, int]:
        """Return the errors of clients with their numbers."""
        with self._lock:
            return dict(self._errors.most_common())

    def describe(self) -> str:
        """Return what each process has done last, and does now."""
        with self._lock:
            return "\n".join(map(_work_of, self._workers))

    def mark(self) -> None:
        """Make `waiting` count only transactions that begin from now on."""
        self._marked_at = time.monotonic()

    def waiting(self) -> list[str]:
        """Return what has not started.

        These are kinds of clients without a committed transaction that began after `mark`, and
        input partitions in which the group has not committed for the first time.
        """
        partitions = self.options.input_partitions
        with self._lock:
            if len(self._committed) < partitions:
                for transaction in self.history.transactions.values():
                    if transaction.result is Result.COMMITTED:
                        self._committed.update(transaction.offsets)
            done = {
                worker.task.role
                for worker in self._workers
                if worker.journal.committed_begin > self._marked_at
            }
        roles = [role for role in ("move", "process") if role not in done]
        return [f"a transaction of role {role}" for role in roles] + uncommitted(
            GROUP, partitions, self._committed
        )

    def leftovers(self) -> Leftovers:
        """Return the transactional ids, and their producers in all partitions."""
        with self._lock:
            ids = {each.transactional_id for each in self.history.transactions.values()}
        partitions = sum(self.topics.values())
        return Leftovers(transactional_ids=len(ids), producers_in_partitions=len(ids) * partitions)

    def sample_offsets(self) -> None:
        """Add the group's stable offsets to the history."""
        started = time.monotonic()
        found = self._committed_offsets()
        ended = time.monotonic()
        with self._lock:
            self.history.samples += [
                OffsetSample(partition, offset, started, ended)
                for partition, offset in found.items()
            ]

    def _committed_offsets(self) -> dict[int, int]:
        partitions = range(self.options.input_partitions)
        offset_reader = _consumer(self._bootstrap, GROUP, "read_committed")
        found = committed_offsets(offset_reader, INPUT_TOPIC, partitions)
        return {n: found.get(n, 0) for n in partitions}

    # The end.

    def abandon(self) -> None:
        """End all processes without waiting."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        for worker in self._workers:
            worker.process.kill()
            worker.process.wait()

    def finish(self) -> TransactionHistory:
        """Stop producers, wait for the other clients, and read everything again."""
        self._may_disturb.clear()
        with self._lock:
            for worker in self._workers:
                worker.resumes_at = 0.0 if worker.resumes_at is not None else None
        self._await(lambda: self._due == [], "the last replacements")
        self._end_role("move")
        self._await_end_of_transactions()
        self._await(
            self._group_is_at_the_end,
            lambda: f"the group did not come to the end\n{self.describe()}",
        )
        self._end_role("process")
        self._await_end_of_transactions()
        history = self.history
        history.committed_offsets = self._committed_offsets()
        for topic, partitions in self.topics.items():
            for partition in range(partitions):
                place = (topic, partition)
                history.logs[place] = read_committed_log(self._bootstrap, place)
        self._await(
            self._readers_are_at_the_end,
            lambda: f"readers did not come to the end\n{self.describe()}",
        )
        self._end_role("read")
        self._stopping.set()
        self._thread.join()
        self.check_alive()
        return history

    def _await(
        self, look: Callable[[], bool], missing: object, within_s: float = PATIENCE_S
    ) -> None:
        def is_met() -> bool:
            self.check_alive()
            with self._lock:
                return look()

        eventually(is_met, missing, within_s)

    def _end_role(self, role: str) -> None:
        """Stop the processes of a role. Fenced or replaced processes end by themselves."""
        with self._lock:
            own = [worker for worker in self._workers if worker.task.role == role]
            for worker in own:
                worker.is_stopped = True
                worker.process.terminate()
        self._await(
            lambda: not any(worker in self._workers for worker in own),
            lambda: "\n".join([f"{role} did not end", *map(_work_of, own)]),
            # A process may first repeat a call whose result is unknown.
            CALL_S + PATIENCE_S,
        )

    def _await_end_of_transactions(self) -> None:
        """Wait until transactions time out. The checker reports those that still hang."""
        deadline = time.monotonic() + END_OF_TRANSACTIONS_S
        with Client(self._bootstrap, **QUICK) as client:
            while not self._are_all_ended(client) and time.monotonic() < deadline:
                time.sleep(0.2)

    def _are_all_ended(self, client: Client) -> bool:
        places = [(t, n) for t, count in self.topics.items() for n in range(count)]
        try:
            listed = client.admin.list_transactions()
            latest = dict.fromkeys(places, "latest")
            stable = client.list_offsets(latest, isolation_level="read_committed")
            high = client.list_offsets(latest, isolation_level="read_uncommitted")
        except ClientError:
            return False
        self.history.states = {each.transactional_id: each.state for each in listed}
        self.history.ends = {
            place: Ends(stable[place].offset, high[place].offset)  # type: ignore[index]
            for place in places
        }
        return not any(state in UNENDED for state in self.history.states.values()) and all(
            ends.last_stable_offset == ends.high_watermark for ends in self.history.ends.values()
        )

    def _group_is_at_the_end(self) -> bool:
        """Return whether the group has processed all input, some of which it produces itself."""
        found = self._committed_offsets()
        for partition in range(self.options.input_partitions):
            log = read_committed_log(self._bootstrap, (INPUT_TOPIC, partition))
            if log.offsets and found[partition] <= log.offsets[-1]:
                return False
        return True

    def _readers_are_at_the_end(self) -> bool:
        last: dict[tuple[str, Place], int] = {}
        for run in self.history.runs:
            last[run.reader, run.place] = run.offsets[-1]
        return all(
            last.get((f"read-{client}", place), -1) >= log.offsets[-1]
            for client in ("own", "librdkafka")
            for place, log in self.history.logs.items()
            if log.offsets
        )

    def figures(self) -> str:
        """Return the number of transactions as text."""
        results = [each.result for each in self.history.transactions.values()]
        counts = ", ".join(f"{results.count(each)} {each.value}" for each in Result)
        return f"{len(results)} transactions ({counts}), {self.counts}"


def _work_of(worker: Worker) -> str:
    """Return what a process has printed, and what its threads do, if it runs."""
    if worker.process.poll() is not None:
        return f"{worker.task.name}: ended"
    worker.process.send_signal(signal.SIGUSR1)
    time.sleep(1.0)
    journal = Path(worker.task.journal)
    log = journal.with_suffix(".log").read_text()
    return f"{worker.task.name}: journal:\n{journal.read_text()[-1000:]}\nlog:\n{log[-3000:]}"


def _consumer(bootstrap: str, group: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
            **QUICK,
        }
    )


def read_committed_log(bootstrap: str, place: Place) -> CommittedLog:
    """Return the records of a partition that a read_committed reader gets."""
    consumer = _consumer(bootstrap, "reads-committed", "read_committed")
    log = CommittedLog(place)
    try:
        consumer.assign([TopicPartition(*place, 0)])

        def has_all() -> bool:
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    offset = message.offset()
                    assert offset is not None
                    log.add(offset, content_in(message.value()))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    return True
            return False

        eventually(has_all, f"{place} cannot be read to its end")
        return log
    finally:
        consumer.close()
