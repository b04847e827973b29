"""Blocks of producer ids: one request at a time, and use of the whole block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import AllocateProducerIdsResponse
from barnabas.server.controller_access.broker_requests import ProducerIds

if TYPE_CHECKING:
    from collections.abc import Callable


class Blocks:
    """A controller that responds on request."""

    def __init__(self) -> None:
        self.asked: list[Callable[[Any], None]] = []
        self.next = 0

    def send(self, request: object, on_done: Callable[[Any], None]) -> None:
        self.asked.append(on_done)

    def grant(self, length: int) -> None:
        response = AllocateProducerIdsResponse(
            error_code=0, producer_id_start=self.next, producer_id_len=length
        )
        self.next += length
        self.asked.pop(0)(response)

    def refuse(self) -> None:
        self.asked.pop(0)(
            AllocateProducerIdsResponse(
                error_code=ErrorCode.NOT_CONTROLLER, producer_id_start=0, producer_id_len=0
            )
        )


def make() -> tuple[Blocks, ProducerIds, list[tuple[int, ErrorCode]]]:
    blocks = Blocks()
    return blocks, ProducerIds(1, lambda: 5, blocks), []  # type: ignore[arg-type]


def test_concurrent_callers_share_one_block_request() -> None:
    blocks, ids, given = make()
    for _ in range(3):
        ids.next_id(lambda *each: given.append(each))
    assert len(blocks.asked) == 1
    blocks.grant(2)
    assert given == [(0, ErrorCode.NONE), (1, ErrorCode.NONE)]
    blocks.grant(2)
    assert given[2] == (2, ErrorCode.NONE)


def test_a_block_lasts_until_it_is_used_up() -> None:
    blocks, ids, given = make()
    ids.next_id(lambda *each: given.append(each))
    blocks.grant(3)
    ids.next_id(lambda *each: given.append(each))
    ids.next_id(lambda *each: given.append(each))
    assert [each[0] for each in given] == [0, 1, 2]
    assert not blocks.asked


def test_a_refused_block_is_a_retriable_error() -> None:
    blocks, ids, given = make()
    ids.next_id(lambda *each: given.append(each))
    blocks.refuse()
    assert given == [(-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    ids.next_id(lambda *each: given.append(each))
    blocks.grant(1)
    assert given[1] == (0, ErrorCode.NONE)
