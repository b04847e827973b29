"""The stored election state of a replica (KIP-595), and static voters that may not vote yet.

The election state is in Kafka's `quorum-state` file.

A static voter that starts with an empty directory may not vote at first (`UnprovenVoter`). It may
be a voter of an existing quorum whose disk was lost. Then it has lost its earlier votes and the
records that it helped to commit. Its vote could elect a leader that lacks those records. With
static voters, the other voters cannot detect this, because they know a voter only by its node id.

The voter therefore does not vote until one of these conditions holds:

* The cluster is new: every other voter's log was found empty since this process started.
* The voter has all committed records. It first reaches a leader's log end, and then copies a record
  that was appended later and that the other voters committed without it. Only the leader of the
  newest epoch can commit such a record.

Until then, once its log has records, its fetches contain no replica id, so that no leader counts
them as fetches of a voter.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string
from barnabas.protocol.schema import ZERO_UUID
from barnabas.raft.listener import NO_LEADER
from barnabas.storage.files.checkpoint import split_checksum, trailing_checksum

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.runtime.disk import Disk


NO_VOTE = -1
QUORUM_STATE_FILE = "quorum-state"


class QuorumStateError(ValueError):
    """The `quorum-state` file cannot be read."""


class ElectionState(msgspec.Struct, frozen=True):
    """Election state; must be on disk before any message that depends on it is sent."""

    # The current epoch; never decreases.
    epoch: int = 0
    # Leader of that epoch; NO_LEADER while unknown. Once known, it never changes within the epoch.
    leader_id: int = NO_LEADER
    # The candidate that this replica voted for in that epoch; NO_VOTE if none.
    voted_id: int = NO_VOTE
    # Log directory id of that candidate; zero if the candidate did not name it.
    voted_directory_id: bytes = ZERO_UUID


def at_least_epoch(state: ElectionState, last_epoch: int) -> ElectionState:
    """Return a state whose epoch is at least that of the last record in the log.

    The file may be lost, or restored from an older backup. A leader of an earlier epoch must not
    append after records of a later epoch (as in Kafka's QuorumState.initialize).
    """
    return state if state.epoch >= last_epoch else ElectionState(epoch=last_epoch)


def encode_quorum_state(state: ElectionState, voters: Iterable[int] | None) -> bytes:
    """Return the content of the file.

    Args:
        state: the state to store.
        voters: the static voters, which the file holds with kraft.version 0 (format 0); None with
            kraft.version 1 and later (format 1).
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
    """Decode the content of the file, in either format.

    Raises:
        QuorumStateError: the content is not a valid `quorum-state` file.
    """
    try:
        data = json.loads(split_checksum(content))
        version = data["data_version"]
        if version not in (0, 1):
            raise QuorumStateError(
                f"quorum-state has the unknown format {version}; known formats are 0 and 1"
            )
        directory = data.get("votedDirectoryId")
        return ElectionState(
            epoch=int(data["leaderEpoch"]),
            leader_id=int(data["leaderId"]),
            voted_id=int(data["votedId"]),
            voted_directory_id=uuid_from_string(directory) if directory else ZERO_UUID,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise QuorumStateError(f"quorum-state has a missing or invalid field: {error}") from error
    except ValueError as error:
        raise QuorumStateError(f"quorum-state cannot be read: {error}") from error


class QuorumStateStore:
    """The `quorum-state` file in the metadata log's directory."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{QUORUM_STATE_FILE}"

    def read(self) -> ElectionState:
        """Return the stored state; the initial state if there is no file."""
        if not self._disk.exists(self._path):
            return ElectionState()
        return decode_quorum_state(self._disk.read(self._path))

    def write(self, state: ElectionState, voters: Iterable[int] | None) -> None:
        """Store the state, which is on disk when this returns.

        Args:
            state: the state to store.
            voters: the static voters, or None; see `encode_quorum_state`.
        """
        self._disk.write_atomically(self._path, encode_quorum_state(state, voters))


UNPROVEN_VOTER_FILE = "voter-without-vote"


class UnprovenVoter:
    """The observations of a voter that may not vote yet."""

    def __init__(self) -> None:
        # Other voters whose logs were found empty since this process started.
        self.empty: set[int] = set()
        # (epoch, offset): the log end of that epoch's leader when this replica first reached it.
        self._reached: tuple[int, int] | None = None

    def is_first(self, others: Iterable[int]) -> bool:
        """Return whether the cluster is new, because no other voter has a record."""
        return self.empty.issuperset(others)

    def reach(self, epoch: int, end_offset: int) -> None:
        """Note that this replica has all records that the leader of `epoch` has now."""
        if self._reached is None or self._reached[0] != epoch:
            self._reached = epoch, end_offset

    def has_caught_up(self, epoch: int, high_watermark: int) -> bool:
        """Return whether a record is committed that was appended after `reach` was called."""
        reached = self._reached
        return reached is not None and reached[0] == epoch and high_watermark > reached[1]


class UnprovenVoterFile:
    """A marker file: while it exists, the voter of a data directory may not vote."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """Create the accessor; the file itself is not touched.

        Args:
            disk: the disk of the directory.
            directory: the data directory of the metadata log.
        """
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{UNPROVEN_VOTER_FILE}"

    def exists(self) -> bool:
        """Return whether the voter may not vote yet."""
        return self._disk.exists(self._path)

    def write(self) -> None:
        """Create the file before the directory is formatted; on disk when this returns."""
        self._disk.write_atomically(self._path, b"")

    def remove(self) -> None:
        """Remove the file when the voter may vote; on disk when this returns."""
        if self._disk.exists(self._path):
            self._disk.remove(self._path)
            self._disk.sync_directory(self._directory)
