"""Share fetches of many partitions, which take several turns of the event loop (KIP-932)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.requests.delayed_fetch import limit_of
from barnabas.server.share.delayed_share_fetch import (
    Allowed,
    DelayedShareFetch,
    ShareFetchResult,
)
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.server.share.delayed_share_fetch import LogSource, ShareFetchOptions
    from barnabas.server.share.share_meters import FetchMeters, PartitionMeters
    from barnabas.server.share.share_partition import SharePartition
    from barnabas.storage.topic_partition import TopicIdPartition

    Steps = Generator[None, None, None]
    Results = dict[TopicIdPartition, ShareFetchResult]

_log = logging.getLogger(__name__)

# Partitions that one step reads.
AT_ONCE = 100


class WideShareFetch(DelayedShareFetch):
    """Checks its partitions in steps. When it is complete, it reads and acquires in steps.

    The records of a partition are read and acquired in the same turn, so no lock is needed. Between
    the check and the acquisition, other members may acquire the records that completed the fetch.
    """

    __slots__ = ("_is_gone", "_run")

    def __init__(
        self,
        options: ShareFetchOptions,
        source: LogSource,
        on_done: Callable[[Results], None],
        on_expired: Callable[[], None],
        meters: FetchMeters,
        run: Callable[[Steps], None],
    ) -> None:
        """Create a fetch without partitions, see `DelayedShareFetch`. `add` adds them.

        Args:
            options: the request as a whole.
            source: reads the log.
            on_done: gets the results of the partitions that the response includes.
            on_expired: called after a timeout.
            meters: measures this fetch.
            run: runs steps over several turns.
        """
        super().__init__(options, (), source, on_done, on_expired, meters)
        self._run = run
        # Whether the client has disconnected. Never reset.
        self._is_gone = False

    def cancel(self) -> bool:
        """Stop, also between two steps: the client cannot process further records."""
        self._is_gone = True
        return super().cancel()

    def check(self) -> Steps:
        """Check cases A to D for every partition, in steps, after the last one was added."""
        read_meters: list[PartitionMeters] = []
        for some in in_parts(list(self._partitions), AT_ONCE):
            if self.is_completed:
                return
            if self._is_any_decided(some, read_meters):
                self.force_complete()
                return
            yield
        self._meters.end_read(read_meters)
        if not self._partitions:
            self.force_complete()

    def _is_any_decided(
        self, partitions: list[SharePartition], read_meters: list[PartitionMeters]
    ) -> bool:
        if any(each.is_fenced for each in partitions):
            return True
        try:
            read = self._read_acquirable(partitions, self._options.params.max_bytes)
            read_meters += [each.meters for each, _, _ in read]
            return self._is_satisfied(read)
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the next read reports it
            return True

    def try_complete(self) -> bool:
        """Complete, since `try_complete_for` has checked the changed partition."""
        return self.force_complete()

    def on_complete(self) -> None:
        """Read and acquire in steps, and respond after the last one."""
        self._run(self._complete())

    def _complete(self) -> Steps:
        results: Results = {}
        allowed, limit = Allowed(self._options.records_max), limit_of(self._options.params)
        read_meters: list[PartitionMeters] = []
        for some in in_parts(list(self._partitions), AT_ONCE):
            if self._is_gone:
                return
            try:
                self._refuse_fenced(some)
                if allowed and limit.remaining > 0:
                    read = self._read_acquirable(some, limit.remaining, limit)
                    self._acquire(read, results, allowed)
                    read_meters += [each.meters for each, _, _ in read]
                else:
                    self._leave_out(some, results)
            except AssertionError:
                raise
            except Exception:  # noqa: BLE001 - only this request fails
                _log.exception("Unexpected error in a share fetch")
                for each in some:
                    failed = ShareFetchResult(ErrorCode.UNKNOWN_SERVER_ERROR)
                    results.setdefault(each.key.where, failed)
            yield
        if self._is_gone:
            return
        self._meters.end_read(read_meters)
        self._meters.complete(len(read_meters))
        errors = {where: ShareFetchResult(error) for where, error in self.errors.items()}
        self._on_done({**errors, **results})

    def _refuse_fenced(self, partitions: list[SharePartition]) -> None:
        for each in partitions:
            if each.is_fenced:
                self.refuse(each, each.fencing_error)

    def _leave_out(self, partitions: list[SharePartition], results: Results) -> None:
        """Respond without records for partitions beyond the limits of the request."""
        for each in partitions:
            if each.can_acquire():
                results[each.key.where] = ShareFetchResult()
