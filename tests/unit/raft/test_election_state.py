"""The quorum-state file has both of Kafka's formats."""

from __future__ import annotations

import pytest

from barnabas.raft.election_state import (
    ElectionState,
    QuorumStateError,
    QuorumStateStore,
    decode_quorum_state,
    encode_quorum_state,
)
from barnabas.sim.world import SimWorld


def test_format_0_is_what_kafka_writes_with_static_voters() -> None:
    # Kafka ignores white space at the end.
    assert encode_quorum_state(ElectionState(1, 1), [1]).rstrip() == (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )


@pytest.mark.parametrize("voters", [[1, 2, 3], None])
def test_a_written_state_is_read_back(voters: list[int] | None) -> None:
    directory = bytes(range(16)) if voters is None else bytes(16)
    state = ElectionState(7, -1, 2, directory)
    assert decode_quorum_state(encode_quorum_state(state, voters)) == state


@pytest.mark.parametrize("voters", [[1, 2, 3], None])
def test_every_flipped_bit_is_an_error(voters: list[int] | None) -> None:
    whole = encode_quorum_state(ElectionState(7, 1, 2), voters)
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(QuorumStateError):
            decode_quorum_state(bytes(flipped))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"not json",
        b'{"data_version":9}',
        b'{"leaderId":"x","leaderEpoch":1,"votedId":1,"data_version":0}',
        b'{"leaderId":1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":"?","data_version":1}',
    ],
)
def test_a_damaged_file_is_an_error(content: bytes) -> None:
    with pytest.raises(QuorumStateError):
        decode_quorum_state(content)


def test_a_new_replica_has_no_file() -> None:
    disk = SimWorld(1).host("a").disk
    disk.make_directory("/m")
    store = QuorumStateStore(disk, "/m")
    assert store.read() == ElectionState()
    store.write(ElectionState(3, 1), [1])
    disk.crash()
    assert QuorumStateStore(disk, "/m").read() == ElectionState(3, 1)
