"""The active controller (Kafka's QuorumController): request -> records, answered once committed.

Every request is worked out against the image as of the last *appended* record, its records are
replayed into that image at once, and the response is held back until they are committed. Whoever
loses the leadership forgets its image and takes the committed one when it leads again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.controller.activation import activation_records
from barnabas.controller.brokers import BrokerControl, refuse_heartbeat, refuse_registration
from barnabas.controller.client_quotas import alter_client_quotas, refuse_alter_client_quotas
from barnabas.controller.configs import (
    ConfigControl,
    refuse_alter_configs,
    refuse_incremental_alter_configs,
)
from barnabas.controller.directories import DirectoryControl, refuse_assign_replicas
from barnabas.controller.elections import Elections
from barnabas.controller.features import FeatureControl, refuse_update_features
from barnabas.controller.in_sync_replicas import IsrControl, refuse_alter_partition
from barnabas.controller.leader_elections import LeaderElectionControl, refuse_elect_leaders
from barnabas.controller.partitions import PartitionControl, refuse_create_partitions
from barnabas.controller.placement import StripedPlacer
from barnabas.controller.producer_ids import allocate_producer_ids, refuse_producer_ids
from barnabas.controller.reassignments import (
    ReassignmentControl,
    refuse_alter_reassignments,
    refuse_list_reassignments,
)
from barnabas.controller.result import ControllerResult, ControllerView, Refusal
from barnabas.controller.topic_configs import TopicConfigs
from barnabas.controller.topics import TopicControl, refuse_create_topics, refuse_delete_topics
from barnabas.controller.unregistration import UnregistrationControl, refuse_unregister_broker
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.provenance import Provenance
from barnabas.protocol.errors import ErrorCode
from barnabas.raft.errors import MetadataBatchTooLargeError, NotLeaderError, RaftError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.result import MutationLimit, VersionedRecord
    from barnabas.metadata.broker_registration import ControllerRegistration
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.publisher import MetadataPublisher
    from barnabas.protocol.messages.allocate_producer_ids import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
    )
    from barnabas.protocol.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
    )
    from barnabas.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from barnabas.protocol.messages.alter_partition import (
        AlterPartitionRequest,
        AlterPartitionResponse,
    )
    from barnabas.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from barnabas.protocol.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )
    from barnabas.protocol.messages.broker_heartbeat import (
        BrokerHeartbeatRequest,
        BrokerHeartbeatResponse,
    )
    from barnabas.protocol.messages.broker_registration import (
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )
    from barnabas.protocol.messages.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
    )
    from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from barnabas.protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from barnabas.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from barnabas.protocol.messages.unregister_broker import (
        UnregisterBrokerRequest,
        UnregisterBrokerResponse,
    )
    from barnabas.protocol.messages.update_features import (
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )
    from barnabas.raft.driver import RaftDriver
    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
    from barnabas.runtime.rng import Rng
    from barnabas.runtime.timer import Cancellable

_NOT_CONTROLLER = Refusal(
    ErrorCode.NOT_CONTROLLER, "this node is not the active controller, or has just ceased to be"
)
# As with Kafka, without words.
_NO_TIME = Refusal(ErrorCode.REQUEST_TIMED_OUT)


class ControllerParts(msgspec.Struct, frozen=True):
    """What a controller is joined from."""

    driver: RaftDriver
    publisher: MetadataPublisher
    rng: Rng
    # Written to the log when this controller becomes active; None where no other node asks for it.
    registration: ControllerRegistration | None = None


class _Held(msgspec.Struct, frozen=True):
    """A response without records of its own, held until what it saw is committed."""

    offset: int
    on_done: Callable[[], None]
    on_lost: Callable[[], None]


class Controller:
    """A listener of the raft driver, added behind the publisher whose image it starts from.

    Each request method takes the request and a callback, which gets the response exactly once,
    perhaps before the method returns.
    """

    def __init__(self, config: ControllerConfig, parts: ControllerParts) -> None:
        self._config = config
        self._parts = parts
        self._driver = parts.driver
        # The cluster as of the last appended record; None unless this controller is active.
        self._image: ClusterImage | None = None
        self._epoch = -1
        self._held: deque[_Held] = deque()
        self._session_timer: Cancellable | None = None
        # Who waits for this controller to become active.
        self._awaiting: list[Callable[[], None]] = []
        topic_configs = TopicConfigs(config)
        placer = StripedPlacer(parts.rng)
        elections = Elections(topic_configs)
        self._topics = TopicControl(config, topic_configs, placer, parts.rng)
        self._partitions = PartitionControl(placer)
        self._configs = ConfigControl(config, topic_configs)
        self._directories = DirectoryControl(elections)
        self._brokers = BrokerControl(config, elections, self._directories)
        self._isr = IsrControl(elections)
        registration = parts.registration
        supported = {} if registration is None else registration.supported_features
        self._features = FeatureControl(config, supported)
        self._leader_elections = LeaderElectionControl(elections)
        self._reassignments = ReassignmentControl(elections)
        self._unregistration = UnregistrationControl(elections)

    @property
    def is_active(self) -> bool:
        """Whether this controller serves requests."""
        return self._image is not None

    @property
    def image(self) -> ClusterImage | None:
        """The cluster as of the last appended record, committed or not; None unless active."""
        return self._image

    def when_active(self, callback: Callable[[], None]) -> None:
        """Call back once when this controller serves requests: at once if it does already."""
        if self._image is not None:
            callback()
        else:
            self._awaiting.append(callback)

    # -- requests ---------------------------------------------------------------------------------

    def create_topics(
        self,
        request: CreateTopicsRequest,
        on_done: Callable[[CreateTopicsResponse], None],
        mutations: MutationLimit | None = None,
    ) -> None:
        """Create topics (API 19)."""
        self._serve(self._topics.create, refuse_create_topics, request, on_done, mutations)

    def delete_topics(
        self,
        request: DeleteTopicsRequest,
        on_done: Callable[[DeleteTopicsResponse], None],
        mutations: MutationLimit | None = None,
    ) -> None:
        """Delete topics (API 20)."""
        self._serve(self._topics.delete, refuse_delete_topics, request, on_done, mutations)

    def create_partitions(
        self,
        request: CreatePartitionsRequest,
        on_done: Callable[[CreatePartitionsResponse], None],
        mutations: MutationLimit | None = None,
    ) -> None:
        """Add partitions to topics (API 37)."""
        self._serve(self._partitions.create, refuse_create_partitions, request, on_done, mutations)

    def incremental_alter_configs(
        self,
        request: IncrementalAlterConfigsRequest,
        on_done: Callable[[IncrementalAlterConfigsResponse], None],
    ) -> None:
        """Change single configs of resources (API 44)."""
        self._serve(
            self._configs.alter_incrementally, refuse_incremental_alter_configs, request, on_done
        )

    def alter_configs(
        self, request: AlterConfigsRequest, on_done: Callable[[AlterConfigsResponse], None]
    ) -> None:
        """Replace all configs of resources (API 33)."""
        self._serve(self._configs.alter, refuse_alter_configs, request, on_done)

    def alter_client_quotas(
        self,
        request: AlterClientQuotasRequest,
        on_done: Callable[[AlterClientQuotasResponse], None],
    ) -> None:
        """Set and remove client quotas (API 49)."""
        self._serve(alter_client_quotas, refuse_alter_client_quotas, request, on_done)

    def allocate_producer_ids(
        self,
        request: AllocateProducerIdsRequest,
        on_done: Callable[[AllocateProducerIdsResponse], None],
    ) -> None:
        """Give a broker a block of producer ids (API 67)."""
        self._serve(allocate_producer_ids, refuse_producer_ids, request, on_done)

    def register_broker(
        self,
        request: BrokerRegistrationRequest,
        on_done: Callable[[BrokerRegistrationResponse], None],
    ) -> None:
        """Take in a broker, fenced at first (API 62)."""
        self._serve(self._brokers.register, refuse_registration, request, on_done)
        self._arm_sessions()

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, on_done: Callable[[BrokerHeartbeatResponse], None]
    ) -> None:
        """A broker lives; it may be unfenced, fenced or let go (API 63)."""
        self._serve(self._brokers.heartbeat, refuse_heartbeat, request, on_done)
        self._arm_sessions()

    def alter_partition(
        self, request: AlterPartitionRequest, on_done: Callable[[AlterPartitionResponse], None]
    ) -> None:
        """A leader proposes another ISR (API 56)."""
        self._serve(self._isr.alter, refuse_alter_partition, request, on_done)

    def assign_replicas_to_dirs(
        self,
        request: AssignReplicasToDirsRequest,
        on_done: Callable[[AssignReplicasToDirsResponse], None],
    ) -> None:
        """A broker says in which directories its replicas lie (API 73)."""
        self._serve(self._directories.assign, refuse_assign_replicas, request, on_done)

    def update_features(
        self, request: UpdateFeaturesRequest, on_done: Callable[[UpdateFeaturesResponse], None]
    ) -> None:
        """Raise or lower feature levels (API 57)."""
        self._serve(self._features.update, refuse_update_features, request, on_done)

    def elect_leaders(
        self, request: ElectLeadersRequest, on_done: Callable[[ElectLeadersResponse], None]
    ) -> None:
        """Elect leaders on request (API 43)."""
        self._serve(self._leader_elections.elect, refuse_elect_leaders, request, on_done)

    def alter_partition_reassignments(
        self,
        request: AlterPartitionReassignmentsRequest,
        on_done: Callable[[AlterPartitionReassignmentsResponse], None],
    ) -> None:
        """Move partitions, or cancel a move (API 45)."""
        self._serve(self._reassignments.alter, refuse_alter_reassignments, request, on_done)

    def list_partition_reassignments(
        self,
        request: ListPartitionReassignmentsRequest,
        on_done: Callable[[ListPartitionReassignmentsResponse], None],
    ) -> None:
        """Say which partitions are on the move (API 46)."""
        self._serve(self._reassignments.list, refuse_list_reassignments, request, on_done)

    def unregister_broker(
        self, request: UnregisterBrokerRequest, on_done: Callable[[UnregisterBrokerResponse], None]
    ) -> None:
        """Forget a broker (API 64)."""
        self._serve(self._unregistration.unregister, refuse_unregister_broker, request, on_done)

    # -- the driver's listener --------------------------------------------------------------------

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """What was held back for these records may go out."""
        last_offset = batches[-1].last_offset
        while self._held and self._held[0].offset <= last_offset:
            self._held.popleft().on_done()

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """The publisher has it; an active controller is never behind a snapshot."""
        assert self._image is None, snapshot.id

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Become active, or cease to be."""
        self._cease()
        if leader.leader_id == self._config.node_id and self._driver.is_leader:
            self._activate(leader.epoch)

    def _activate(self, epoch: int) -> None:
        image = self._parts.publisher.image
        self._image, self._epoch = image, epoch
        self._brokers.begin(image, self._now())
        for records in activation_records(
            image, self._driver, self._config, self._parts.registration
        ):
            self._append(records, lambda: None, lambda _: None)
        self._arm_sessions()
        awaiting, self._awaiting = self._awaiting, []
        for callback in awaiting:
            callback()

    def _cease(self) -> None:
        self._image = None
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None
        held, self._held = self._held, deque()
        for each in held:
            each.on_lost()

    # -- from request to answer -------------------------------------------------------------------

    def _serve(
        self,
        handle: Callable[[ControllerView, Any], ControllerResult[Any]],
        refuse: Callable[[Any, Refusal], Any],
        request: Any,
        on_done: Callable[[Any], None],
        mutations: MutationLimit | None = None,
    ) -> None:
        image = self._image
        if image is None or not self._driver.is_leader:
            on_done(refuse(request, _NOT_CONTROLLER))
            return
        if getattr(request, "timeout_ms", 1) <= 0:
            on_done(refuse(request, _NO_TIME))
            return
        view = ControllerView(image, self._driver.log_end_offset, self._now(), mutations)
        result = handle(view, request)
        if not result.records:
            self._hold(
                lambda: on_done(result.response),
                lambda: on_done(refuse(request, _NOT_CONTROLLER)),
            )
            return
        self._append(
            result.records,
            lambda: on_done(result.response),
            lambda refusal: on_done(refuse(request, refusal)),
        )

    def _append(
        self,
        records: list[VersionedRecord],
        on_done: Callable[[], None],
        on_refused: Callable[[Refusal], None],
    ) -> None:
        """Replay the records into the image, append them, answer when they are committed."""
        before = self._image
        assert before is not None
        delta = ClusterDelta(before)
        for record, version in records:
            delta.replay(record, version)
        last_offset = self._driver.log_end_offset + len(records) - 1
        self._image = delta.apply(Provenance(last_offset, self._epoch, -1))

        def on_committed(_offset: int, error: RaftError | None) -> None:
            if error is None:
                on_done()
            else:
                on_refused(_NOT_CONTROLLER)

        try:
            self._driver.append(records, on_committed)
        except MetadataBatchTooLargeError as error:
            self._image = before
            on_refused(Refusal(ErrorCode.POLICY_VIOLATION, str(error)))
        except NotLeaderError:
            self._image = None
            on_refused(_NOT_CONTROLLER)

    def _hold(self, on_done: Callable[[], None], on_lost: Callable[[], None]) -> None:
        """Answer once everything appended so far is committed: at once if it is."""
        last_offset = self._driver.log_end_offset - 1
        if self._driver.high_watermark > last_offset:
            on_done()
        else:
            self._held.append(_Held(last_offset, on_done, on_lost))

    # -- sessions ---------------------------------------------------------------------------------

    def _arm_sessions(self) -> None:
        deadline = self._brokers.next_deadline() if self._image is not None else None
        if deadline is None or self._session_timer is not None:
            return
        delay = max(0.0, deadline - self._now())
        self._session_timer = self._driver.doors.timer.call_later(delay, self._check_sessions)

    def _check_sessions(self) -> None:
        self._session_timer = None
        while self._image is not None:
            view = ControllerView(self._image, self._driver.log_end_offset, self._now())
            result = self._brokers.fence_silent(view)
            if not result.records:
                break
            self._append(result.records, lambda: None, lambda _: None)
        self._arm_sessions()

    def _now(self) -> float:
        return self._driver.doors.clock.monotonic_ms()
