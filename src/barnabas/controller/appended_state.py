"""Applies the controller's records at their append, and sends the responses after the commit.

The image here is the cluster as of the last *appended* record, committed or not. A response waits
until the records of its request, or the records that its result depends on, are committed. A
controller that loses leadership discards the image. It starts from the committed image when it
leads again.

The records come from this process. A violated invariant of the records is therefore a fault of this
code, and an assertion keeps it out of the log, where every node would replay it. Values from
requests are validated before records are made, and records of other controllers by the replay
(`MetadataReplayError`).
"""

from __future__ import annotations

from collections import deque
from math import inf
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.controller.result import ControllerResult, ControllerView, Refusal
from barnabas.metadata.image import NO_PRODUCER_ID, ClusterDelta, Provenance
from barnabas.metadata.partition_registration import NO_LEADER
from barnabas.network.principal import ANONYMOUS
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.raft.listener import MetadataBatchTooLargeError, NotLeaderError, RaftError
from barnabas.raft.log.metadata_batch import MetadataBatchEncoder
from barnabas.waiting.steps import Unfinished, run_in_slices, run_slice

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from barnabas.controller.apis import ApiControl, Serve
    from barnabas.controller.result import MutationLimit, VersionedRecord
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.network.principal import Principal
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.runtime.clock import Cancellable

    # Steps that return a result, and its records in encoded form if there are many.
    EncodedSteps = Generator[None, None, tuple[ControllerResult[Any], MetadataBatchEncoder | None]]


def check_records(delta: ClusterDelta) -> None:
    """Assert that the replayed records of one batch keep the invariants of the metadata."""
    for topic in delta.topics_delta.changed.values():
        before = topic.image.partitions
        for index, partition in topic.partition_changes.items():
            _check_partition(f"{topic.name}-{index}", before.get(index), partition)
    _check_brokers(delta)
    next_id = delta.next_producer_id
    if next_id is not None and delta.image.next_producer_id != NO_PRODUCER_ID:
        assert next_id > delta.image.next_producer_id, (
            f"ProducerIdsGrow: before={delta.image.next_producer_id} after={next_id}"
        )


def _check_partition(
    name: str, before: PartitionRegistration | None, after: PartitionRegistration
) -> None:
    replicas, isr, leader = after.replicas, after.isr, after.leader
    for replica in isr:
        assert replica in replicas, f"IsrSubsetOfReplicas: {name} isr={isr} replicas={replicas}"
    assert leader == NO_LEADER or leader in isr, f"LeaderInIsr: {name} leader={leader} isr={isr}"
    for replica in after.elr:
        assert replica in replicas, f"ElrOutsideIsr: {name} elr={after.elr} replicas={replicas}"
        assert replica not in isr, f"ElrOutsideIsr: {name} elr={after.elr} isr={isr}"
    assert len(set(replicas)) == len(replicas) == len(after.directories), (
        f"OneDirectoryPerReplica: {name} replicas={replicas} directories={after.directories}"
    )
    if before is None:
        return
    assert after.partition_epoch > before.partition_epoch, (
        f"EpochsGrow: {name} partition_epoch={before.partition_epoch} then {after.partition_epoch}"
    )
    is_same_leader = leader == before.leader
    assert after.leader_epoch > before.leader_epoch or (
        is_same_leader and after.leader_epoch == before.leader_epoch
    ), (
        f"EpochsGrow: {name} leader={before.leader} then {leader} "
        f"leader_epoch={before.leader_epoch} then {after.leader_epoch}"
    )


def _check_brokers(delta: ClusterDelta) -> None:
    for broker_id, after in delta.broker_changes.items():
        before = delta.image.brokers.get(broker_id)
        if before is not None and after is not None:
            assert after.epoch >= before.epoch, (
                f"EpochsGrow: broker={broker_id} epoch={before.epoch} then {after.epoch}"
            )


# Kafka's maximum number of records in a batch.
BATCH_RECORDS_MAX = 10_000

