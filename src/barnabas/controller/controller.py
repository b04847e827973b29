"""The active controller (Kafka's QuorumController): requests become records, then responses.

Each request is handled with the image as of the last *appended* record. `AppendedState` keeps that
image and the pending responses. `API_CONTROLS` says how each API is served. When a controller
becomes active, it first writes records of its own (Kafka's ActivationRecordsGenerator).

`Background` is the controller's own work: fencing of brokers, leader rebalancing, and timers. Its
tasks run periodically (Kafka's PeriodicTaskControlManager).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.controller.apis import API_CONTROLS, make_controls
from barnabas.controller.appended_state import AppendedState
from barnabas.controller.policy_checks import PolicyChecks
from barnabas.metadata.configs_image import ALL_BROKERS, BROKER
from barnabas.network.principal import ANONYMOUS
from barnabas.protocol.records.metadata_log import (
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from barnabas.protocol.records.nodes import FeatureLevelRecord
from barnabas.protocol.records.topics import ConfigRecord
from barnabas.raft.driver.opening import bootstrap_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.controller.apis import Controls
    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.result import (
        ControllerResult,
        ControllerView,
        MutationLimit,
        VersionedRecord,
    )
    from barnabas.metadata.broker_registration import ControllerRegistration
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.publishing import MetadataPublisher
    from barnabas.network.principal import Principal
    from barnabas.policies import AlterConfigPolicy, CreateTopicPolicy
    from barnabas.protocol.schema import Message
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
    from barnabas.runtime.clock import Cancellable, Timer
    from barnabas.runtime.rng import Rng


_log = logging.getLogger(__name__)

# Delay between the parts of a task, ms, in which the event loop serves other work.
_NEXT_PART_MS = 10.0


class PeriodicTask(msgspec.Struct, frozen=True):
    """A task that runs every `period_ms`."""

    period_ms: float
    # Does a part of the work; returns whether more is left.
    run: Callable[[], bool]


class PeriodicTasks:
    """Runs the tasks while this controller is active."""

    def __init__(self, timer: Timer, tasks: list[PeriodicTask]) -> None:
        self._timer = timer
        self._tasks = tasks
        self._armed: dict[int, Cancellable] = {}
        self._is_running = False

    def start(self) -> None:
        """Start all tasks. Each runs for the first time after its period."""
        self._is_running = True
        for number, task in enumerate(self._tasks):
            self._arm(number, task.period_ms)

    def stop(self) -> None:
        """Stop all tasks until the next `start`."""
        self._is_running = False
        for armed in self._armed.values():
            armed.cancel()
        self._armed.clear()

    def _arm(self, number: int, delay_ms: float) -> None:
        self._armed[number] = self._timer.call_later(delay_ms, lambda: self._run(number))

    def _run(self, number: int) -> None:
        task = self._tasks[number]
        del self._armed[number]
        more = False
        try:
            more = task.run()
        finally:
            # A task that raises runs again after its period. The task may have ended this
            # controller's leadership, and thereby called `stop`.
            if self._is_running and number not in self._armed:
                self._arm(number, _NEXT_PART_MS if more else task.period_ms)


# A timer that is later than this means that the process was suspended or its event loop blocked.
_STALL_MS = 500.0
# After this many records in one turn, the event loop serves other work first.
_MANY_RECORDS = 100


class Background:
    """The background work, which runs from `start` to `stop` while this controller is active."""

    def __init__(
        self, config: ControllerConfig, state: AppendedState, controls: Controls, timer: Timer
    ) -> None:
        self._config = config
        self._state = state
        self._brokers = controls.brokers
        self._sessions = controls.sessions
        self._elections = controls.leader_elections
        self._tokens = controls.tokens
        self._timer = timer
        self._session_timer: Cancellable | None = None
        # When that timer is due, monotonic ms.
        self._session_deadline = 0.0
        # Whether a call of `_move_leaderships` is scheduled.
        self._is_move_scheduled = False
        # Log end offset at the last run of the idle task; -1 before the first.
        self._idle_since = -1
        self._tasks = PeriodicTasks(timer, self._make_tasks())

    def _make_tasks(self) -> list[PeriodicTask]:
        config, elections = self._config, self._elections
        tasks = [
            PeriodicTask(
                config.broker.integer("unclean.leader.election.interval.ms"),
                lambda: self._run(elections.elect_unclean),
            ),
            PeriodicTask(
                config.broker.integer("delegation.token.expiry.check.interval.ms"),
                lambda: self._run(self._tokens.remove_expired),
            ),
        ]
        if config.broker.boolean("auto.leader.rebalance.enable"):
            tasks.append(
                PeriodicTask(
                    config.broker.integer("leader.imbalance.check.interval.seconds") * 1000,
                    lambda: self._run(elections.elect_preferred),
                )
            )
        idle_ms = config.broker.integer("metadata.max.idle.interval.ms")
        if idle_ms:
            tasks.append(PeriodicTask(idle_ms, self._note_idleness))
        return tasks

    def start(self) -> None:
        """Start all tasks when this controller becomes active."""
        self._tasks.start()
        self.on_sessions_changed()

    def stop(self) -> None:
        """Stop all tasks when this controller is no longer active."""
        self._tasks.stop()
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None

    # -- sessions ----------------------------------------------------------------------------------

    def on_sessions_changed(self) -> None:
        """Set the timer of the sessions, and move leaderships of brokers that shut down."""
        self._watch_sessions()
        self._continue_shutdowns()

    def _watch_sessions(self) -> None:
        """Set a timer for the next end of a broker session, unless one is set."""
        if self._session_timer is not None or self._state.image is None:
            return
        deadline = self._sessions.next_deadline()
        if deadline is not None:
            self._session_deadline = deadline
            delay_ms = max(0.0, deadline - self._state.now_ms)
            self._session_timer = self._timer.call_later(delay_ms, self._check_sessions)

    def _check_sessions(self) -> None:
        self._session_timer = None
        stalled_ms = self._state.now_ms - self._session_deadline
        if stalled_ms > _STALL_MS:
            # Heartbeats of this time may still be in the socket buffers, and are read before the
            # next check.
            _log.warning("Controller stalled, no broker is fenced: stalled_ms=%d", stalled_ms)
            self._sessions.renew(self._state.now_ms)
        self._brokers.note_silent(self._state.now_ms)
        self._fence()
        self._watch_sessions()

    def broker_suspected(self, broker_id: int, broker_epoch: int) -> None:
        """Note that a broker's connection is lost; the broker may connect again."""
        view = self._state.view()
        if view is not None:
            self._brokers.note_suspected(view.image, broker_id, broker_epoch)

    def broker_lost(self, broker_id: int, broker_epoch: int) -> None:
        """Fence a broker whose connection is lost and was not replaced."""
        view = self._state.view()
        if view is not None:
            self._brokers.note_lost(view.image, broker_id, broker_epoch)
            self._fence()

    def _fence(self) -> None:
        """Fence dead brokers; those with many partitions take several turns of the event loop."""
        while self._brokers.has_dead and (view := self._state.view()) is not None:
            records = self._brokers.fence_some(view)
            self._state.append(records)
            if len(records) > _MANY_RECORDS:
                self._timer.call_soon(self._fence)
                return

    def _continue_shutdowns(self) -> None:
        """Continue to move leaderships away from brokers that shut down, in a later turn."""
        if self._brokers.has_leaving_brokers and not self._is_move_scheduled:
            self._is_move_scheduled = True
            self._timer.call_soon(self._move_leaderships)

    def _move_leaderships(self) -> None:
        self._is_move_scheduled = False
        view = self._state.view()
        if view is not None and self._brokers.has_leaving_brokers:
            self._state.append(self._brokers.move_some(view))
            self._continue_shutdowns()

    # -- timers ------------------------------------------------------------------------------------

    def _run(self, work: Callable[[ControllerView], ControllerResult[bool]]) -> bool:
        view = self._state.view()
        if view is None:
            return False
        result = work(view)
        self._state.append(result.records)
        return result.response

    def _note_idleness(self) -> bool:
        """Append a NoOpRecord if the log was idle, to show its readers that the leader is alive.

        A single node has no other readers of the log, and saves the disk write.
        """
        view = self._state.view()
        if view is None:
            return False
        end_offset, own_id = view.next_offset, self._config.node_id
        others = (*view.image.brokers, *view.image.controllers)
        if end_offset == self._idle_since and any(each != own_id for each in others):
            self._state.append([(NoOpRecord(), 0)])
            end_offset += 1
        self._idle_since = end_offset
        return False


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
        assert mutations is None or api.mutates_partitions, request.__api_key__
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
