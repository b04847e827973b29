"""A consumer's part in its group, as the consumer sees it, whichever protocol it speaks (F3).

A membership lives on the consumer's loop: its heartbeats go by timers whether the user polls or
not; joining, revoking and assigning go on only within `poll`, on the user's thread, because the
user's callbacks run there. What it needs of its consumer it asks a `MembershipHost`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from barnabas.client.errors import ClientError
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["GroupGeneration", "Membership", "MembershipHost", "OnHostDone"]

# How a step of the host ended: None, or what the user's callback raised. Called exactly once.
OnHostDone: TypeAlias = Callable[[BaseException | None], None]


class GroupGeneration(NamedTuple):
    """Which member of which generation speaks: what commits carry. Taken when a call begins."""

    group_id: str
    # The generation of a classic group, the member's epoch of a KIP-848 one; -1 without membership.
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None
    # Whether `generation_id` is a member's epoch (KIP-848), which reads of offsets carry too.
    is_epoch: bool = False


class MembershipHost(Protocol):
    """What a membership asks of its consumer; called within `Membership.poll` and `close` only."""

    @property
    def subscribed_topics(self) -> Collection[str]:
        """Names of the topics wanted, as matched against the newest metadata."""
        ...

    @property
    def subscribed_regex(self) -> str | None:
        """A pattern that the broker matches (KIP-848), if that is what was subscribed to."""
        ...

    @property
    def owned_partitions(self) -> Collection[TopicPartition]:
        """The present assignment."""
        ...

    def refresh_pattern(self, on_done: OnHostDone) -> None:
        """Match the pattern against fresh metadata, before a join; at once without a pattern."""
        ...

    def commit_before_revoke(
        self, leaving: Collection[TopicPartition], on_done: OnHostDone
    ) -> None:
        """Commit what earlier polls returned, if auto commit is on.

        Nothing more of `leaving`, which are given up next, is handed out: it would come again to
        their next owner.
        """
        ...

    def revoke(self, partitions: Collection[TopicPartition], on_done: OnHostDone) -> None:
        """Stop handing out these, run the user's callback, then take them out of the assignment."""
        ...

    def lose(self, partitions: Collection[TopicPartition], on_done: OnHostDone) -> None:
        """As `revoke`, when others may own the partitions already: nothing can be committed."""
        ...

    def assign(
        self,
        partitions: Collection[TopicPartition],
        added: Collection[TopicPartition],
        on_done: OnHostDone,
    ) -> None:
        """Take `partitions` as the whole assignment, then run the user's callback with `added`."""
        ...

    def wake(self) -> None:
        """Something happened that the next round of `poll` should see: end its wait."""
        ...


class Membership(Protocol):
    """One member. Errors that the user must hear of are raised by `poll`."""

    @property
    def generation(self) -> GroupGeneration:
        """Who speaks at this moment."""
        ...

    @property
    def is_stable(self) -> bool:
        """Whether the assignment is the group's, and commits of this generation are taken.

        True while partitions are being given up before the next join, for their last commit.
        """
        ...

    def poll(self) -> None:
        """Take the membership as far as it goes without waiting; notes that the user lives.

        Raises:
            ClientError: what no retry mends (fenced, not authorised, no assignor in common, ...).
            BaseException: what a callback of the user raised.
        """
        ...

    def next_deadline_ms(self) -> float | None:
        """When, on the monotonic clock, `poll` should be called again at the latest."""
        ...

    def on_subscription_changed(self) -> None:
        """The host's topics, pattern, or the partitions of one of them are others now."""
        ...

    def request_rejoin(self, reason: str) -> None:
        """Have the member join anew with the next `poll` (enforceRebalance)."""
        ...

    def on_commit_error(self, error: ClientError, spoken_by: GroupGeneration) -> None:
        """A commit of that generation was refused: UNKNOWN_MEMBER_ID and the like mean a rejoin."""
        ...

    def leave(self, reason: str, on_done: Callable[[], None]) -> None:
        """Leave the group (a static member stays) and stop; `on_done` when that is answered."""
        ...

    def stop(self) -> None:
        """Stop at once, without a word to the broker: timers and calls under way are dropped."""
        ...
