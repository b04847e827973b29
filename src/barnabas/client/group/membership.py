"""Interfaces between a consumer and its group membership, for both group protocols.

A membership runs on the consumer's event loop. Timers send its heartbeats whether or not the user
polls. Joins, revocations and assignments take place only inside `poll`, on the user's thread,
because they run the user's callbacks. The membership calls its consumer through `MembershipHost`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from barnabas.client.errors import ClientError
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["GroupGeneration", "Membership", "MembershipHost", "OnHostDone"]

# Called exactly once at the end of a host's step, with the exception of the user's callback or
# None.
OnHostDone: TypeAlias = Callable[[BaseException | None], None]


class GroupGeneration(NamedTuple):
    """A member and its generation, which commits contain; captured when a call begins."""

    group_id: str
    # Generation id of a classic group, or member epoch of a KIP-848 group; -1 without a membership.
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None
    # Whether `generation_id` is a member epoch (KIP-848), which OffsetFetch requests contain too.
    is_epoch: bool = False


class MembershipHost(Protocol):
    """Interface of the consumer for its membership.

    The methods with an `on_done` run code of the user, or change the assignment. They are called
    only inside `Membership.poll` and `Membership.leave`.
    """

    @property
    def subscribed_topics(self) -> Collection[str]:
        """Names of the subscribed topics; for a pattern, as last matched."""
        ...

    @property
    def subscribed_regex(self) -> str | None:
        """The pattern that the broker matches (KIP-848); None without one."""
        ...

    @property
    def owned_partitions(self) -> Collection[TopicPartition]:
        """The current assignment."""
        ...

    def refresh_pattern(self, on_done: OnHostDone) -> None:
        """Match the pattern against fresh metadata before a join; without one, end at once."""
        ...

    def commit_before_revoke(
        self, leaving: Collection[TopicPartition], on_done: OnHostDone
    ) -> None:
        """Commit the records that earlier polls returned, if automatic commits are on.

        From then on no records of `leaving` are returned to the user; otherwise the next owner
        would return them again.
        """
        ...

    def revoke(self, partitions: Collection[TopicPartition], on_done: OnHostDone) -> None:
        """Stop returning records, run the user's callback, then remove the partitions."""
        ...

    def lose(self, partitions: Collection[TopicPartition], on_done: OnHostDone) -> None:
        """Remove partitions that other members may own already; commits are not possible."""
        ...

    def assign(
        self,
        partitions: Collection[TopicPartition],
        added: Collection[TopicPartition],
        on_done: OnHostDone,
    ) -> None:
        """Set `partitions` as the whole assignment, then run the user's callback with `added`."""
        ...

    def wake(self) -> None:
        """End the wait of `poll`, because the membership needs another call of `poll`."""
        ...


class Membership(Protocol):
    """Interface of a group membership. `poll` raises the errors that the user must handle."""

    @property
    def generation(self) -> GroupGeneration:
        """The current member and generation, which commits contain."""
        ...

    @property
    def is_stable(self) -> bool:
        """Whether the assignment is valid and the coordinator accepts commits of this generation.

        This is also true while partitions are given up before the next join, so that their offsets
        can be committed.
        """
        ...

    def poll(self) -> None:
        """Advance the membership without waiting; record that the user polls.

        Raises:
            ClientError: An error that is not retriable (fenced, not authorized, no common assignor,
                ...).
            BaseException: A callback of the user raised this exception.
        """
        ...

    def next_deadline_ms(self) -> float | None:
        """Return when `poll` must be called again (ms, monotonic clock), or None."""
        ...

    def on_subscription_changed(self) -> None:
        """Handle a change of the topics, the pattern, or a topic's number of partitions."""
        ...

    def request_rejoin(self, reason: str) -> None:
        """Rejoin with the next `poll` (enforceRebalance)."""
        ...

    def on_commit_error(self, error: ClientError, sent_by: GroupGeneration) -> None:
        """Handle a refused commit of that generation.

        UNKNOWN_MEMBER_ID and similar errors mean a rejoin.
        """
        ...

    def leave(self, reason: str, on_done: Callable[[], None]) -> None:
        """Leave the group (except a static member) and stop; `on_done` follows the response."""
        ...

    def stop(self) -> None:
        """Stop at once without a request to the broker: cancel timers and ignore responses."""
        ...
