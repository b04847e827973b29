"""The steps of stories about transactions, and the check of their results."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from barnabas.testing.cluster_process import ClusterProcess
from chaos.cluster_view import ClusterView, NoAnswerError
from chaos.load import Errors, plain_consumer
from group_offsets import committed_offsets
from scenario.segments import read_replica
from scenario.transactions.ledger import Ledger, Result, Transaction, find_faults
from scenario.transactions.load import TransactionLoad
from scenario.transactions.producers import PRODUCERS
from scenario.transactions.readers import (
    READERS,
    LibrdkafkaReader,
    OwnReader,
    read_committed,
    visible_now,
)
from scenario.transactions.refused import Refused
from scenario.transactions.remote_producer import RemoteProducer
from waiting import PATIENCE_S, eventually, eventually_equal

DEFAULT_TIMEOUT_MS = 300_000
INTERNAL_TOPICS = ("__transaction_state", "__consumer_offsets")
_TRANSACTION_KEY = 1


@dataclass
class _Actor:
    """A producer of the story."""

    name: str
    transactional_id: str
    remote: RemoteProducer
    # The open or the last transaction.
    transaction: Transaction | None = None
    # The result of the transaction if the call in progress succeeds.
    pending: Result | None = None
    is_alive: bool = True

    @property
    def current(self) -> Transaction:
        """The open transaction."""
        found = self.transaction
        assert found is not None, f"the story has no {self.name} begins"
        assert found.result is Result.OPEN, f"{found} has ended"
        return found


class TransactionSteps:
    """Transactional producers and readers of one cluster.

    Args:
        cluster: its processes.
    """

    def __init__(self, cluster: ClusterProcess) -> None:
        self._cluster = cluster
        self._view = ClusterView(cluster)
        self._actors: dict[str, _Actor] = {}
        self._loads: list[TransactionLoad] = []
        self._ended_loads: list[TransactionLoad] = []
        self._readers: list[OwnReader | LibrdkafkaReader] = []
        self.ledger = Ledger()
        self.errors = Errors()

    def close(self) -> None:
        """Stop all producers and readers, without ending their transactions."""
        for actor in self._actors.values():
            actor.remote.kill()
        for worker in [*self._loads, *self._readers]:
            worker.stop()

    # Producers

    def produce_as(self, actor: str, b_actor: str | None = None, kind: str = "barnabas") -> None:
        self._add(actor, b_actor or actor, kind, DEFAULT_TIMEOUT_MS)

    def librdkafka(self, actor: str, b_actor: str | None = None) -> None:
        self._add(actor, b_actor or actor, "librdkafka", DEFAULT_TIMEOUT_MS)

    def produce_with_timeout(self, actor: str, ms: str) -> None:
        self._add(actor, actor, "barnabas", int(ms))

    def librdkafka_with_timeout(self, actor: str, ms: str) -> None:
        self._add(actor, actor, "librdkafka", int(ms))

    def _add(self, name: str, transactional_id: str, kind: str, timeout_ms: int) -> None:
        remote = RemoteProducer(kind, self._cluster.bootstrap, transactional_id, timeout_ms)
        self._actors[name] = _Actor(name, transactional_id, remote)
        remote.call("initialize")

    def begin(self, actor: str) -> None:
        found = self._actors[actor]
        assert found.transaction is None or found.transaction.result is not Result.OPEN
        found.remote.call("begin")
        found.transaction = self.ledger.begin(actor)

    def send(self, actor: str, n: str, topic: str) -> None:
        found = self._actors[actor]
        values = found.current.new_values(topic, int(n))
        found.remote.call("send", topic, [value.decode() for value in values])

    def cannot_send(self, actor: str, topic: str) -> None:
        found = self._actors[actor]
        values = found.current.new_values(topic, 1)
        self._expect_refusal(found, "send", topic, [value.decode() for value in values])

    def send_offset(self, actor: str, n: str, topic: str, group: str) -> None:
        found = self._actors[actor]
        found.current.offsets[group, topic] = int(n)
        found.remote.call("send_offset", group, topic, int(n))

    def commit(self, actor: str) -> None:
        self.start_commit(actor)
        self.end(actor)

    def abort(self, actor: str) -> None:
        self.start_abort(actor)
        self.end(actor)

    def start_commit(self, actor: str) -> None:
        found = self._actors[actor]
        assert found.current
        found.remote.start("commit")
        found.pending = Result.COMMITTED

    def start_abort(self, actor: str) -> None:
        found = self._actors[actor]
        assert found.current
        found.remote.start("abort")
        found.pending = Result.ABORTED

    def end(self, actor: str) -> None:
        found = self._actors[actor]
        assert found.pending is not None, f"{actor} neither commits nor aborts"
        found.remote.result()
        found.current.result, found.pending = found.pending, None

    def cannot_commit(self, actor: str) -> None:
        found = self._actors[actor]
        assert found.current
        self._expect_refusal(found, "commit")
        found.current.result = Result.ABORTED

    def _expect_refusal(self, actor: _Actor, name: str, *arguments: object) -> None:
        try:
            actor.remote.call(name, *arguments)
        except Refused:
            return
        raise AssertionError(f"{actor.name}: {name} succeeded")

    def kill(self, actor: str) -> None:
        found = self._actors[actor]
        found.remote.kill()
        found.is_alive = False
        last = found.transaction
        if last is not None and last.result is Result.OPEN:
            is_committing = found.pending is Result.COMMITTED
            last.result = Result.UNKNOWN if is_committing else Result.ABORTED

    def pause(self, actor: str) -> None:
        self._actors[actor].remote.pause()

    def resume(self, actor: str) -> None:
        self._actors[actor].remote.resume()

    def keep_transacting(self, topic: str, b_topic: str, word: str | None = None) -> None:
        for kind in PRODUCERS if word is None else (word,):
            load = TransactionLoad(kind, self._cluster.bootstrap, [topic, b_topic], self.ledger)
            load.start()
            self._loads.append(load)

    def await_transactions(self, n: str) -> None:
        """Wait for that many more commits of each producer of the load."""
        expected = {load.name: load.committed + int(n) for load in self._loads}

        def have_committed() -> bool:
            for load in self._loads:
                if load.death is not None:
                    raise load.death
            return all(load.committed >= expected[load.name] for load in self._loads)

        eventually(
            have_committed,
            lambda: f"{[(x.name, x.committed) for x in self._loads]}, expected {expected}",
        )

    def stop_transacting(self) -> None:
        for load in self._loads:
            load.stop()
        for load in self._loads:
            load.join()
        self._ended_loads += self._loads
        self._loads = []

    def keep_reading(self, topic: str) -> None:
        for kind in READERS:
            reader = kind(self._cluster.bootstrap, topic, self.errors)
            reader.start()
            self._readers.append(reader)

    # Coordinators

    def coordinator(self, actor: str) -> int:
        """Return the node of the transaction coordinator of an actor's transactional id.

        Raises:
            NoAnswerError: no broker has found the coordinator.
        """
        known = self._actors.get(actor)
        key = actor if known is None else known.transactional_id
        request = FindCoordinatorRequest(key_type=_TRANSACTION_KEY, coordinator_keys=[key])
        for node in self._view.answering():
            try:
                result = self._view.ask(node, request, 4).coordinators[0]
            except OSError:
                continue
            if result.error_code == ErrorCode.NONE:
                return int(result.node_id)
        raise NoAnswerError(f"no broker has found the transaction coordinator of {key}")

    def state(self, actor: str) -> str:
        """Return the state of an actor's transactional id, such as Ongoing.

        Raises:
            NoAnswerError: there is no coordinator, or it returned an error.
        """
        key = self._actors[actor].transactional_id
        request = DescribeTransactionsRequest(transactional_ids=[key])
        response = self._view.ask(self.coordinator(actor), request, 0).transaction_states[0]
        if response.error_code != ErrorCode.NONE:
            raise NoAnswerError(f"{key}: {ErrorCode(response.error_code).name}")
        return str(response.transaction_state)

    def expect_state(self, actor: str, word: str) -> None:
        def observe() -> str:
            try:
                return self.state(actor)
            except (NoAnswerError, OSError) as error:
                return str(error)

        eventually_equal(observe, word)

    # Expected states

    def expect_visible(self, topic: str, n: str) -> None:
        eventually_equal(lambda: len(visible_now(self._cluster.bootstrap, topic)), int(n))

    def expect_pending_offset(self, group: str, topic: str) -> None:
        """Wait until the group's offset is unstable because of a transaction (KIP-447)."""
        places = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
        group_request = OffsetFetchRequestGroup(group_id=group, topics=[places])
        request = OffsetFetchRequest(groups=[group_request], require_stable=True)

        def observe() -> int:
            try:
                result = self._view.ask(self._view.coordinator(group), request, 8).groups[0]
            except (NoAnswerError, OSError):
                return -1
            if result.error_code != ErrorCode.NONE:
                return int(result.error_code)
            return int(result.topics[0].partitions[0].error_code)

        eventually_equal(observe, int(ErrorCode.UNSTABLE_OFFSET_COMMIT))

    def expect_no_failures(self) -> None:
        loads = self._loads + self._ended_loads
        failures = [text for load in loads for text in load.failures]
        assert not failures, failures[:5]

    # The verdict

    def verdict(self) -> list[str]:
        """Return the faults of all transactions.

        Raises:
            AssertionError: transactions do not end, or replicas stay different.
        """
        assert not self._loads, "the story ends without: stop transacting"
        bootstrap = self._cluster.bootstrap
        visible = {topic: read_committed(bootstrap, topic) for topic in self.ledger.topics}
        faults = self._check_readers(visible)
        values = {topic: [value for _, value in found] for topic, found in visible.items()}
        committed = {place: self._committed(*place) for place in self.ledger.offset_places}
        faults += find_faults(self.ledger.transactions, values, committed)
        self._await_equal_replicas()
        return faults

    def _check_readers(self, visible: dict[str, list[tuple[int, bytes]]]) -> list[str]:
        """Wait until the readers reach the end; they must have exactly the visible records."""
        faults = []
        for reader in self._readers:
            expected = visible.get(reader.topic) or read_committed(
                self._cluster.bootstrap, reader.topic
            )
            deadline = time.monotonic() + PATIENCE_S
            while len(reader.records) < len(expected) and time.monotonic() < deadline:
                time.sleep(0.02)
            reader.stop()
            reader.join()
            for number, (got, right) in enumerate(zip(reader.records, expected, strict=False)):
                if got != right:
                    faults.append(f"reader: record {number} of {reader.topic}: {got}, not {right}")
                    break
            if len(reader.records) != len(expected):
                counts = f"{len(reader.records)} records, not {len(expected)}"
                faults.append(f"reader: {type(reader).__name__} of {reader.topic} got {counts}")
        self._readers = []
        return faults

    def _committed(self, group: str, topic: str) -> int:
        """Return a group's committed offset, after all its transactions have ended."""
        offset_reader = plain_consumer(self._cluster.bootstrap, group)
        return committed_offsets(offset_reader, topic, [0]).get(0, -1)

    def _await_equal_replicas(self) -> None:
        for topic in (*self.ledger.topics, *INTERNAL_TOPICS):
            for index, partition in self._view.partitions(topic).items():
                nodes = [self._cluster.node(number) for number in partition.isr]
                eventually(
                    lambda nodes=nodes, topic=topic, index=index: (
                        len({read_replica(n.data_directory, topic, index).data for n in nodes}) == 1
                    ),
                    f"{topic}-{index}: the replicas {partition.isr} differ",
                )


