"""Blocks of producer ids."""

from __future__ import annotations

from barnabas.controller.brokers import allocate_producer_ids
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import AllocateProducerIdsRequest
from unit.controller.parts import applied, view_of
from unit.metadata.clusters import three_brokers


def test_blocks_follow_each_other() -> None:
    image = three_brokers()
    starts = []
    for broker_id in (1, 2, 1):
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=5)
        result = allocate_producer_ids(view_of(image), request)
        image = applied(image, result.records)
        starts.append((result.response.producer_id_start, result.response.producer_id_len))
    assert starts == [(0, 1000), (1000, 1000), (2000, 1000)]
    assert image.next_producer_id == 3000


def test_an_earlier_broker_epoch_gets_no_block() -> None:
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=4)
    result = allocate_producer_ids(view_of(three_brokers()), request)
    assert result.records == []
    assert result.response.error_code == ErrorCode.STALE_BROKER_EPOCH
