"""Requests that the controller computes in slices, while other requests write."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.controller.apis import ApiControl
from barnabas.controller.appended_state import AppendedState
from barnabas.controller.result import ControllerResult, ControllerView, Refusal
from barnabas.metadata.image import ClusterImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.topics import CreateTopicsRequest
from barnabas.protocol.records.topics import TopicRecord
from barnabas.raft.log.metadata_batch import encode_metadata_batch
from steps import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.raft.log.metadata_batch import MetadataBatchEncoder


class Driver:
    """A quorum of one that commits at once, and the clock and timer that its requests see."""

    def __init__(self) -> None:
        self.log_dependencies = self
        self.clock = self
        self.timer = self
        self.core = self
        self.log = self
        self.is_leader = True
        self.log_end_offset = 0
        self.now_ms = 0.0
        self.queue: deque[Callable[[], None]] = deque()
        # The encoded form of each append; None if the driver has to encode.
        self.encoded: list[MetadataBatchEncoder | None] = []

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset

    def monotonic_ms(self) -> float:
        return self.now_ms

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.queue.append(callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Any:
        return self

    def cancel(self) -> None:
        """Nothing is due here."""

    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def append(
        self,
        records: list[Any],
        on_committed: Callable[[int, None], None],
        encoded: MetadataBatchEncoder | None,
    ) -> None:
        self.encoded.append(encoded)
        self.log_end_offset += len(records)
        on_committed(self.log_end_offset - 1, None)

    def turn(self) -> None:
        self.queue.popleft()()


class Scene:
    def __init__(self) -> None:
        self.driver = Driver()
        self.state = AppendedState(self.driver)  # type: ignore[arg-type]
        self.state.begin(ClusterImage(), 1)
        self.seen: list[ClusterImage] = []
        self.answers: list[Any] = []
        self.topics = 12

    def handle(
        self, view: ControllerView, request: CreateTopicsRequest
    ) -> Generator[None, None, ControllerResult[str]]:
        """A topic per step of 1 ms."""
        self.seen.append(view.image)
        records = []
        for number in range(self.topics):
            record = TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16))
            records.append((record, 0))
            self.driver.now_ms += 1
            yield
        return ControllerResult([] if request.validate_only else records, "made")

    def serve(self, *, validate_only: bool = False) -> None:
        self.state.serve(
            ApiControl(lambda _: self.handle, lambda _, refusal: refusal),  # type: ignore[arg-type, return-value]
            self.handle,
            CreateTopicsRequest(topics=[], timeout_ms=1000, validate_only=validate_only),
            self.answers.append,
        )

    def write_something_else(self) -> None:
        number = self.driver.log.log_end_offset + 100
        record = TopicRecord(name=f"other{number}", topic_id=bytes([number]) * 16)
        self.state.append([(record, 0)])

    def finish(self) -> int:
        turns = 0
        while self.driver.queue:
            self.driver.turn()
            turns += 1
        return turns


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_long_request_takes_several_turns_and_writes_once(scene: Scene) -> None:
    scene.serve()
    assert scene.answers == []
    assert scene.driver.log.log_end_offset == 0
    assert scene.finish() == 2
    assert scene.answers == ["made"]
    assert scene.driver.log.log_end_offset == 12


def test_a_long_request_sees_concurrent_writes(scene: Scene) -> None:
    scene.serve()
    scene.write_something_else()
    scene.finish()
    assert scene.answers == ["made"]
    first, second = scene.seen
    assert (len(list(first.topics)), len(list(second.topics))) == (0, 1)
    assert scene.state.image is not None
    assert len(list(scene.state.image.topics)) == 13


def test_a_request_without_records_is_not_recomputed(scene: Scene) -> None:
    scene.serve(validate_only=True)
    scene.write_something_else()
    scene.finish()
    assert (scene.answers, len(scene.seen)) == (["made"], 1)


def test_a_request_with_constant_concurrent_writes_completes(scene: Scene) -> None:
    scene.serve()
    turns = 0
    while scene.driver.queue:
        scene.write_something_else()
        scene.driver.turn()
        turns += 1
        assert turns < 100
    assert scene.answers == ["made"]


def test_a_request_gets_not_controller_if_the_controller_is_deposed(scene: Scene) -> None:
    scene.serve()
    scene.state.end()
    scene.finish()
    (refusal,) = scene.answers
    assert isinstance(refusal, Refusal)
    assert refusal.error_code == ErrorCode.NOT_CONTROLLER


def test_many_records_are_encoded_before_the_turn_that_appends_them(scene: Scene) -> None:
    scene.topics = 600
    scene.serve()
    scene.finish()
    assert scene.answers == ["made"]
    (encoded,) = scene.driver.encoded
    assert encoded is not None
    assert len(encoded) == 600
    expected = encode_metadata_batch(
        [
            (TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16)), 0)
            for number in range(600)
        ],
        base_offset=7,
        epoch=3,
        now_ms=scene.driver.wall_ms(),
    )
    assert encoded.build(7, 3) == expected


def test_few_records_are_encoded_by_the_driver(scene: Scene) -> None:
    scene.serve()
    scene.finish()
    assert scene.driver.encoded == [None]


def test_records_that_cannot_be_encoded_are_passed_to_the_driver(scene: Scene) -> None:
    records = [(TopicRecord(name="t", topic_id=b"short"), 0)] * 600

    def steps() -> Generator[None, None, ControllerResult[str]]:
        yield
        return ControllerResult(records, "made")

    (result, encoded) = finish(scene.state._encoded(steps()))
    assert result.records is records
    assert encoded is None
