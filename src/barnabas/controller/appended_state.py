"""Replay at append, answer at commit: how the controller's requests become part of the log.

The image here is the cluster as of the last *appended* record, committed or not. A response is held
back until the records are committed that it made, or that it saw. Whoever loses the leadership
forgets the image, and takes the committed one when it leads again.
"""

from __future__ import annotations

from collections import deque
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.controller.result import ControllerResult, ControllerView, Refusal
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.provenance import Provenance
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.raft.errors import MetadataBatchTooLargeError, NotLeaderError, RaftError
from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from barnabas.controller.result import MutationLimit, VersionedRecord
    from barnabas.metadata.image import ClusterImage
    from barnabas.raft.driver import RaftDriver
    from barnabas.runtime.timer import Cancellable

# Kafka's largest batch, in records.
BATCH_RECORDS_MAX = 10_000

# How long the steps of one request run in a turn.
_SLICE_MS = 5.0
# A request that others have overtaken so often is worked out in one go.
_TRIES_IN_SLICES = 5

_NOT_CONTROLLER = Refusal(
    ErrorCode.NOT_CONTROLLER, "this node is not the active controller, or has just ceased to be"
)
# What these say of their time Kafka does not look at either.
_UNLIMITED = (ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.UPDATE_FEATURES)
# As with Kafka, without words.
_NO_TIME = Refusal(ErrorCode.REQUEST_TIMED_OUT)
_TOO_MANY = Refusal(
    ErrorCode.POLICY_VIOLATION, f"one request may make {BATCH_RECORDS_MAX} metadata records"
)


class _Held(msgspec.Struct, frozen=True):
    """A response without records of its own, held until what it saw is committed."""

    offset: int
    on_done: Callable[[], None]
    on_lost: Callable[[], None]


class _Answer:
    """Goes out once: with the response, with a refusal, or because its time is up."""

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
        # None once it has gone out.
        self._on_done: Callable[[Any], None] | None = on_done
        self._refuse = refuse
        self._timer: Cancellable | None = None

    def limit(self, timeout_ms: int) -> None:
        """Answer REQUEST_TIMED_OUT if the answer has not gone out by then."""
        if self._on_done is not None:
            timer = self._driver.doors.timer
            self._timer = timer.call_later(timeout_ms, lambda: self.refuse(_NO_TIME))

    def give(self, response: Any) -> None:
        """Answer with `response`, unless it is too late."""
        on_done, self._on_done = self._on_done, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if on_done is not None:
            on_done(response)

    def refuse(self, refusal: Refusal) -> None:
        """Answer that nothing was done, as far as is known."""
        if self._on_done is None:
            return
        refused = self._refuse(self._request, refusal)
        if isinstance(refused, GeneratorType):
            doors = self._driver.doors
            run_in_slices(refused, doors.clock, doors.timer, self.give)
        else:
            self.give(refused)


class Plan:
    """A request whose result is worked out in slices, against one image."""

    __slots__ = ("again", "finish", "on_lost", "tries", "view")

    def __init__(
        self,
        view: ControllerView,
        again: Callable[[ControllerView], Generator[None, None, ControllerResult[Any]]],
        finish: Callable[[ControllerResult[Any]], None],
        on_lost: Callable[[], None],
    ) -> None:
        self.view = view
        # Begins anew against another image.
        self.again = again
        self.finish = finish
        # Called instead of `finish` if this controller leads no more.
        self.on_lost = on_lost
        # How often others had written meanwhile.
        self.tries = 0


