"""Transaction calls of both producers: each call is started, and its outcome is read once.

A call continues after the user's timeout. The next call must be the same method and waits for the
same outcome (KIP-691: the timeout of a commit does not determine its outcome).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.errors import ClientConfigError, IllegalTransactionStateError
from barnabas.client.group.group_offsets import CommittedOffset, offsets_of
from barnabas.client.group.membership import GroupGeneration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.errors import ClientError
    from barnabas.client.retries import OnDone
    from barnabas.client.topic_partition import K
    from barnabas.client.transactions.manager import TransactionManager
    from barnabas.client.transactions.state import PreparedTransaction

__all__ = ["Outcome", "TransactionCalls"]


class Outcome:
    """Outcome of one transaction call."""

    __slots__ = ("_on_end", "call", "error", "is_done")

    def __init__(self, call: str, on_end: Callable[[], None]) -> None:
        # Name of the producer's method.
        self.call = call
        self.is_done = False
        self.error: ClientError | None = None
        self._on_end = on_end

    def end(self, _done: bool | None, error: ClientError | None) -> None:
        """Record that the call has ended."""
        self.error = error
        self.is_done = True
        self._on_end()


class TransactionCalls:
    """Transaction calls of a producer; `manager` is None without a transactional id."""

    def __init__(self, manager: TransactionManager | None, on_progress: Callable[[], None]) -> None:
        self._manager = manager
        self._on_progress = on_progress
        # A started call whose outcome the user has not read.
        self._unclaimed: Outcome | None = None

    @property
    def manager(self) -> TransactionManager:
        """The transaction manager.

        Raises:
            ClientConfigError: the producer has no `transactional_id`.
        """
        if self._manager is None:
            raise ClientConfigError("transactions need a producer with a transactional_id")
        return self._manager

    def initialize(self, *, keeps_prepared: bool = False) -> Outcome:
        """Start `init_transactions`."""
        start = partial(self.manager.initialize, keeps_prepared=keeps_prepared)
        return self._started("init_transactions", start)

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            IllegalTransactionStateError: the producer is in another state, or a call is unfinished.
        """
        self._check_unclaimed("begin_transaction")
        self.manager.begin()

    def send_offsets(
        self,
        offsets: Mapping[K, int | CommittedOffset],
        group: GroupGeneration | str,
    ) -> Outcome:
        """Start `send_offsets_to_transaction`; `group` is a member's metadata or a group's name."""
        member = GroupGeneration(group) if isinstance(group, str) else group
        wanted = offsets_of(offsets)

        def start(on_done: OnDone[bool]) -> None:
            if wanted:
                self.manager.send_offsets(wanted, member, on_done)
            else:
                self.manager.check_sending()
                on_done(True, None)

        return self._started("send_offsets_to_transaction", start)

    def commit(self) -> Outcome:
        """Start `commit_transaction`."""
        return self._started("commit_transaction", self.manager.commit)

    def prepare(self) -> Outcome:
        """Start `prepare_transaction`."""
        return self._started("prepare_transaction", self.manager.prepare)

    def complete(self, stored: PreparedTransaction) -> Outcome:
        """Start `complete_transaction`."""
        start = partial(self.manager.complete, stored)
        return self._started("complete_transaction", start)

    def abort(self) -> Outcome:
        """Start `abort_transaction`."""
        return self._started("abort_transaction", self.manager.abort)

    def detach(self) -> Outcome:
        """Start `detach_transaction`."""
        return self._started("detach_transaction", self.manager.detach)

    def claim(self, outcome: Outcome) -> None:
        """Mark the outcome as read and raise its error.

        Raises:
            ClientError: the error of the call.
        """
        if self._unclaimed is outcome:
            self._unclaimed = None
        if outcome.error is not None:
            raise outcome.error

    def _started(self, call: str, start: Callable[[OnDone[bool]], None]) -> Outcome:
        unclaimed = self._unclaimed
        if unclaimed is not None and unclaimed.call == call:
            return unclaimed
        self._check_unclaimed(call)
        outcome = Outcome(call, self._on_progress)
        start(outcome.end)
        self._unclaimed = outcome
        return outcome

    def _check_unclaimed(self, call: str) -> None:
        unclaimed = self._unclaimed
        if unclaimed is None:
            return
        if unclaimed.is_done and unclaimed.error is not None:
            # The failed call needs no reader; the transaction's state decides which calls are
            # allowed.
            self._unclaimed = None
            return
        raise IllegalTransactionStateError(
            f"{call}: {unclaimed.call} has not ended: first call it again to wait for its end"
        )
