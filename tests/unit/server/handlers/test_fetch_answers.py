"""One partition's part of a fetch answer."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import EpochEndOffset, LeaderIdAndEpoch, SnapshotId
from barnabas.replication.partition import results
from barnabas.server.handlers.records.pending_fetch import partition_data


def test_absent_structs_are_the_shared_default_of_the_encoder() -> None:
    data = partition_data(0, results.FetchResult(ErrorCode.NONE, 5, 5, 0, b""))
    assert data.diverging_epoch is EpochEndOffset.default_instance()
    assert data.current_leader is LeaderIdAndEpoch.default_instance()
    assert data.snapshot_id is SnapshotId.default_instance()


def test_a_diverging_epoch_is_in_the_response() -> None:
    result = results.FetchResult(ErrorCode.NONE, 5, 5, 0, b"")
    result.diverging_epoch = results.EpochEndOffset(3, 40)
    assert partition_data(0, result).diverging_epoch == EpochEndOffset(epoch=3, end_offset=40)


def test_the_number_of_truncations_is_in_the_response_for_a_mirror() -> None:
    result = results.FetchResult(ErrorCode.NONE, 5, 5, 0, b"", truncations=2)
    assert partition_data(0, result).snapshot_id.end_offset == 2
