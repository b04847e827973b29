"""The active controller (Kafka's QuorumController): requests become records, then responses.

Each request is handled with the image as of the last *appended* record. `AppendedState` keeps that
image and the pending responses. `Background` runs the periodic work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.controller.activation import activation_records
from barnabas.controller.appended_state import AppendedState
from barnabas.controller.background import Background
from barnabas.controller.configs.client_quotas import (
    alter_client_quotas,
    refuse_alter_client_quotas,
)
from barnabas.controller.configs.configs import (
    ConfigControl,
    refuse_alter_configs,
    refuse_incremental_alter_configs,
)
from barnabas.controller.configs.topic_configs import TopicConfigs
from barnabas.controller.nodes.broker_sessions import BrokerSessions
from barnabas.controller.nodes.brokers import BrokerControl, refuse_heartbeat
from barnabas.controller.nodes.controllers import (
    refuse_controller_registration,
    refuse_unregister_controller,
    register_controller,
    unregister_controller,
)
from barnabas.controller.nodes.features import FeatureControl, refuse_update_features
from barnabas.controller.nodes.producer_ids import allocate_producer_ids, refuse_producer_ids
from barnabas.controller.nodes.registrations import RegistrationControl, refuse_registration
from barnabas.controller.nodes.unregistration import UnregistrationControl, refuse_unregister_broker
from barnabas.controller.partitions.directories import DirectoryControl, refuse_assign_replicas
from barnabas.controller.partitions.elections import Elections
from barnabas.controller.partitions.in_sync_replicas import IsrControl, refuse_alter_partition
from barnabas.controller.partitions.leader_elections import (
    LeaderElectionControl,
    refuse_elect_leaders,
)
from barnabas.controller.partitions.reassignments import (
    ReassignmentControl,
    refuse_alter_reassignments,
    refuse_list_reassignments,
)
from barnabas.controller.topics.partitions import PartitionControl, refuse_create_partitions
from barnabas.controller.topics.placement import StripedPlacer
from barnabas.controller.topics.topics import (
    TopicControl,
    refuse_create_topics,
    refuse_delete_topics,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.result import MutationLimit
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
    from barnabas.protocol.messages.controller_registration import (
        ControllerRegistrationRequest,
        ControllerRegistrationResponse,
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
    from barnabas.protocol.messages.unregister_controller import (
        UnregisterControllerRequest,
        UnregisterControllerResponse,
    )
    from barnabas.protocol.messages.update_features import (
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
    from barnabas.runtime.rng import Rng


class ControllerParts(msgspec.Struct, frozen=True):
    """The dependencies of a controller."""

    driver: RaftDriver
    publisher: MetadataPublisher
    rng: Rng
    # Appended when this controller becomes active; None if no other node needs it.
    registration: ControllerRegistration | None = None


class Controller:
    """The controller: a listener of the raft driver, registered after the metadata publisher.

    It starts from the publisher's image. Each request method takes the request and a callback,
    which receives the response exactly once, perhaps before the method returns.
    """

    def __init__(self, config: ControllerConfig, parts: ControllerParts) -> None:
        self._config = config
        self._parts = parts
        driver = self._driver = parts.driver
        self._state = AppendedState(driver)
        # Callbacks that wait for this controller to become active.
        self._awaiting: list[Callable[[], None]] = []
        topic_configs = TopicConfigs(config)
        placer = StripedPlacer(parts.rng)
        sessions = BrokerSessions(config.broker_session_timeout_ms, config.node_id)
        elections = Elections(topic_configs, sessions.doubtful)
        self._topics = TopicControl(config, topic_configs, placer, parts.rng)
        self._partitions = PartitionControl(placer)
        self._configs = ConfigControl(config, topic_configs)
        self._directories = DirectoryControl(elections)
        self._brokers = BrokerControl(elections, self._directories, sessions)
        self._registrations = RegistrationControl(config, elections, sessions, self._brokers)
        self._isr = IsrControl(elections)
        registration = parts.registration
        supported = {} if registration is None else registration.supported_features
        self._features = FeatureControl(config, supported, parts.driver)
        self._leader_elections = LeaderElectionControl(elections)
        self._reassignments = ReassignmentControl(elections)
        self._unregistration = UnregistrationControl(elections)
        self._background = Background(
            config,
            self._state,
            self._brokers,
            sessions,
            self._leader_elections,
            driver.doors.timer,
        )

    @property
    def is_active(self) -> bool:
        """Whether this controller is active and serves requests."""
        return self._state.image is not None

    @property
    def image(self) -> ClusterImage | None:
        """The cluster as of the last appended record, committed or not; None unless active."""
        return self._state.image

    def when_active(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when this controller is active, which may be immediately."""
        if self._state.image is not None:
            callback()
        else:
            self._awaiting.append(callback)

    # -- requests ----------------------------------------------------------------------------------

    def create_topics(
        self,
        request: CreateTopicsRequest,
        on_done: Callable[[CreateTopicsResponse], None],
        mutations: MutationLimit | None = None,
    ) -> None:
        """Create topics (API 19)."""
        self._state.serve(self._topics.create, refuse_create_topics, request, on_done, mutations)

    def delete_topics(
        self,
        request: DeleteTopicsRequest,
        on_done: Callable[[DeleteTopicsResponse], None],
        mutations: MutationLimit | None = None,
    ) -> None:
        """Delete topics (API 20)."""
        self._state.serve(self._topics.delete, refuse_delete_topics, request, on_done, mutations)

    def create_partitions(
        self,
        request: CreatePartitionsRequest,
        on_done: Callable[[CreatePartitionsResponse], None],
        mutations: MutationLimit | None = None,
    ) -> None:
        """Add partitions to topics (API 37)."""
        self._state.serve(
            self._partitions.create, refuse_create_partitions, request, on_done, mutations
        )

    def incremental_alter_configs(
        self,
        request: IncrementalAlterConfigsRequest,
        on_done: Callable[[IncrementalAlterConfigsResponse], None],
    ) -> None:
        """Change single configs of resources (API 44)."""
        self._state.serve(
            self._configs.alter_incrementally, refuse_incremental_alter_configs, request, on_done
        )

    def alter_configs(
        self, request: AlterConfigsRequest, on_done: Callable[[AlterConfigsResponse], None]
    ) -> None:
        """Replace all configs of resources (API 33)."""
        self._state.serve(self._configs.alter, refuse_alter_configs, request, on_done)

    def alter_client_quotas(
        self,
        request: AlterClientQuotasRequest,
        on_done: Callable[[AlterClientQuotasResponse], None],
    ) -> None:
        """Set and remove client quotas (API 49)."""
        self._state.serve(alter_client_quotas, refuse_alter_client_quotas, request, on_done)

    def allocate_producer_ids(
        self,
        request: AllocateProducerIdsRequest,
        on_done: Callable[[AllocateProducerIdsResponse], None],
    ) -> None:
        """Allocate a block of producer ids to a broker (API 67)."""
        self._state.serve(allocate_producer_ids, refuse_producer_ids, request, on_done)

    def register_broker(
        self,
        request: BrokerRegistrationRequest,
        on_done: Callable[[BrokerRegistrationResponse], None],
    ) -> None:
        """Register a broker, which is fenced at first (API 62)."""
        self._state.serve(self._registrations.register, refuse_registration, request, on_done)
        self._background.watch_sessions()

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, on_done: Callable[[BrokerHeartbeatResponse], None]
    ) -> None:
        """Handle a broker's heartbeat, which may unfence, fence or release the broker (API 63)."""
        self._state.serve(self._brokers.heartbeat, refuse_heartbeat, request, on_done)
        self._background.watch_sessions()
        self._background.go_on()

    def on_broker_doubted(self, broker_id: int, broker_epoch: int) -> None:
        """Note that the connection of a broker's heartbeats is lost; the broker may connect again.

        Until its next heartbeat, the broker is not elected in place of a dead broker.
        """
        self._background.broker_doubted(broker_id, broker_epoch)

    def on_broker_lost(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker now instead of at the end of its session.

        Call this when the connection of its heartbeats was reset or closed and no new one has
        replaced it. It has no effect for an earlier epoch of the broker, or if this controller is
        not active.
        """
        self._background.broker_lost(broker_id, broker_epoch)

    def register_controller(
        self,
        request: ControllerRegistrationRequest,
        on_done: Callable[[ControllerRegistrationResponse], None],
    ) -> None:
        """Register the endpoints and features of a controller (API 70)."""
        self._state.serve(register_controller, refuse_controller_registration, request, on_done)

    def unregister_controller(
        self,
        request: UnregisterControllerRequest,
        on_done: Callable[[UnregisterControllerResponse], None],
    ) -> None:
        """Unregister a controller (API 94)."""
        self._state.serve(unregister_controller, refuse_unregister_controller, request, on_done)

    def alter_partition(
        self, request: AlterPartitionRequest, on_done: Callable[[AlterPartitionResponse], None]
    ) -> None:
        """Change the ISR as proposed by a partition leader (API 56)."""
        self._state.serve(self._isr.alter, refuse_alter_partition, request, on_done)

    def assign_replicas_to_dirs(
        self,
        request: AssignReplicasToDirsRequest,
        on_done: Callable[[AssignReplicasToDirsResponse], None],
    ) -> None:
        """Store the directories in which a broker's replicas are (API 73)."""
        self._state.serve(self._directories.assign, refuse_assign_replicas, request, on_done)

    def update_features(
        self, request: UpdateFeaturesRequest, on_done: Callable[[UpdateFeaturesResponse], None]
    ) -> None:
        """Raise or lower feature levels (API 57)."""

        def on_committed(response: UpdateFeaturesResponse) -> None:
            on_done(self._features.finish(request, response))

        self._state.serve(self._features.update, refuse_update_features, request, on_committed)

    def elect_leaders(
        self, request: ElectLeadersRequest, on_done: Callable[[ElectLeadersResponse], None]
    ) -> None:
        """Elect leaders on request (API 43)."""
        self._state.serve(self._leader_elections.elect, refuse_elect_leaders, request, on_done)

    def alter_partition_reassignments(
        self,
        request: AlterPartitionReassignmentsRequest,
        on_done: Callable[[AlterPartitionReassignmentsResponse], None],
    ) -> None:
        """Start or cancel reassignments of partitions (API 45)."""
        self._state.serve(self._reassignments.alter, refuse_alter_reassignments, request, on_done)

    def list_partition_reassignments(
        self,
        request: ListPartitionReassignmentsRequest,
        on_done: Callable[[ListPartitionReassignmentsResponse], None],
    ) -> None:
        """List the partitions that are being reassigned (API 46)."""
        self._state.serve(self._reassignments.list, refuse_list_reassignments, request, on_done)

    def unregister_broker(
        self, request: UnregisterBrokerRequest, on_done: Callable[[UnregisterBrokerResponse], None]
    ) -> None:
        """Unregister a broker (API 64)."""
        self._state.serve(
            self._unregistration.unregister, refuse_unregister_broker, request, on_done
        )

    # -- raft listener -----------------------------------------------------------------------------

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Send the responses that wait for these records."""
        self._state.on_commit(batches[-1].last_offset)

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Assert that this controller is inactive; the publisher loads the snapshot."""
        assert not self.is_active, snapshot.id

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Become active or inactive."""
        self._state.cease()
        self._background.stop()
        if leader.leader_id == self._config.node_id and self._driver.is_leader:
            self._activate(leader.epoch)

    def _activate(self, epoch: int) -> None:
        image = self._parts.publisher.image
        self._state.begin(image, epoch)
        self._brokers.begin(image, self._state.now_ms)
        for records in activation_records(
            image, self._driver, self._config, self._parts.registration
        ):
            self._state.append(records)
        self._background.start()
        awaiting, self._awaiting = self._awaiting, []
        for callback in awaiting:
            callback()
