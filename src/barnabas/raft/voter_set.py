"""The voters of the metadata quorum, and their record in log and snapshots (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.records import voters_record
from barnabas.protocol.schema import ZERO_UUID
from barnabas.raft.replica_key import Address, ReplicaKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# What this code supports of kraft.version: 0 static voters, 1 dynamic ones.
KRAFT_VERSION_MIN = 0
KRAFT_VERSION_MAX = 1


class Voter(msgspec.Struct, frozen=True):
    """One voter."""

    key: ReplicaKey
    # Listener name to address; the first is the default one.
    endpoints: tuple[tuple[str, Address], ...] = ()
    # Levels of kraft.version that it supports.
    min_version: int = KRAFT_VERSION_MIN
    max_version: int = KRAFT_VERSION_MAX

    def says_the_same_as(self, other: Voter) -> bool:
        """Whether both say the same, in whatever order."""
        return (
            self.key == other.key
            and dict(self.endpoints) == dict(other.endpoints)
            and (self.min_version, self.max_version) == (other.min_version, other.max_version)
        )

    def address(self, listener_name: str) -> Address | None:
        """Where it listens under that name."""
        return next((at for name, at in self.endpoints if name == listener_name), None)


class VoterSet:
    """An immutable set of voters, at most one per node id."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        by_id = {voter.key.id: voter for voter in voters}
        self._voters = {node_id: by_id[node_id] for node_id in sorted(by_id)}

    @classmethod
    def static(
        cls, ids: Iterable[int], addresses: Mapping[int, tuple[str, int]], listener_name: str
    ) -> VoterSet:
        """The voters of `controller.quorum.voters`: without directory ids."""
        return cls(
            Voter(
                ReplicaKey(node_id),
                ((listener_name, Address(*addresses[node_id])),) if node_id in addresses else (),
                # Nothing is known of the others: only what has to be so is said of them.
                max_version=KRAFT_VERSION_MIN,
            )
            for node_id in ids
        )

    @property
    def ids(self) -> tuple[int, ...]:
        """Node ids, ascending."""
        return tuple(self._voters)

    @property
    def majority(self) -> int:
        """The smallest number of voters that is more than half of them."""
        return len(self._voters) // 2 + 1

    def __len__(self) -> int:
        return len(self._voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self._voters.values()))

    def __repr__(self) -> str:
        return f"VoterSet({[voter.key.id for voter in self]})"

    def get(self, node_id: int) -> Voter | None:
        """The voter of that node."""
        return self._voters.get(node_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether this very replica is a voter; a voter without a directory id is known by node."""
        voter = self._voters.get(key.id)
        if voter is None:
            return False
        return voter.key.directory_id in (ZERO_UUID, key.directory_id)

    def with_voter(self, voter: Voter) -> VoterSet:
        """The set with `voter` in it, in the place of the one of its node."""
        return VoterSet([*self._voters.values(), voter])

    def without(self, node_id: int) -> VoterSet:
        """The set without that node's voter."""
        return VoterSet(voter for voter in self if voter.key.id != node_id)

    def to_record(self) -> voters_record.VotersRecord:
        """The record of kraft.version 1 and later."""
        return voters_record.VotersRecord(
            version=0,
            voters=[
                voters_record.Voter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[
                        voters_record.Endpoint(name=name, host=at.host, port=at.port)
                        for name, at in voter.endpoints
                    ],
                    kraft_version_feature=voters_record.KRaftVersionFeature(
                        min_supported_version=voter.min_version,
                        max_supported_version=voter.max_version,
                    ),
                )
                for voter in self
            ],
        )

    @classmethod
    def from_record(cls, record: voters_record.VotersRecord) -> VoterSet:
        """What a record says."""
        return cls(
            Voter(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                tuple((each.name, Address(each.host, each.port)) for each in voter.endpoints),
                voter.kraft_version_feature.min_supported_version,
                voter.kraft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )
