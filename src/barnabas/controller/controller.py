"""The active controller (Kafka's QuorumController): requests become records, then responses.

Each request is handled with the image as of the last *appended* record. `AppendedState` keeps that
image and the pending responses. `API_CONTROLS` says how each API is served. `Background` runs the
periodic work. When a controller becomes active, it first writes records of its own (Kafka's
ActivationRecordsGenerator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.controller.apis import API_CONTROLS, make_controls
from barnabas.controller.appended_state import AppendedState
from barnabas.controller.background import Background
from barnabas.controller.policy_checks import PolicyChecks
from barnabas.metadata.configs_image import ALL_BROKERS, BROKER
from barnabas.network.principal import ANONYMOUS
from barnabas.protocol.records.metadata_log import BeginTransactionRecord, EndTransactionRecord
from barnabas.protocol.records.nodes import FeatureLevelRecord
from barnabas.protocol.records.topics import ConfigRecord
from barnabas.raft.driver.opening import bootstrap_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.result import MutationLimit, VersionedRecord
    from barnabas.metadata.broker_registration import ControllerRegistration
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.publishing import MetadataPublisher
    from barnabas.network.principal import Principal
    from barnabas.policies import AlterConfigPolicy, CreateTopicPolicy
    from barnabas.protocol.schema import Message
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
    from barnabas.runtime.rng import Rng


_ELR_FEATURE = "eligible.leader.replicas.version"
_MIN_INSYNC_REPLICAS = "min.insync.replicas"


def activation_records(
    image: ClusterImage,
    driver: RaftDriver,
    config: ControllerConfig,
    registration: ControllerRegistration | None,
) -> Iterator[list[VersionedRecord]]:
    """Yield batches of records to append, in order."""
    if not image.features.finalized:
        yield _bootstrap(driver, config)
    known = image.controllers.get(config.node_id)
    if registration is not None and known != registration:
        yield [registration.to_record()]


def _bootstrap(driver: RaftDriver, config: ControllerConfig) -> list[VersionedRecord]:
    """Return the formatter's records as one metadata transaction, which applies all or none."""
    records: list[VersionedRecord] = [(BeginTransactionRecord(name="Bootstrap records"), 0)]
    formatted = bootstrap_records(driver)
    records += formatted
    if any(
        isinstance(record, FeatureLevelRecord) and record.name == _ELR_FEATURE
        for record, _ in formatted
    ):
        # KIP-966 needs one minimum for all brokers, so the current value is stored in the log.
        minimum = config.broker.text(_MIN_INSYNC_REPLICAS)
        record = ConfigRecord(
            resource_type=BROKER,
            resource_name=ALL_BROKERS,
            name=_MIN_INSYNC_REPLICAS,
            value=minimum,
        )
        records.append((record, 0))
    records.append((EndTransactionRecord(), 0))
    return records


class ControllerDependencies(msgspec.Struct, frozen=True):
    """Dependencies that a controller gets from its node."""

    driver: RaftDriver
    publisher: MetadataPublisher
    rng: Rng
    # Appended when this controller becomes active; None if no other node needs it.
    registration: ControllerRegistration | None = None
    # Decide which topics and configs are allowed; None allows all.
    create_topic_policy: CreateTopicPolicy | None = None
    alter_config_policy: AlterConfigPolicy | None = None


class Controller:
    """The controller: a listener of the raft driver, registered after the metadata publisher.

    It starts from the publisher's image.
    """

    def __init__(self, config: ControllerConfig, dependencies: ControllerDependencies) -> None:
        self._config = config
        self._dependencies = dependencies
        driver = self._driver = dependencies.driver
        self._state = AppendedState(driver)
        # Callbacks for the moment when this controller becomes active. Each is called once.
        self._awaiting: list[Callable[[], None]] = []
        registration = dependencies.registration
        supported = {} if registration is None else registration.supported_features
        policies = PolicyChecks(
            driver.log_dependencies.clock,
            dependencies.create_topic_policy,
            dependencies.alter_config_policy,
        )
        self._controls = make_controls(config, driver, dependencies.rng, supported, policies)
        self._background = Background(
            config, self._state, self._controls, driver.log_dependencies.timer
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

    def serve(
        self,
        request: Message,
        on_done: Callable[[Any], None],
        mutations: MutationLimit | None = None,
        requester: Principal = ANONYMOUS,
    ) -> None:
        """Serve a request of an API in `API_CONTROLS`.

        Args:
            request: the request.
            on_done: called once with the response, perhaps before this returns. The error is
                NOT_CONTROLLER if this controller is not active.
            mutations: the partition mutation quota of the client; None for no limit.
            requester: the client that sent the request; anonymous for requests of this node.
        """
        api = API_CONTROLS[request.__api_key__]
        assert mutations is None or api.strict_since is not None, request.__api_key__
        serve = api.serve(self._controls)
        self._state.serve(api, serve, request, on_done, mutations, requester)
        if api.changes_sessions:
            self._background.on_sessions_changed()

    def on_broker_suspected(self, broker_id: int, broker_epoch: int) -> None:
        """Note that the connection of a broker's heartbeats is lost; the broker may connect again.

        Until its next heartbeat, the broker is not elected in place of a dead broker.
        """
        self._background.broker_suspected(broker_id, broker_epoch)

    def on_broker_lost(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker now instead of at the end of its session.

        Call this when the connection of its heartbeats was reset or closed and no new one has
        replaced it. It has no effect for an earlier epoch of the broker, or if this controller is
        not active.
        """
        self._background.broker_lost(broker_id, broker_epoch)

    # -- raft listener -----------------------------------------------------------------------------

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Send the responses that wait for these records."""
        self._state.on_commit(batches[-1].last_offset)

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Assert that this controller is inactive; the publisher loads the snapshot."""
        assert not self.is_active, snapshot.id

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Become active or inactive."""
        self._state.end()
        self._background.stop()
        if leader.leader_id == self._config.node_id and self._driver.core.is_leader:
            self._activate(leader.epoch)

    def _activate(self, epoch: int) -> None:
        image = self._dependencies.publisher.image
        self._state.begin(image, epoch)
        self._controls.brokers.begin(image, self._state.now_ms)
        for records in activation_records(
            image, self._driver, self._config, self._dependencies.registration
        ):
            self._state.append(records)
        self._background.start()
        awaiting, self._awaiting = self._awaiting, []
        for callback in awaiting:
            callback()