# The records of a result with more than this are encoded in slices before they are appended.
_ENCODED_AT_ONCE = 500

# Maximum time for the steps of one request in one turn of the event loop.
_SLICE_MS = 5.0
# After this many attempts that other requests invalidated, a request runs without interruption.
_TRIES_IN_SLICES = 5

_NOT_CONTROLLER = Refusal(
    ErrorCode.NOT_CONTROLLER, "this node is not the active controller, or has just ceased to be"
)
# Kafka sends no message with this error either.
_TIMED_OUT = Refusal(ErrorCode.REQUEST_TIMED_OUT)
_TOO_MANY = Refusal(
    ErrorCode.POLICY_VIOLATION, f"a request may create at most {BATCH_RECORDS_MAX} metadata records"
)


class _Held(msgspec.Struct, frozen=True):
    """A response without records of its own, held until the records it depends on are committed."""

    offset: int
    on_done: Callable[[], None]
    on_lost: Callable[[], None]


class _Responder:
    """Sends exactly one of: the response, a refusal, or REQUEST_TIMED_OUT."""

    __slots__ = ("_driver", "_on_done", "_refuse", "_request", "_timer")

    def __init__(
        self,
        request: Any,
        on_done: Callable[[Any], None],
        refuse: Callable[[Any, Refusal], Any],
        driver: RaftDriver,
    ) -> None:
        self._driver = driver
        self._request = request
        # None once the response is sent.
        self._on_done: Callable[[Any], None] | None = on_done
        self._refuse = refuse
        self._timer: Cancellable | None = None

    def limit(self, timeout_ms: int) -> None:
        """Respond with REQUEST_TIMED_OUT if no other response is sent within `timeout_ms`."""
        if self._on_done is not None:
            timer = self._driver.log_dependencies.timer
            self._timer = timer.call_later(timeout_ms, lambda: self.refuse(_TIMED_OUT))

    def respond(self, response: Any) -> None:
        """Send `response`, unless a response was already sent."""
        on_done, self._on_done = self._on_done, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if on_done is not None:
            on_done(response)

    def refuse(self, refusal: Refusal) -> None:
        """Send an error response, unless a response was already sent."""
        if self._on_done is None:
            return
        refused = self._refuse(self._request, refusal)
        if isinstance(refused, GeneratorType):
            log_dependencies = self._driver.log_dependencies
            run_in_slices(
                refused, log_dependencies.clock, log_dependencies.timer.call_soon, self.respond
            )
        else:
            self.respond(refused)


class Plan:
    """A request whose result is computed in slices, against one image."""

    __slots__ = ("again", "finish", "on_lost", "tries", "view")

    def __init__(
        self,
        view: ControllerView,
        again: Callable[[ControllerView], Generator[None, None, ControllerResult[Any]]],
        finish: Callable[[ControllerResult[Any], MetadataBatchEncoder | None], None],
        on_lost: Callable[[], None],
    ) -> None:
        self.view = view
        # Restarts the computation against another image.
        self.again = again
        self.finish = finish
        # Called instead of `finish` if this controller has lost leadership.
        self.on_lost = on_lost
        # Number of restarts because other requests had appended records.
        self.tries = 0


