"""Three simulated brokers with transactional clients and faults, by a seed.

Movers write transactions to several partitions and abort some of them. One processor consumes them,
produces, and commits its offsets in the transaction; its transactional id fences earlier ones. A
reader follows with read_committed, and another client fetches the group's offsets. Time is
virtual.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

from barnabas.coordinator.runtime.coordinator_runtime import partition_for
from barnabas.metadata.metadata_version import TRANSACTION_VERSION, TRANSACTION_VERSION_MAX
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.messages.transactions import ListTransactionsRequest
from barnabas.runtime.loop import Runtime
from chaos.transaction_checker import UNENDED
from chaos.transactional.clients import AbortableError, FatalError
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
)
from simulation.cluster_world import BOOTSTRAP, NODES, ClusterWorld
from simulation.transactions.actors import (
    TRANSACTION_TIMEOUT_MS,
    ActingConsumer,
    ActingProducer,
    Actor,
    Work,
    sleep,
)
from simulation.transactions.lingering_sockets import lingering
from unit.server.simulated_cluster import TIMEOUT_MS

INPUT, OUTPUT = "in", "out"
PARTITIONS = {INPUT: 3, OUTPUT: 2}
PLACES: tuple[Place, ...] = tuple((t, n) for t, count in PARTITIONS.items() for n in range(count))
INPUTS = tuple(place for place in PLACES if place[0] == INPUT)
TRANSACTIONS, OFFSETS = INTERNAL = ("__transaction_state", "__consumer_offsets")
GROUP = "processors"
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
}
# Time after the last fault in which coordinators abort the remaining open transactions.
HANGING_MS = TRANSACTION_TIMEOUT_MS + 15_000.0
# Time from the send to the abort of a hasty client: longer than it takes to add partitions.
ABORT_DELAY_MS = 30.0
# UpgradeType of UpdateFeatures: a downgrade that loses nothing.
SAFE_DOWNGRADE = 2


class Phase(Enum):
    """Phase of a client's current transaction."""

    IDLE = "idle"
    SENDING = "sending records"
    SENDING_OFFSETS = "sending offsets"
    COMMITTING = "committing"
    ABORTING = "aborting"


@dataclass
class Client:
    """A client on a separate host."""

    role: str
    name: str
    instance: int
    host: str
    actor: Actor
    # Whether the client ends after its transaction.
    is_stopped: bool = False
    # Whether another client has its transactional id.
    is_replaced: bool = False
    # Current or last transaction, and its phase.
    current: Transaction | None = None
    phase: Phase = Phase.IDLE
    # Number of transactions that the client has begun.
    begun: int = 0
    # Earliest end of its transaction (virtual seconds).
    ends_after: float = 0.0
    # Whether it aborts its transaction while records are in flight.
    must_abort: bool = False


