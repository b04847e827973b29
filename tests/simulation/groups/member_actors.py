"""A member of a consumer group on a simulated host, which records its events."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.client.config import ClientConfig
from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.consumer.assignment.subscription import RebalanceListener
from barnabas.client.consumer.commits import as_offsets
from barnabas.client.consumer.consumer_core import ConsumerCore
from barnabas.client.consumer.user_objects import take_user_objects
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.client.user_code import UserCode
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from chaos.groups.member_history import Heartbeat, MemberHistory
from simulation.transactions.actors import DEFAULT_KEYS
from storms.history import NS_PER_S, Event

if TYPE_CHECKING:
    from barnabas.client.group.membership import OnHostDone
    from barnabas.runtime.loop import Runtime

_INSTANCE_ERRORS = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)
# Longer than any pause, so that no member leaves the group for lack of polls.
POLL_INTERVAL_MS = 60_000


@dataclass(frozen=True)
class Identity:
    """A member's name in the history, and its group."""

    name: str
    group: str
    # None for a dynamic member.
    instance_id: str | None = None
    assignor: str = "uniform"


class ActingMember(RebalanceListener):
    """One member of the group."""

    def __init__(
        self, runtime: Runtime, identity: Identity, history: MemberHistory, bootstrap: str
    ) -> None:
        self._clock = runtime.clock
        self.identity = identity
        self._history = history
        config = ClientConfig.parse(
            {
                **DEFAULT_KEYS,
                "bootstrap.servers": bootstrap,
                "group.id": identity.group,
                "group.instance.id": identity.instance_id,
                "group.protocol": "consumer",
                "group.remote.assignor": identity.assignor,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "max.poll.interval.ms": POLL_INTERVAL_MS,
                "fetch.max.wait.ms": 200,
                "default.api.timeout.ms": 10_000,
            }
        )
        self._cluster = Cluster(runtime, config)
        parts, _ = take_user_objects({})
        self.core = ConsumerCore(self._cluster, Coordinators(self._cluster), parts, _run)
        # Next offsets of the assigned partitions, and the committed offsets.
        self.reached: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.is_committing = False
        self.errors: list[ClientError] = []
        self._watch_heartbeats()

    @property
    def now_ns(self) -> int:
        """Return the virtual time."""
        return round(self._clock.monotonic_ms() / 1000 * NS_PER_S)

    @property
    def owned(self) -> frozenset[int]:
        """The partitions that the member considers its own."""
        return frozenset(tp.partition for tp in self.core.subscription.assignment)

    def _watch_heartbeats(self) -> None:
        """Record heartbeats with a response."""
        cluster: Any = self._cluster
        real = cluster.call_coordinator

        def watched(node_id: int, call: Any) -> None:
            if call.api_key is ApiKey.CONSUMER_GROUP_HEARTBEAT:
                call = call._replace(on_done=self._noting(call.on_done))
            real(node_id, call)

        cluster.call_coordinator = watched

    def _noting(self, on_done: Callable[..., None]) -> Callable[..., None]:
        asked_ns = self.now_ns

        def noted(response: Any, error: ClientError | None) -> None:
            if response is not None:
                is_served = response.error_code == 0 and response.member_epoch > 0
                heartbeat = Heartbeat(self.identity.name, asked_ns, is_served)
                self._history.heartbeats.append(heartbeat)
            on_done(response, error)

        return noted

    # What the group says.

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._note_all("assigned", assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._note_all("revoked", revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._note_all("lost", lost)

    def _note_all(self, kind: str, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self.reached.pop(tp, None)
            self.committed.pop(tp, None)
            self.note(kind, partition=tp.partition, generation=self.generation)

    def note(self, kind: str, **numbers: int) -> None:
        """Record an event."""
        event = Event(self.now_ns, self.identity.name, kind, **numbers)
        self._history.events.append(event)

    @property
    def generation(self) -> int:
        """The member's epoch."""
        return int(self.core.generation.generation_id)

    @property
    def is_refused(self) -> bool:
        """Whether the coordinator rejects the member's instance id."""
        return any(
            isinstance(error, BrokerError) and error.error_code in _INSTANCE_ERRORS
            for error in self.errors
        )

    # What the member does.

    def poll(self, limit: int) -> None:
        """Process received records."""
        try:
            self.core.round()
            records = self.core.take(limit)
        except ClientError as error:
            self.errors.append(error)
            return
        for tp, part in (records or {}).items():
            first, end = part.offsets[0], part.offsets[-1] + 1
            self.note(
                "processed",
                partition=tp.partition,
                first=first,
                end=end,
                generation=self.generation,
            )
            self.reached[tp] = end

    def commit(self) -> None:
        """Commit the processed offsets, unless a commit is pending."""
        if self.is_committing or self.reached == self.committed:
            return
        offsets, began_ns, generation = dict(self.reached), self.now_ns, self.generation
        self.is_committing = True

        def on_done(_done: bool | None, error: ClientError | None) -> None:
            self.is_committing = False
            if error is not None:
                self.errors.append(error)
                self.note("refused", generation=generation)
                return
            self.committed.update((tp, end) for tp, end in offsets.items() if tp in self.reached)
            for tp, end in offsets.items():
                self.note(
                    "committed",
                    partition=tp.partition,
                    end=end,
                    generation=generation,
                    began_ns=began_ns,
                )

        self.core.commits.commit(as_offsets(offsets), 10_000, on_done)


def _run(call: Callable[[], object], on_done: OnHostDone) -> None:
    with UserCode() as code:
        call()
    on_done(code.error)