class AppendedState:
    """The appended image and the pending responses. The controller reports leadership changes."""

    def __init__(self, driver: RaftDriver) -> None:
        self._driver = driver
        # The image as of the last appended record; None unless this controller is active.
        self.image: ClusterImage | None = None
        # Epoch of the current leadership; -1 before the first.
        self.epoch = -1
        # Responses that wait for a commit, in ascending order of offsets.
        self._held: deque[_Held] = deque()

    def begin(self, image: ClusterImage, epoch: int) -> None:
        """Start with the committed `image`, which includes all records of earlier epochs."""
        assert self.image is None, f"epoch {self.epoch} has not ended before epoch {epoch}"
        assert epoch > self.epoch, f"EpochsGrow: epoch={self.epoch} then {epoch}"
        assert not self._held, f"{len(self._held)} responses of epoch {self.epoch} are pending"
        self.image, self.epoch = image, epoch

    def end(self) -> None:
        """Discard the image after leadership is lost, and fail the pending responses."""
        self.image = None
        held, self._held = self._held, deque()
        for each in held:
            each.on_lost()

    @property
    def now_ms(self) -> float:
        """Monotonic time, ms."""
        return self._driver.log_dependencies.clock.monotonic_ms()

    def view(
        self, mutations: MutationLimit | None = None, requester: Principal = ANONYMOUS
    ) -> ControllerView | None:
        """Return the state for handling a request; None unless this controller leads."""
        image = self.image
        if image is None or not self._driver.core.is_leader:
            return None
        offset = self._driver.log.log_end_offset
        return ControllerView(image, offset, self.now_ms, mutations, requester)

    def serve(
        self,
        api: ApiControl,
        handle: Serve,
        request: Any,
        on_done: Callable[[Any], None],
        mutations: MutationLimit | None = None,
        requester: Principal = ANONYMOUS,
    ) -> None:
        """Handle a request, append its records, and respond once they are committed.

        Args:
            api: how the API is served: its error response, and whether its timeout counts.
            handle: returns the result, or a generator of it, which runs in slices; the records are
                appended together at the end.
            request: the request; its `timeout_ms` limits the time until the response.
            on_done: called once with the response, perhaps before this returns.
            mutations: the partition mutation quota of the client; None for no limit.
            requester: the client that sent the request.
        """
        responder = _Responder(request, on_done, api.refuse, self._driver)
        timeout_ms = getattr(request, "timeout_ms", None) if api.has_timeout else None
        has_timed_out = timeout_ms is not None and timeout_ms <= 0
        view = self.view(None if has_timed_out else mutations, requester)
        if view is None:
            responder.refuse(_NOT_CONTROLLER)
            return
        result = handle(view, request)

        def finish(
            result: ControllerResult[Any], encoded: MetadataBatchEncoder | None = None
        ) -> None:
            if has_timed_out and not result.at_once:
                responder.refuse(_TIMED_OUT)
            else:
                self._respond(result, responder, encoded)

        if isinstance(result, ControllerResult):
            finish(result)
        else:
            steps = result

            def again(view: ControllerView) -> Generator[None, None, ControllerResult[Any]]:
                made = handle(view, request)
                assert not isinstance(made, ControllerResult), (
                    "a handler always returns a generator or never"
                )
                return made

            plan = Plan(view, again, finish, lambda: responder.refuse(_NOT_CONTROLLER))
            self._run_plan(plan, self._encoded(steps))
        if timeout_ms is not None and not has_timed_out:
            responder.limit(timeout_ms)

    def _encoded(self, steps: Generator[None, None, ControllerResult[Any]]) -> EncodedSteps:
        """Compute a result, and encode the records of a large one."""
        result = yield from steps
        if not _ENCODED_AT_ONCE < len(result.records) <= BATCH_RECORDS_MAX:
            return result, None
        encoder = MetadataBatchEncoder(self._driver.log_dependencies.clock.wall_ms())
        try:
            for record, version in result.records:
                encoder.add(record, version)
                yield
        except ProtocolError:
            # The append fails with the same error, and refuses the request.
            return result, None
        return result, encoder

    def _run_plan(self, plan: Plan, steps: EncodedSteps) -> None:
        """Run one slice of a request's steps, and schedule the rest for later turns."""
        clock, timer = self._driver.log_dependencies.clock, self._driver.log_dependencies.timer
        made = run_slice(steps, clock, _SLICE_MS if plan.tries < _TRIES_IN_SLICES else inf)
        if isinstance(made, Unfinished):
            timer.call_soon(lambda: self._run_plan(plan, steps))
            return
        result, encoded = made
        view = self.view(plan.view.mutations, plan.view.requester)
        if view is None:
            plan.on_lost()
        elif result.records and view.image is not plan.view.image:
            # Other requests have appended records, so compute the result again from the current
            # image.
            plan.view = view
            plan.tries += 1
            self._run_plan(plan, self._encoded(plan.again(view)))
        else:
            plan.finish(result, encoded)

    def _respond(
        self,
        result: ControllerResult[Any],
        responder: _Responder,
        encoded: MetadataBatchEncoder | None,
    ) -> None:
        records = result.records

        def on_committed() -> None:
            finish = result.finish
            responder.respond(result.response if finish is None else finish())

        if not records:
            self._hold(on_committed, lambda: responder.refuse(_NOT_CONTROLLER))
        elif result.atomic and len(records) > BATCH_RECORDS_MAX:
            responder.refuse(_TOO_MANY)
        else:
            self._append(records, on_committed, responder.refuse, encoded)

    def append(self, records: Sequence[VersionedRecord]) -> None:
        """Append records of the controller itself; do nothing for an empty list."""
        if records:
            self._append(records, lambda: None, lambda _: None)

    def _append(
        self,
        records: Sequence[VersionedRecord],
        on_done: Callable[[], None],
        on_refused: Callable[[Refusal], None],
        encoded: MetadataBatchEncoder | None = None,
    ) -> None:
        """Replay the records and append them, in several batches if they exceed one batch.

        If leadership is lost, only some of the batches may be committed. The records must be in an
        order that lets the next controller continue after any of the batches.
        """
        while len(records) > BATCH_RECORDS_MAX:
            first, records = records[:BATCH_RECORDS_MAX], records[BATCH_RECORDS_MAX:]
            if not self._append_batch(first, lambda: None, on_refused):
                return
        self._append_batch(records, on_done, on_refused, encoded)

    def _append_batch(
        self,
        records: Sequence[VersionedRecord],
        on_done: Callable[[], None],
        on_refused: Callable[[Refusal], None],
        encoded: MetadataBatchEncoder | None = None,
    ) -> bool:
        """Replay and append a batch; return whether it was accepted. `on_done`: at the commit."""
        before = self.image
        assert before is not None
        delta = ClusterDelta(before)
        for record, _ in records:
            delta.replay(record)
        check_records(delta)
        last_offset = self._driver.log.log_end_offset + len(records) - 1
        self.image = delta.apply(Provenance(last_offset, self.epoch, -1))

        def on_committed(_offset: int, error: RaftError | None) -> None:
            if error is None:
                on_done()
            else:
                on_refused(_NOT_CONTROLLER)

        try:
            self._driver.append(records, on_committed, encoded)
        except MetadataBatchTooLargeError as error:
            self.image = before
            on_refused(Refusal(ErrorCode.POLICY_VIOLATION, str(error)))
            return False
        except ProtocolError as error:
            # A field value cannot be encoded. The image must not contain records that are not
            # written.
            self.image = before
            on_refused(
                Refusal(ErrorCode.INVALID_REQUEST, f"the records cannot be encoded: {error}")
            )
            return False
        except NotLeaderError:
            self.image = None
            on_refused(_NOT_CONTROLLER)
            return False
        return True

    def _hold(self, on_done: Callable[[], None], on_lost: Callable[[], None]) -> None:
        """Call `on_done` once all records appended so far are committed, perhaps immediately."""
        last_offset = self._driver.log.log_end_offset - 1
        if self._driver.core.high_watermark > last_offset:
            on_done()
        else:
            held = self._held
            assert not held or held[-1].offset <= last_offset, (
                f"responses held until {held[-1].offset}, then until {last_offset}"
            )
            held.append(_Held(last_offset, on_done, on_lost))

    def on_commit(self, last_offset: int) -> None:
        """Send the responses that wait for offsets up to `last_offset`."""
        while self._held and self._held[0].offset <= last_offset:
            self._held.popleft().on_done()