class AppendedState:
    """Owned by the controller, which says when it leads."""

    def __init__(self, driver: RaftDriver) -> None:
        self._driver = driver
        # None unless this controller is active.
        self.image: ClusterImage | None = None
        # Of the leadership.
        self.epoch = -1
        self._held: deque[_Held] = deque()

    def begin(self, image: ClusterImage, epoch: int) -> None:
        """This controller leads: everything of earlier epochs is in `image`."""
        self.image, self.epoch = image, epoch

    def cease(self) -> None:
        """This controller leads no more: what is not committed is forgotten."""
        self.image = None
        held, self._held = self._held, deque()
        for each in held:
            each.on_lost()

    @property
    def now_ms(self) -> float:
        """Monotonic clock."""
        return self._driver.doors.clock.monotonic_ms()

    def view(self, mutations: MutationLimit | None = None) -> ControllerView | None:
        """What a request is worked out against; None unless this controller leads."""
        image = self.image
        if image is None or not self._driver.is_leader:
            return None
        return ControllerView(image, self._driver.log_end_offset, self.now_ms, mutations)

    def serve(
        self,
        handle: Callable[
            [ControllerView, Any],
            ControllerResult[Any] | Generator[None, None, ControllerResult[Any]],
        ],
        refuse: Callable[[Any, Refusal], Any],
        request: Any,
        on_done: Callable[[Any], None],
        mutations: MutationLimit | None = None,
    ) -> None:
        """Work out a request, write its records, answer when all that it rests on is committed.

        Args:
            refuse: returns the response when nothing could be done, or a generator of it.
            handle: returns the result, or a generator of it, which is run in slices; its records
                are written in one go.
        """
        answer = _Answer(request, on_done, refuse, self._driver)
        timeout_ms = None
        if request.__api_key__ not in _UNLIMITED:
            timeout_ms = getattr(request, "timeout_ms", None)
        is_late = timeout_ms is not None and timeout_ms <= 0
        view = self.view(None if is_late else mutations)
        if view is None:
            answer.refuse(_NOT_CONTROLLER)
            return
        result = handle(view, request)

        def finish(result: ControllerResult[Any]) -> None:
            if is_late and not result.at_once:
                answer.refuse(_NO_TIME)
            else:
                self._answer(result, answer)

        if isinstance(result, ControllerResult):
            finish(result)
        else:
            steps = result

            def again(view: ControllerView) -> Generator[None, None, ControllerResult[Any]]:
                made = handle(view, request)
                assert not isinstance(made, ControllerResult), "a handler is one or the other"
                return made

            plan = Plan(view, again, finish, lambda: answer.refuse(_NOT_CONTROLLER))
            self._go_on(plan, steps)
        if timeout_ms is not None and not is_late:
            answer.limit(timeout_ms)

    def _go_on(self, plan: Plan, steps: Generator[None, None, ControllerResult[Any]]) -> None:
        """Run one slice of a request's steps; the rest follows in later turns."""
        clock, timer = self._driver.doors.clock, self._driver.doors.timer
        ends_ms = clock.monotonic_ms() + _SLICE_MS
        is_last_try = plan.tries >= _TRIES_IN_SLICES
        try:
            while True:
                next(steps)
                if clock.monotonic_ms() > ends_ms and not is_last_try:
                    timer.call_soon(lambda: self._go_on(plan, steps))
                    return
        except StopIteration as end:
            result: ControllerResult[Any] = end.value
        view = self.view(plan.view.mutations)
        if view is None:
            plan.on_lost()
        elif result.records and view.image is not plan.view.image:
            # Others have written meanwhile: it is worked out once more against what holds now.
            plan.view = view
            plan.tries += 1
            self._go_on(plan, plan.again(view))
        else:
            plan.finish(result)

    def _answer(self, result: ControllerResult[Any], answer: _Answer) -> None:
        records = result.records
        if not records:
            self._hold(lambda: answer.give(result.response), lambda: answer.refuse(_NOT_CONTROLLER))
        elif result.atomic and len(records) > BATCH_RECORDS_MAX:
            answer.refuse(_TOO_MANY)
        else:
            self._append(records, lambda: answer.give(result.response), answer.refuse)

    def append(self, records: Sequence[VersionedRecord]) -> None:
        """Write records that nobody asked for; nothing if there are none."""
        if records:
            self._append(records, lambda: None, lambda _: None)

    def _append(
        self,
        records: Sequence[VersionedRecord],
        on_done: Callable[[], None],
        on_refused: Callable[[Refusal], None],
    ) -> None:
        """Replay the records and append them, in several batches if they are many.

        Several batches may be committed in part when the leadership is lost: their order has to be
        such that the next controller can go on from any of them.
        """
        while len(records) > BATCH_RECORDS_MAX:
            first, records = records[:BATCH_RECORDS_MAX], records[BATCH_RECORDS_MAX:]
            if not self._append_batch(first, lambda: None, on_refused):
                return
        self._append_batch(records, on_done, on_refused)

    def _append_batch(
        self,
        records: Sequence[VersionedRecord],
        on_done: Callable[[], None],
        on_refused: Callable[[Refusal], None],
    ) -> bool:
        """Replay a batch, append it, answer when it is committed; False if it was refused."""
        before = self.image
        assert before is not None
        delta = ClusterDelta(before)
        for record, version in records:
            delta.replay(record, version)
        last_offset = self._driver.log_end_offset + len(records) - 1
        self.image = delta.apply(Provenance(last_offset, self.epoch, -1))

        def on_committed(_offset: int, error: RaftError | None) -> None:
            if error is None:
                on_done()
            else:
                on_refused(_NOT_CONTROLLER)

        try:
            self._driver.append(records, on_committed)
        except MetadataBatchTooLargeError as error:
            self.image = before
            on_refused(Refusal(ErrorCode.POLICY_VIOLATION, str(error)))
            return False
        except ProtocolError as error:
            # A value that no record can hold. What is not written must not be served either.
            self.image = before
            on_refused(Refusal(ErrorCode.INVALID_REQUEST, f"this cannot be written: {error}"))
            return False
        except NotLeaderError:
            self.image = None
            on_refused(_NOT_CONTROLLER)
            return False
        return True

    def _hold(self, on_done: Callable[[], None], on_lost: Callable[[], None]) -> None:
        """Answer once everything appended so far is committed: at once if it is."""
        last_offset = self._driver.log_end_offset - 1
        if self._driver.high_watermark > last_offset:
            on_done()
        else:
            self._held.append(_Held(last_offset, on_done, on_lost))

    def on_commit(self, last_offset: int) -> None:
        """Everything up to there is committed: what was held back for it may go out."""
        while self._held and self._held[0].offset <= last_offset:
            self._held.popleft().on_done()
