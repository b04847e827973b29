"""Asyncio clients that the user has to close: what happens if the event loop ends before."""

from __future__ import annotations

import logging
from abc import abstractmethod

from barnabas.client.errors import ClientClosedError, ClientError
from barnabas.client.session.closed_by_user import AT_EXIT_S, ClosedByUser

__all__ = ["AsyncClosedByUser"]

_log = logging.getLogger(__name__)


class AsyncClosedByUser(ClosedByUser):
    """Base of the asyncio clients."""

    @abstractmethod
    async def _end(self, timeout: float) -> None:
        """Deliver records for up to `timeout` seconds, abort a transaction, close connections.

        Raises:
            ClientError: Records were not delivered.
        """

    async def _on_end_of_loop(self) -> None:
        """Warn and end the client if it is open while `asyncio.run` shuts the loop down."""
        if not self._is_left_open:
            return
        self._warn_not_closed()
        if self._has_transaction:
            _log.warning("A transaction was not committed: client=%r", self)
        try:
            await self._end(AT_EXIT_S)
        except ClientError as error:
            _log.error("Records are lost: the event loop ended: client=%r error=%s", self, error)

    def _close_at_exit(self, timeout: float) -> None:
        """Report lost records: without its event loop the client cannot deliver them.

        Raises:
            ClientClosedError: There are undelivered records.
        """
        count = self._undelivered()
        if count:
            raise ClientClosedError(f"the event loop ended with {count} undelivered records")
