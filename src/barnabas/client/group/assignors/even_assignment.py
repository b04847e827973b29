"""Sticky assignment for members with equal subscriptions: equal shares, few movements.

Members keep their partitions, up to their share. The other partitions are distributed in turn; if
racks matter, members in the rack of a replica go first. Shares differ by at most one partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.group.assignors.assignor import Topics
    from barnabas.client.group.assignors.claims import Claims
    from barnabas.client.group.assignors.rack_match import RackMatch

__all__ = ["EvenAssignment"]


class EvenAssignment:
    """The assignment of one group; call `run` once.

    Attributes:
        decided: The partitions, by member.
        moving: Partitions that move to another member, with their new owners. Under the cooperative
            protocol they are assigned only after their owners have given them up.
    """

    def __init__(self, topics: Topics, racks: RackMatch, claims: Claims) -> None:
        self._racks = racks
        self._claims = claims
        self._every = [
            TopicPartition(topic, each.number) for topic in sorted(topics) for each in topics[topic]
        ]
        # Every member gets `_share` partitions; this number of members gets one more.
        self._share, self._greater_shares = divmod(len(self._every), len(claims.owned))
        self._share_max = self._share + (self._greater_shares > 0)
        self.decided: dict[str, list[TopicPartition]] = {name: [] for name in claims.owned}
        self.moving: dict[TopicPartition, str] = {}
        # Partitions that their owners could not keep, with these owners.
        self._given_up: dict[TopicPartition, str] = {}
        # Members below the share, and members with exactly the share that may get one more.
        self._below: list[str] = []
        self._at_share: list[str] = []

    def run(self) -> None:
        """Compute the assignment."""
        for name in self._claims.owned:
            self._keep(name)
        kept = {tp for partitions in self.decided.values() for tp in partitions}
        left = self._racks.rarest_first([tp for tp in self._every if tp not in kept])
        self._below.sort()
        self._at_share.sort()
        if self._racks.of_member:
            left = self._assign_near(left)
        self._assign_in_turn(left)

    def _keep(self, name: str) -> None:
        """Let a member keep the partitions that it owns, up to its share."""
        owned: list[TopicPartition] = []
        for tp in sorted(self._claims.owned[name], key=lambda tp: (tp.partition, tp.topic)):
            if self._racks.is_apart(name, tp):
                self._given_up[tp] = name
            elif tp not in self._claims.disputed:
                owned.append(tp)
        if len(owned) < self._share:
            self._below.append(name)
            self.decided[name] = owned
            return
        if len(owned) >= self._share_max and self._greater_shares:
            self._take_greater_share()
            kept = self._share_max
        else:
            kept = self._share
            if self._greater_shares:
                self._at_share.append(name)
        self.decided[name] = owned[:kept]
        self._given_up.update(dict.fromkeys(owned[kept:], name))

    def _take_greater_share(self) -> None:
        self._greater_shares -= 1
        if not self._greater_shares:
            self._at_share.clear()

    def _assign_near(self, left: list[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members in their replicas' racks, in turn; return the others."""
        turn = 0
        remaining: list[TopicPartition] = []
        for tp in left:
            index = self._racks.next_near(tp, self._below, turn)
            if index >= 0:
                name = self._below[index]
                if self._assign_to(tp, name) >= self._share:
                    del self._below[index]
                    if self._share < self._share_max and self._greater_shares:
                        self._at_share.append(name)
                else:
                    index += 1
                turn = index % len(self._below) if self._below else 0
                continue
            index = self._racks.next_near(tp, self._at_share, 0)
            if index < 0:
                remaining.append(tp)
                continue
            self._assign_to(tp, self._at_share.pop(index))
            self._take_greater_share()
        return remaining

    def _assign_in_turn(self, left: list[TopicPartition]) -> None:
        """Assign partitions to members below their share in turn, then one more to others."""
        turn = 0
        for tp in left:
            if not self._below:
                self._assign_to(tp, self._at_share.pop(0))
                continue
            turn %= len(self._below)
            name = self._below[turn]
            if self._assign_to(tp, name) == self._share:
                del self._below[turn]
                self._at_share.append(name)
            else:
                turn += 1

    def _assign_to(self, partition: TopicPartition, name: str) -> int:
        """Assign a partition to a member; return the member's number of partitions."""
        self.decided[name].append(partition)
        former = self._given_up.get(partition, name)
        if former != name or partition in self._claims.disputed:
            self.moving[partition] = name
        return len(self.decided[name])
