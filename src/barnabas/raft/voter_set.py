"""The voters of the metadata quorum, their replica keys, and their history in the log (KIP-853).

A replica key has the node id and the log directory id. A node that returns with an empty disk is a
different replica, because it does not know the votes of the earlier replica.

`VoterHistory` has the voters and kraft.version by log offset. A record is in force as soon as it is
in the log, committed or not. Truncation removes it. This is Kafka's
KRaftControlRecordStateMachine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from barnabas.protocol.records import nodes
from barnabas.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class ReplicaKey(NamedTuple):
    """A replica; the directory id is zero where it is unknown (kraft.version 0)."""

    id: int
    directory_id: bytes = ZERO_UUID


class Address(NamedTuple):
    """The address where a replica listens for other replicas."""

    host: str
    port: int


# Supported levels of kraft.version: 0 for static voters, 1 for dynamic voters.
KRAFT_VERSION_MIN = 0
KRAFT_VERSION_MAX = 1


class Voter(msgspec.Struct, frozen=True):
    """One voter of the quorum."""

    key: ReplicaKey
    # (listener name, address) pairs; the first is the default listener.
    endpoints: tuple[tuple[str, Address], ...] = ()
    # Range of kraft.version levels that the voter supports.
    min_version: int = KRAFT_VERSION_MIN
    max_version: int = KRAFT_VERSION_MAX

    def is_equivalent_to(self, other: Voter) -> bool:
        """Return whether key, endpoints and versions are equal, in any order of the endpoints."""
        return (
            self.key == other.key
            and dict(self.endpoints) == dict(other.endpoints)
            and (self.min_version, self.max_version) == (other.min_version, other.max_version)
        )

    def address(self, listener_name: str) -> Address | None:
        """Return the voter's address on a listener; None if it has no such listener."""
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
        """Create the voters of `controller.quorum.voters`, which have no directory ids."""
        return cls(
            Voter(
                ReplicaKey(node_id),
                ((listener_name, Address(*addresses[node_id])),) if node_id in addresses else (),
                # The supported range of other voters is unknown, so the smallest range is used.
                max_version=KRAFT_VERSION_MIN,
            )
            for node_id in ids
        )

    @property
    def ids(self) -> tuple[int, ...]:
        """Node ids in ascending order."""
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
        """Return the voter of a node; None if there is none."""
        return self._voters.get(node_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Return whether a replica is a voter.

        A voter without directory id is matched by its node id alone.
        """
        voter = self._voters.get(key.id)
        if voter is None:
            return False
        return voter.key.directory_id in (ZERO_UUID, key.directory_id)

    def with_voter(self, voter: Voter) -> VoterSet:
        """Return the set with `voter`, which replaces the voter of the same node."""
        return VoterSet([*self._voters.values(), voter])

    def without(self, node_id: int) -> VoterSet:
        """Return the set without the voter of a node."""
        return VoterSet(voter for voter in self if voter.key.id != node_id)

    def to_record(self) -> nodes.VotersRecord:
        """Return the VotersRecord of this set (kraft.version 1 and later)."""
        return nodes.VotersRecord(
            version=0,
            voters=[
                nodes.Voter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[
                        nodes.Endpoint(name=name, host=at.host, port=at.port)
                        for name, at in voter.endpoints
                    ],
                    kraft_version_feature=nodes.KRaftVersionFeature(
                        min_supported_version=voter.min_version,
                        max_supported_version=voter.max_version,
                    ),
                )
                for voter in self
            ],
        )

    @classmethod
    def from_record(cls, record: nodes.VotersRecord) -> VoterSet:
        """Create the set that a VotersRecord describes."""
        return cls(
            Voter(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                tuple((each.name, Address(each.host, each.port)) for each in voter.endpoints),
                voter.kraft_version_feature.min_supported_version,
                voter.kraft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )


T = TypeVar("T")


class VoterHistory:
    """Voters and kraft.version by the offset of their record."""

    def __init__(self, static: VoterSet) -> None:
        # In force while no record names voters.
        self.static = static
        # (offset, value) in ascending order of offsets.
        self._voters: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    @property
    def last(self) -> VoterSet:
        """The voters in force."""
        return self._voters[-1][1] if self._voters else self.static

    @property
    def last_offset(self) -> int | None:
        """Offset of the record of the voters in force; None if the voters are static."""
        return self._voters[-1][0] if self._voters else None

    @property
    def kraft_version(self) -> int:
        """The kraft.version in force; 0 while the voters are static."""
        return self._versions[-1][1] if self._versions else 0

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        """Add the VotersRecord at `offset`, replacing records at or above that offset."""
        self._voters = [each for each in self._voters if each[0] < offset]
        self._voters.append((offset, voters))

    def add_kraft_version(self, offset: int, level: int) -> None:
        """Add the KRaftVersionRecord at `offset`, replacing records at or above that offset."""
        self._versions = [each for each in self._versions if each[0] < offset]
        self._versions.append((offset, level))

    def truncate_to(self, offset: int) -> None:
        """Remove the records at or above `offset`, where the log now ends."""
        self._voters = [each for each in self._voters if each[0] < offset]
        self._versions = [each for each in self._versions if each[0] < offset]

    def forget_below(self, offset: int) -> None:
        """Remove the records below `offset` except the last, because a snapshot replaces them."""
        self._voters = _from(self._voters, offset)
        self._versions = _from(self._versions, offset)

    def replace_by(self, other: VoterHistory) -> None:
        """Take over the content of `other`, after the leader's snapshot has replaced the log."""
        self._voters = other._voters
        self._versions = other._versions

    def voters_at(self, offset: int) -> VoterSet | None:
        """Return the voters of the last record below `offset`; None if there is none."""
        found = [voters for at, voters in self._voters if at < offset]
        return found[-1] if found else None

    def kraft_version_at(self, offset: int) -> int:
        """Return the kraft.version of the last record below `offset`; 0 if there is none."""
        found = [level for at, level in self._versions if at < offset]
        return found[-1] if found else 0


def _from(entries: list[tuple[int, T]], offset: int) -> list[tuple[int, T]]:
    """Return the entries from `offset` on, and the last entry below it."""
    below = [each for each in entries if each[0] < offset]
    return below[-1:] + [each for each in entries if each[0] >= offset]