class TransactionalWorld(ClusterWorld):
    """The cluster, its clients and their history.

    Args:
        seed: seed of all random choices.
        transaction_version: level of the feature. Below 2, clients add partitions themselves, keep
            their epoch from one transaction to the next, and close connections as Java clients do.
        settings: broker keys.
    """

    def __init__(
        self, seed: int, transaction_version: int = TRANSACTION_VERSION_MAX, **settings: str
    ) -> None:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        super().__init__(seed, {**SETTINGS, **given})
        self.history = TransactionHistory(INPUT, OUTPUT)
        self.clients: list[Client] = []
        self._transaction_version = transaction_version
        if transaction_version != TRANSACTION_VERSION_MAX:
            self._downgrade_transactions(transaction_version)
        for topic, partitions in PARTITIONS.items():
            self.make_topic(topic, partitions)
        self.await_full_isr()

    def _downgrade_transactions(self, level: int) -> None:
        key = FeatureUpdateKey(
            feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=SAFE_DOWNGRADE
        )
        request = UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[key])
        assert self.cluster.ask(self.cluster.active, request, 2).error_code == 0
        self.cluster.until(
            lambda: all(
                self.cluster.image(node).features.transaction_version == level for node in NODES
            )
        )

    # Clients.

    def launch(self, role: str, name: str) -> Client:
        """Start a client. It fences earlier producers when it initializes."""
        instance = self.next_instance()
        host = f"{name}-{instance}"
        runtime = self.cluster.world.host(host).runtime
        client = Client(role, name, instance, host, None)  # type: ignore[arg-type]
        if role == "read":
            consumer = ActingConsumer(runtime, BOOTSTRAP)
            client.actor = Actor(runtime, self._read(client, consumer), consumer.pump)
        elif role == "look":
            consumer = ActingConsumer(runtime, BOOTSTRAP, GROUP)
            client.actor = Actor(runtime, self._look(client, consumer), consumer.pump)
        elif role == "move":
            producer = self._new_producer(runtime, name)
            client.actor = Actor(runtime, self._move(client, producer), producer.pump)
        else:
            producer = self._new_producer(runtime, name)
            consumer = ActingConsumer(runtime, BOOTSTRAP, GROUP)

            def pump() -> None:
                producer.pump()
                consumer.pump()

            client.actor = Actor(runtime, self._process(client, producer, consumer), pump)
        self.clients.append(client)
        return client

    def _new_producer(self, runtime: Runtime, transactional_id: str) -> ActingProducer:
        is_old = self._transaction_version < TRANSACTION_VERSION_MAX
        return ActingProducer(
            lingering(runtime) if is_old else runtime, BOOTSTRAP, transactional_id
        )

    def coordinator(self, key: str, topic: str = TRANSACTIONS) -> int:
        """Return the coordinator of a transactional id, or of a group; -1 without one."""
        # Both topics have two partitions.
        return self.leader((topic, partition_for(key, 2)))

    def kill(self, client: Client) -> None:
        """Kill a client."""
        self.cluster.world.host(client.host).kill()
        client.actor.has_ended = True

    def replace_ended(self) -> None:
        """Replace each client that has ended."""
        for client in list(self.clients):
            if client.actor.has_ended:
                self.clients.remove(client)
                if not client.is_stopped and not client.is_replaced:
                    self.launch(client.role, client.name)

    def _initialize(self, client: Client, producer: ActingProducer) -> Work[None]:
        asked = self.now
        try:
            yield from producer.initialize()
        except AbortableError as error:
            raise FatalError from error
        self.history.initializations.append(
            Initialization(client.name, client.instance, asked, self.now)
        )

    def _begin(
        self, client: Client, serial: int, places: list[Place], offsets: dict[int, int]
    ) -> Transaction:
        number = number_of(client.instance, serial)
        made = Transaction(
            number, client.name, client.instance, tuple(places), self.now, dict(offsets)
        )
        self.history.transactions[number] = made
        client.current, client.phase, client.begun = made, Phase.SENDING, serial
        return made

    def _end(self, client: Client, producer: ActingProducer, *, is_commit: bool) -> Work[None]:
        made = client.current
        assert made is not None
        client.phase = Phase.COMMITTING if is_commit else Phase.ABORTING
        if is_commit:
            made.commit_asked = self.now
            yield from producer.commit()
            made.result = Result.COMMITTED
        else:
            yield from producer.abort()
            made.result = Result.ABORTED
        made.ended = self.now
        client.phase = Phase.IDLE

    def _move(self, client: Client, producer: ActingProducer) -> Work[None]:
        rng = random.Random(self.rng.random())
        yield from self._initialize(client, producer)
        serial = 0
        while not client.is_stopped:
            serial += 1
            amounts = [each for _ in range(rng.randint(1, 3)) for each in (-5, 5)]
            places = [rng.choice(INPUTS) for _ in amounts]
            made = self._begin(client, serial, places, {})
            producer.begin()
            try:
                is_commit = rng.random() < 0.8 and not client.must_abort
                if client.must_abort:
                    yield from self._send_unacknowledged(client, producer, amounts)
                else:
                    yield from self._send_moves(made, producer, amounts, rng)
                if client.ends_after > self.now:
                    yield from producer.flush()
                    yield from sleep((client.ends_after - self.now) * 1000)
                yield from self._end(client, producer, is_commit=is_commit)
            except AbortableError:
                yield from self._abort(client, producer)
            yield from sleep(rng.expovariate(1 / 60))

    def _send_unacknowledged(
        self, client: Client, producer: ActingProducer, amounts: list[int]
    ) -> Work[None]:
        """Send records without waiting for their acknowledgement."""
        made = client.current
        assert made is not None
        for index, (place, amount) in enumerate(zip(made.places, amounts, strict=True)):
            content = Content(code_of(made.number, index), len(amounts), amount)
            yield from producer.send(place, content.to_value())
        yield from sleep(ABORT_DELAY_MS)
        client.must_abort = False

    def _send_moves(
        self, made: Transaction, producer: ActingProducer, amounts: list[int], rng: random.Random
    ) -> Work[None]:
        for index, (place, amount) in enumerate(zip(made.places, amounts, strict=True)):
            content = Content(code_of(made.number, index), len(amounts), amount)
            yield from producer.send(place, content.to_value())
            if rng.random() < 0.3:
                yield from producer.flush()
            if rng.random() < 0.02:
                yield from sleep(rng.choice((200, 1000, TRANSACTION_TIMEOUT_MS * 1.3)))
        if rng.random() < 0.7:
            yield from producer.flush()

    def _abort(self, client: Client, producer: ActingProducer) -> Work[None]:
        try:
            yield from self._end(client, producer, is_commit=False)
        except AbortableError as error:
            raise FatalError from error

    def _process(
        self, client: Client, producer: ActingProducer, consumer: ActingConsumer
    ) -> Work[None]:
        rng = random.Random(self.rng.random())
        yield from self._initialize(client, producer)
        serial = 0
        consumer.assign((yield from consumer.committed(INPUTS)))
        runs = self._new_runs(client.name, INPUTS)
        while not client.is_stopped:
            inputs = self._taken(consumer, 10, runs)
            if not inputs:
                yield from sleep(10)
                continue
            serial += 1
            places = [(OUTPUT, content.code % PARTITIONS[OUTPUT]) for *_, content in inputs]
            following = {place: offset + 1 for place, offset, _ in inputs}
            offsets = {place[1]: offset for place, offset in following.items()}
            made = self._begin(client, serial, places, offsets)
            producer.begin()
            try:
                for index, (place, offset, _) in enumerate(inputs):
                    content = Content(
                        code_of(made.number, index), len(inputs), 0, 0, (place[1], offset)
                    )
                    yield from producer.send(places[index], content.to_value())
                client.phase = Phase.SENDING_OFFSETS
                yield from producer.send_offsets(following, GROUP)
                yield from self._end(client, producer, is_commit=rng.random() < 0.8)
            except AbortableError:
                yield from self._abort(client, producer)
            if made.result is Result.ABORTED:
                consumer.assign((yield from consumer.committed(INPUTS)))
                runs = self._new_runs(client.name, INPUTS)

    def _read(self, client: Client, consumer: ActingConsumer) -> Work[None]:
        consumer.assign(dict.fromkeys(PLACES, 0))
        runs = self._new_runs(client.name, PLACES)
        while not client.is_stopped:
            self._taken(consumer, 100, runs)
            yield from sleep(20)

    def _look(self, client: Client, consumer: ActingConsumer) -> Work[None]:
        """Fetch the group's stable offsets repeatedly."""
        while not client.is_stopped:
            started = self.now
            found = yield from consumer.committed(INPUTS)
            self.history.samples += [
                OffsetSample(place[1], offset, started, self.now) for place, offset in found.items()
            ]
            yield from sleep(30)

    def _new_runs(self, name: str, places: tuple[Place, ...]) -> dict[Place, ReadRun]:
        runs = {place: ReadRun(name, place) for place in places}
        self.history.runs += runs.values()
        return runs

    def _taken(
        self, consumer: ActingConsumer, limit: int, runs: dict[Place, ReadRun]
    ) -> list[tuple[Place, int, Content]]:
        records = consumer.take(limit)
        found: list[tuple[Place, int, Content]] = []
        for record in records or ():
            place, content = (record.topic, record.partition), content_in(record.value)
            runs[place].add(record.offset, content.code, self.now)
            found.append((place, record.offset, content))
        return found

    # The end.

    def sample_offsets(self) -> None:
        """Add the group's stable offsets to the history."""

        def work(consumer: ActingConsumer) -> Work[None]:
            started = self.now
            found = yield from consumer.committed(INPUTS)
            self.history.committed_offsets = {place[1]: at for place, at in found.items()}
            self.history.samples += [
                OffsetSample(partition, offset, started, self.now)
                for partition, offset in self.history.committed_offsets.items()
            ]

        self.perform(work, "read_committed", GROUP)

    def finish(self) -> TransactionHistory:
        """Stop movers, wait for the other clients, and read everything again."""
        self._stop("move")
        self._await_end_of_transactions()
        self._read_logs()
        if self._has_hanging_transaction():
            # The history already has a violation. Clients that wait for this transaction never end.
            return self.history
        ends = {place: log.offsets[-1] for place, log in self.history.logs.items() if log.offsets}

        def is_processed() -> bool:
            self.replace_ended()
            done: dict[int, int] = {}
            for each in self.history.transactions.values():
                for partition, offset in each.offsets.items():
                    if each.result is Result.COMMITTED:
                        done[partition] = max(offset, done.get(partition, 0))
            return all(done.get(place[1], 0) > ends.get(place, -1) for place in INPUTS)

        # The checker detects a processor without progress by its offsets.
        self.await_that(is_processed, HANGING_MS)
        self._stop("process")
        self._stop("look")
        self._await_end_of_transactions()
        self._read_logs()
        self.sample_offsets()
        self.await_that(self._has_reader_read_all, HANGING_MS)
        self._stop("read")
        return self.history

    def _stop(self, role: str) -> None:
        own = [client for client in self.clients if client.role == role]
        for client in own:
            client.is_stopped = True
            client.actor.is_paused = False
        if self.await_that(lambda: all(client.actor.has_ended for client in own), HANGING_MS):
            return
        self._sample_states()
        for client in own:
            if not client.actor.has_ended:
                # Only a hanging transaction may block a client. The checker reports it.
                state = self.history.states.get(client.name)
                assert state in UNENDED, f"{client.name} does not end; transaction: {state}"
                self.kill(client)

    def _await_end_of_transactions(self) -> None:
        """Wait until transactions time out. The checker reports those that still hang."""
        deadline = self.now + HANGING_MS / 1000
        while self.now < deadline:
            self._sample_states()
            self._sample_ends()
            if not any(state in UNENDED for state in self.history.states.values()) and all(
                ends.last_stable_offset == ends.high_watermark
                for ends in self.history.ends.values()
            ):
                return
            self.run_for(300)

    def _has_hanging_transaction(self) -> bool:
        """Return whether a transaction of a stopped client is still open."""
        running = {client.name for client in self.clients if client.role == "process"}
        return any(
            state in UNENDED
            for transactional_id, state in self.history.states.items()
            if transactional_id not in running
        )

    def _sample_states(self) -> None:
        self.history.states = {}
        for node in NODES:
            request = ListTransactionsRequest(
                state_filters=[], producer_id_filters=[], duration_filter=-1
            )
            response = self.cluster.ask(node, request, 1)
            assert ErrorCode(response.error_code) is ErrorCode.NONE
            for each in response.transaction_states:
                self.history.states[each.transactional_id] = each.transaction_state

    def _sample_ends(self) -> None:
        found: dict[str, dict[Place, int]] = {}
        for isolation in ("read_committed", "read_uncommitted"):

            def work(consumer: ActingConsumer, isolation: str = isolation) -> Work[None]:
                found[isolation] = yield from consumer.ends(PLACES)

            self.perform(work, isolation, GROUP)
        self.history.ends = {
            place: Ends(found["read_committed"][place], found["read_uncommitted"][place])
            for place in PLACES
        }

    def _read_logs(self) -> None:
        logs = self.history.logs = {place: CommittedLog(place) for place in PLACES}

        def work(consumer: ActingConsumer) -> Work[None]:
            ends = yield from consumer.ends(PLACES)
            consumer.assign(dict.fromkeys(PLACES, 0))
            while any(consumer.position(place) < end for place, end in ends.items()):
                for record in consumer.take(500) or ():
                    content = content_in(record.value)
                    logs[record.topic, record.partition].add(record.offset, content)
                yield from sleep(5)

        self.perform(work, "read_committed", GROUP)

    def _has_reader_read_all(self) -> bool:
        last = {run.place: run.offsets[-1] for run in self.history.runs if run.offsets}
        return all(
            last.get(place, -1) >= log.offsets[-1]
            for place, log in self.history.logs.items()
            if log.offsets
        )
