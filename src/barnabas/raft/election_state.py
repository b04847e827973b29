"""What a replica must remember of elections (KIP-595), and Kafka's `quorum-state` file for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.protocol.schema import ZERO_UUID
from barnabas.raft.listener import NO_LEADER
from barnabas.storage.trailing_checksum import split_checksum, trailing_checksum

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.runtime.disk import Disk

NO_VOTE = -1
QUORUM_STATE_FILE = "quorum-state"


class QuorumStateError(ValueError):
    """The `quorum-state` file cannot be read."""


class ElectionState(msgspec.Struct, frozen=True):
    """Must be on disk before any message that tells of it leaves."""

    # Never goes back.
    epoch: int = 0
    # Leader of that epoch once known; then it never changes within the epoch.
    leader_id: int = NO_LEADER
    # Whom this replica voted for in that epoch, NO_VOTE if for nobody.
    voted_id: int = NO_VOTE
    # The candidate's log directory; zero if it did not say.
    voted_directory_id: bytes = ZERO_UUID


def at_least_epoch(state: ElectionState, last_epoch: int) -> ElectionState:
    """The state of a replica whose log has records of an epoch.

    The file may be lost, or of an older backup: a leader of an earlier epoch must not write behind
    records of a later one (as in Kafka's QuorumState.initialize).
    """
    return state if state.epoch >= last_epoch else ElectionState(epoch=last_epoch)


def encode_quorum_state(state: ElectionState, voters: Iterable[int] | None) -> bytes:
    """The file's content.

    Args:
        state: what to remember.
        voters: the static voters, which kraft.version 0 keeps in the file (format 0); None from
            kraft.version 1 on (format 1).
    """
    data: dict[str, object]
    if voters is None:
        data = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": uuid_to_string(state.voted_directory_id),
            "data_version": 1,
        }
    else:
        data = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in sorted(voters)],
            "data_version": 0,
        }
    content = json.dumps(data, separators=(",", ":")).encode()
    return content + trailing_checksum(content)


def decode_quorum_state(content: bytes) -> ElectionState:
    """What the file says; both formats.

    Raises:
        QuorumStateError: it is not such a file.
    """
    try:
        data = json.loads(split_checksum(content))
        version = data["data_version"]
        if version not in (0, 1):
            raise QuorumStateError(f"quorum-state has format {version}; 0 and 1 are known")
        directory = data.get("votedDirectoryId")
        return ElectionState(
            epoch=int(data["leaderEpoch"]),
            leader_id=int(data["leaderId"]),
            voted_id=int(data["votedId"]),
            voted_directory_id=uuid_from_string(directory) if directory else ZERO_UUID,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise QuorumStateError(f"quorum-state lacks a field or has a wrong one: {error}") from error
    except ValueError as error:
        raise QuorumStateError(f"quorum-state cannot be read: {error}") from error


class QuorumStateStore:
    """The file in the metadata log's directory."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{QUORUM_STATE_FILE}"

    def read(self) -> ElectionState:
        """What was remembered; the state of a replica that never took part if there is no file."""
        if not self._disk.exists(self._path):
            return ElectionState()
        return decode_quorum_state(self._disk.read(self._path))

    def write(self, state: ElectionState, voters: Iterable[int] | None) -> None:
        """Remember; on disk when this returns. `voters` as for `encode_quorum_state`."""
        self._disk.write_atomically(self._path, encode_quorum_state(state, voters))
