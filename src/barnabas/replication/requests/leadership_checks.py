"""Checks that this broker still leads a partition, before a read of coordinator state.

A leader that is cut off from the cluster does not know that the controller has elected another one.
It could return state that is out of date. Here, every other member of the ISR must fetch again
first: a new leader is elected from the ISR, and does not fetch from its predecessor.

A fetch counts only if the follower has sent it after a response that this broker has sent during
the check. An earlier fetch may have been delayed in the network. So a check completes the pending
fetches of the followers at once, and takes one or two round trips.

Apache Kafka has no such check. Sources: section 6.4 of the Raft dissertation (ReadIndex), KIP-447.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.requests.delayed_fetch import DelayedFetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.replication.partition.leader_role import LeaderRole
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.requests.idle_partitions import IdlePartitionRegistry
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.purgatory import Purgatory
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry


class _Check:
    """A pending check of one partition."""

    __slots__ = ("awaited", "leader", "on_done", "responded", "timeout")

    def __init__(
        self, leader: LeaderRole, awaited: set[int], on_done: Callable[[ErrorCode], None]
    ) -> None:
        # The role of this broker when the check began. Each leader epoch has another object.
        self.leader = leader
        # Followers that have not confirmed yet. Only decreases.
        self.awaited = awaited
        # Followers that got a response to a fetch since the check began. Their next fetch confirms.
        self.responded: set[int] = set()
        self.on_done = on_done
        self.timeout: WheelEntry | None = None


class LeadershipChecks:
    """The pending checks of all partitions of this broker."""

    __slots__ = ("_fetches", "_idle_partitions", "_online", "_wheel", "pending")

    def __init__(
        self,
        online: Mapping[TopicPartition, Partition],
        fetches: Purgatory,
        idle_partitions: IdlePartitionRegistry,
        wheel: TimingWheel,
    ) -> None:
        """Create an empty set of checks.

        Args:
            online: the registry's own dict of online partitions.
            fetches: the pending fetches.
            idle_partitions: followers' sessions, whose fetches skip idle partitions.
            wheel: runs the timeouts.
        """
        self._online = online
        self._fetches = fetches
        self._idle_partitions = idle_partitions
        self._wheel = wheel
        # The checks by partition, oldest first. No list is empty.
        self.pending: dict[TopicPartition, list[_Check]] = {}
        idle_partitions.awaited = self.pending

    def confirm_leadership(
        self,
        topic_partition: TopicPartition,
        timeout_ms: float,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """Check that no other broker had become the leader when this method was called.

        Args:
            topic_partition: the partition.
            timeout_ms: limit of the check.
            on_done: called once, perhaps before this returns: with NONE, with
                NOT_LEADER_OR_FOLLOWER, or with REQUEST_TIMED_OUT if a member of the ISR has not
                fetched in time.
        """
        leader = self._leader(topic_partition)
        if leader is None:
            on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        awaited = set(leader.isr_state.maximal_isr) - {leader.leader_id}
        if not awaited:
            on_done(ErrorCode.NONE)
            return
        check = _Check(leader, awaited, on_done)
        self.pending.setdefault(topic_partition, []).append(check)
        check.timeout = self._wheel.add(
            timeout_ms,
            lambda: self._finish(topic_partition, check, ErrorCode.REQUEST_TIMED_OUT),
        )
        self._complete_fetches(topic_partition, awaited)

    def on_fetches(self, follower: int, fetched: Iterable[TopicPartition]) -> None:
        """Handle fetches that a follower has sent to this leader, after their partitions' reads.

        The fetches are completed, or pending in the purgatory.
        """
        for topic_partition in fetched:
            checks = self.pending.get(topic_partition)
            if checks is None:
                continue
            for check in checks:
                if follower in check.responded:
                    check.awaited.discard(follower)
            self.recheck(topic_partition)
            checks = self.pending.get(topic_partition, [])
            awaiting = [each for each in checks if follower in each.awaited]
            if not awaiting:
                continue
            # A fetch that is not pending has its response already.
            for check in awaiting:
                check.responded.add(follower)
            self._complete_fetches(topic_partition, {follower})

    def recheck(self, topic_partition: TopicPartition) -> None:
        """Finish the checks of a partition that are decided, after a change of its state."""
        for check in list(self.pending.get(topic_partition, ())):
            leader = check.leader
            if self._leader(topic_partition) is not leader:
                self._finish(topic_partition, check, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif check.awaited.isdisjoint(leader.isr_state.maximal_isr):
                self._finish(topic_partition, check, ErrorCode.NONE)

    def close(self) -> None:
        """Drop the pending checks without a result."""
        for checks in self.pending.values():
            for check in checks:
                if check.timeout is not None:
                    check.timeout.cancel()
        self.pending.clear()

    def _leader(self, topic_partition: TopicPartition) -> LeaderRole | None:
        partition = self._online.get(topic_partition)
        return None if partition is None else partition.leader

    def _complete_fetches(self, topic_partition: TopicPartition, followers: set[int]) -> None:
        """Respond to pending fetches of followers, so that they fetch again at once.

        The next fetches name the partition, because it is not idle while a check is pending. A
        pending fetch that still reads its other partitions responds after the last one.
        """
        if self._idle_partitions.sessions:
            self._idle_partitions.activate(topic_partition)
        for operation in self._fetches.operations(topic_partition):
            if isinstance(operation, DelayedFetch) and operation.follower_id in followers:
                for check in self.pending.get(topic_partition, ()):
                    check.responded.add(operation.follower_id)
                operation.force_complete()

    def _finish(self, topic_partition: TopicPartition, check: _Check, error: ErrorCode) -> None:
        checks = self.pending.get(topic_partition, [])
        if check not in checks:
            # The completion of another check has finished this one.
            return
        checks.remove(check)
        if not checks:
            del self.pending[topic_partition]
        if check.timeout is not None:
            check.timeout.cancel()
        check.on_done(error)
