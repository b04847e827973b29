"""The share session with one broker: its epoch, its partitions, and pending acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.share.acknowledgements import Acknowledgements

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from barnabas.client.errors import ClientError
    from barnabas.client.retries import RetryTimer
    from barnabas.client.share.acquired_records import ShareSource
    from barnabas.client.share.share_requests import PartitionId

__all__ = ["FINAL_EPOCH", "AckGroup", "ShareSession", "joined"]

# The epoch that opens a session, and the epoch that closes it.
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1


class AckGroup(NamedTuple):
    """Acknowledgements of one partition that were requested together."""

    source: ShareSource
    acks: Acknowledgements
    # Called once, with the error or None.
    on_done: Callable[[ClientError | None], None]

    @property
    def partition(self) -> PartitionId:
        """Topic id and number of the partition."""
        return self.source.topic_id, self.source.tp.partition


class ShareSession:
    """The session of this member with one broker; at most one request is in flight.

    Args:
        node_id: The broker.
        retry: Delays the next request after an error.
    """

    __slots__ = (
        "_epoch",
        "_partitions",
        "error",
        "in_flight",
        "is_ending",
        "is_urgent",
        "node_id",
        "pending",
        "retry",
    )

    def __init__(self, node_id: int, retry: RetryTimer) -> None:
        self.node_id = node_id
        self.retry = retry
        # Epoch of the next request. Requests move it; an error resets it to INITIAL_EPOCH.
        self._epoch = INITIAL_EPOCH
        # The partitions that the broker has in this session, as of the last request.
        self._partitions: set[PartitionId] = set()
        # Whether a request is in flight.
        self.in_flight = False
        # Acknowledgements for the next request.
        self.pending: list[AckGroup] = []
        # Whether `pending` must not wait for a fetch.
        self.is_urgent = False
        # Whether the next request closes the session.
        self.is_ending = False
        # Error of the last request without a response; None after a response.
        self.error: ClientError | None = None

    @property
    def is_open(self) -> bool:
        """Whether the broker has this session; only then it accepts acknowledgements."""
        return self._epoch != INITIAL_EPOCH

    @property
    def epoch(self) -> int:
        """Epoch of the next request."""
        return FINAL_EPOCH if self.is_ending else self._epoch

    def take_pending(self) -> list[AckGroup]:
        """Return the pending acknowledgements for a request that is being sent."""
        taken, self.pending = self.pending, []
        self.is_urgent = False
        return taken

    def plan_fetch(
        self, wanted: Collection[PartitionId], groups: Iterable[AckGroup]
    ) -> tuple[dict[PartitionId, Acknowledgements | None], list[PartitionId]]:
        """Return the changes of the next fetch, and the partitions that it forgets."""
        listed: dict[PartitionId, Acknowledgements | None] = {
            each: None for each in wanted if each not in self._partitions
        }
        listed.update(joined(groups))
        forgotten = [each for each in self._partitions if each not in set(wanted)]
        # A partition with acknowledgements is added to the session by the broker.
        self._partitions = {*wanted, *listed}
        return listed, [each for each in forgotten if each not in listed]

    def on_sent(self) -> None:
        """Move the epoch for the next request."""
        self.in_flight = True
        if self.is_ending:
            return
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def reset(self) -> None:
        """Start a new session with the next fetch, because this one is lost or closed."""
        self._epoch = INITIAL_EPOCH
        self._partitions = set()
        self.is_ending = False


def joined(groups: Iterable[AckGroup]) -> dict[PartitionId, Acknowledgements]:
    """Return the acknowledgements of all groups by partition."""
    found: dict[PartitionId, Acknowledgements] = {}
    for group in groups:
        found.setdefault(group.partition, Acknowledgements()).merge(group.acks)
    return found