TRANSACTION_METHODS: dict[str, Callable[..., None]] = {
    "producer {actor}": TransactionSteps.produce_as,
    "producer {actor} as {b_actor}": TransactionSteps.produce_as,
    "producer {actor} with timeout {ms} ms": TransactionSteps.produce_with_timeout,
    "librdkafka producer {actor}": TransactionSteps.librdkafka,
    "librdkafka producer {actor} as {b_actor}": TransactionSteps.librdkafka,
    "librdkafka producer {actor} with timeout {ms} ms": TransactionSteps.librdkafka_with_timeout,
    "{actor} begins": TransactionSteps.begin,
    "{actor} sends {n} to {topic}": TransactionSteps.send,
    "{actor} cannot send to {topic}": TransactionSteps.cannot_send,
    "{actor} sends offset {n} of {topic} for {group}": TransactionSteps.send_offset,
    "{actor} commits": TransactionSteps.commit,
    "{actor} aborts": TransactionSteps.abort,
    "{actor} starts to commit": TransactionSteps.start_commit,
    "{actor} starts to abort": TransactionSteps.start_abort,
    "{actor} has ended it": TransactionSteps.end,
    "{actor} cannot commit": TransactionSteps.cannot_commit,
    "kill producer {actor}": TransactionSteps.kill,
    "pause producer {actor}": TransactionSteps.pause,
    "resume producer {actor}": TransactionSteps.resume,
    "keep transacting {topic} {b_topic}": TransactionSteps.keep_transacting,
    "keep transacting {topic} {b_topic} with {word}": TransactionSteps.keep_transacting,
    "await {n} transactions": TransactionSteps.await_transactions,
    "stop transacting": TransactionSteps.stop_transacting,
    "keep reading {topic} committed": TransactionSteps.keep_reading,
    "expect transaction of {actor} = {word}": TransactionSteps.expect_state,
    "expect {topic} shows {n} records": TransactionSteps.expect_visible,
    "expect offset of {group} on {topic} pending": TransactionSteps.expect_pending_offset,
    "expect no failed transactions": TransactionSteps.expect_no_failures,
}
