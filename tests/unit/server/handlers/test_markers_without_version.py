"""WriteTxnMarkers whose transaction version is unknown: refused, an old epoch first."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from unit.server.simulated_broker import SimulatedBroker


def written(broker: SimulatedBroker, epoch: int, version: int) -> ErrorCode:
    """The error of a marker of producer 7 with this epoch."""
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=epoch,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name="topic", partition_indexes=[0])],
        coordinator_epoch=0,
        transaction_version=version,
    )
    (found,) = broker.ask(WriteTxnMarkersRequest(markers=[marker]), 2).markers
    return ErrorCode(found.topics[0].partitions[0].error_code)


def test_an_old_epoch_is_reported_before_an_unknown_version() -> None:
    broker = SimulatedBroker()
    broker.make_topic("topic")
    assert written(broker, 3, -1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert written(broker, 5, 0) is ErrorCode.NONE
    assert written(broker, 3, -1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert written(broker, 5, -1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert written(broker, -1, -1) is ErrorCode.UNKNOWN_SERVER_ERROR
