"""Clients on simulated hosts, whose work is a generator that yields the awaited conditions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, TypeVar

from barnabas.client.config import ClientConfig
from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.consumer import consumer_plans
from barnabas.client.consumer.consumer_calls import ConsumerCalls, ConsumerIterator
from barnabas.client.consumer.consumer_core import ConsumerCore
from barnabas.client.consumer.user_objects import take_user_objects
from barnabas.client.errors import ClientError, ClientTimeoutError, ProducerFencedError
from barnabas.client.producer import producer_plans
from barnabas.client.producer.producer_core import ProducerCore
from barnabas.client.producer.user_objects import take_parts
from barnabas.client.session.plans import Until, WaitingPlan
from barnabas.client.topic_partition import TopicPartition
from chaos.transactional.clients import AbortableError, FatalError
from chaos.transactional.history import Place

if TYPE_CHECKING:
    from barnabas.client.consumer.consumer_records import ConsumerRecords
    from barnabas.client.group.membership import OnHostDone
    from barnabas.runtime.loop import Runtime

T = TypeVar("T")
Work = Generator[Until, bool, T]
# Interval at which an actor checks its awaited condition.
TICK_MS = 2.0
# Time limit of the retries of a call. Then its result is unknown.
CALL_MS = 60_000.0
ATTEMPT_S = 5.0
TRANSACTION_TIMEOUT_MS = 5_000
DEFAULT_KEYS = {
    "request.timeout.ms": 2_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "metadata.max.age.ms": 2_000,
}


class Actor:
    """Runs work on a host until it ends, or the host is killed.

    Args:
        runtime: the runtime of the host.
        work: yields the conditions that it waits for.
        pump: called before each check of the condition.
    """

    def __init__(self, runtime: Runtime, work: Work[None], pump: Callable[[], None]) -> None:
        self._clock, self._timer = runtime.clock, runtime.timer
        self._work = work
        self._pump = pump
        self._deadline_ms = 0.0
        self._condition: Callable[[], bool] = bool
        self.is_paused = False
        self.has_ended = False
        self._timer.call_later(TICK_MS, lambda: self._advance(None))

    def _advance(self, outcome: bool | None) -> None:
        try:
            step = self._work.send(outcome)  # type: ignore[arg-type]
        except (StopIteration, FatalError):
            self.has_ended = True
            return
        self._condition = step.condition
        self._deadline_ms = self._clock.monotonic_ms() + step.limit_ms
        self._timer.call_later(TICK_MS, self._look)

    def _look(self) -> None:
        if self.is_paused:
            self._timer.call_later(TICK_MS, self._look)
            return
        self._pump()
        if self._condition():
            self._advance(True)
        elif self._clock.monotonic_ms() >= self._deadline_ms:
            self._advance(False)
        else:
            self._timer.call_later(TICK_MS, self._look)


def sleep(duration_ms: float) -> Work[None]:
    """Wait."""
    yield Until(lambda: False, duration_ms)


class Session:
    """The parts of a client's session that cores use."""

    def __init__(self, runtime: Runtime, config: ClientConfig) -> None:
        self.cluster = Cluster(runtime, config)
        self.coordinators = Coordinators(self.cluster)

    def check_usable(self) -> None:
        """Allow all calls."""


class ActingProducer:
    """A transactional producer on a simulated host."""

    def __init__(self, runtime: Runtime, bootstrap: str, transactional_id: str) -> None:
        self._clock = runtime.clock
        parts, keys = take_parts({})
        config = ClientConfig.parse(
            {
                **DEFAULT_KEYS,
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "delivery.timeout.ms": int(CALL_MS),
                "linger.ms": 0,
                **keys,
            }
        )
        self.core = ProducerCore(Session(runtime, config), config, parts)
        self.errors: list[ClientError] = []

    def pump(self) -> None:
        """Send the due records."""
        self.core.accumulator.make_lingered_due()
        self.core.sender.pump()

    def _call(self, plan: Callable[[], WaitingPlan[T]]) -> Work[T]:
        """Call, and retry while the client reports that the result is pending."""
        deadline_ms = self._clock.monotonic_ms() + CALL_MS
        while True:
            try:
                return (yield from plan())
            except ClientTimeoutError as error:
                self.errors.append(error)
                if self._clock.monotonic_ms() > deadline_ms:
                    raise FatalError from error
            except ProducerFencedError as error:
                self.errors.append(error)
                raise FatalError from error
            except ClientError as error:
                self.errors.append(error)
                raise AbortableError from error

    def initialize(self) -> Work[None]:
        """Fence earlier producers of the id."""
        yield from self._call(lambda: producer_plans.init_transactions(self.core, ATTEMPT_S))

    def begin(self) -> None:
        """Begin a transaction."""
        try:
            self.core.transactions.begin()
        except ClientError as error:
            self.errors.append(error)
            raise FatalError from error

    def send(self, place: Place, value: bytes) -> Work[None]:
        """Queue a record."""
        topic, partition = place
        record = (None, value, partition)

        def plan() -> WaitingPlan[None]:
            now_ms = self._clock.wall_ms()
            if self.core.enqueue(topic, *record, {}, now_ms) is None:
                yield from producer_plans.enqueue(self.core, topic, record, {}, now_ms)

        yield from self._call(plan)

    def flush(self) -> Work[None]:
        """Wait for the records."""
        yield from self._call(lambda: producer_plans.flush(self.core))

    def send_offsets(self, offsets: dict[Place, int], group: str) -> Work[None]:
        """Commit the group's offsets in the transaction."""
        places = {TopicPartition(*place): offset for place, offset in offsets.items()}
        yield from self._call(
            lambda: producer_plans.send_offsets_to_transaction(self.core, places, group, ATTEMPT_S)
        )

    def commit(self) -> Work[None]:
        """Commit the transaction."""
        yield from self._call(lambda: producer_plans.commit_transaction(self.core, ATTEMPT_S))

    def abort(self) -> Work[None]:
        """Abort the transaction."""
        yield from self._call(lambda: producer_plans.abort_transaction(self.core, ATTEMPT_S))


class ActingConsumer:
    """A consumer on a simulated host, which reads assigned partitions."""

    def __init__(
        self, runtime: Runtime, bootstrap: str, group: str = "", isolation: str = "read_committed"
    ) -> None:
        self._clock = runtime.clock
        config = ClientConfig.parse(
            {
                **DEFAULT_KEYS,
                "bootstrap.servers": bootstrap,
                "group.id": group or None,
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "default.api.timeout.ms": 10_000,
            }
        )
        cluster = Cluster(runtime, config)
        parts, _ = take_user_objects({})
        self._core = ConsumerCore(cluster, Coordinators(cluster), parts, _run)
        self._calls = ConsumerCalls(cluster, self._core, ConsumerIterator(self._core))
        self.errors: list[ClientError] = []

    def pump(self) -> None:
        """Let the consumer make progress."""
        try:
            self._core.round()
        except ClientError as error:
            self.errors.append(error)

    def assign(self, offsets: dict[Place, int]) -> None:
        """Read partitions from these offsets."""
        self._core.assign(offsets)
        for place, offset in offsets.items():
            self._core.positions.seek(TopicPartition(*place), offset, -1)

    def take(self, limit: int) -> ConsumerRecords | None:
        """Return received records; None without any."""
        try:
            return self._core.take(limit) or None
        except ClientError as error:
            self.errors.append(error)
            return None

    def position(self, place: Place) -> int:
        """Return the next offset to read."""
        return self._core.subscription.partition(TopicPartition(*place)).offset

    def committed(self, places: Iterable[Place]) -> Work[dict[Place, int]]:
        """Return the group's stable offsets; 0 for partitions without one."""
        wanted = list(places)
        found = yield from self._look_up(lambda: consumer_plans.committed(self._calls, wanted))
        told = {tuple(tp): 0 if at is None else at.offset for tp, at in found.items()}
        return {place: told[place] for place in wanted}

    def ends(self, places: Iterable[Place]) -> Work[dict[Place, int]]:
        """Return the end offsets of partitions for the isolation level."""
        wanted = list(places)
        found = yield from self._look_up(lambda: consumer_plans.end_offsets(self._calls, wanted))
        return {place: found[TopicPartition(*place)] for place in wanted}

    def _look_up(self, plan: Callable[[], WaitingPlan[T]]) -> Work[T]:
        """Retry a lookup until it succeeds."""
        deadline_ms = self._clock.monotonic_ms() + CALL_MS
        while True:
            try:
                return (yield from plan())
            except ClientError as error:
                self.errors.append(error)
            if self._clock.monotonic_ms() > deadline_ms:
                raise FatalError
            yield from sleep(50)


def _run(call: Callable[[], object], on_done: OnHostDone) -> None:
    call()
    on_done(None)
