"""The lifetime of a client: until the user closes it, and only in the process that created it."""

from __future__ import annotations

import logging
import warnings
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NoReturn, Self, SupportsIndex
from weakref import WeakSet

from barnabas.client.errors import ClientClosedError, ClientError, ForkedClientError
from barnabas.runtime.clock import SystemClock
from barnabas.runtime.process import at_exit, process_id

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["AT_EXIT_S", "BoundToProcess", "ClosedByUser", "Lifetime", "WithBlock"]

_log = logging.getLogger(__name__)
# How long (s) the end of the program may wait until all records are delivered.
AT_EXIT_S = 30.0
_MS_PER_S = 1000.0


class Lifetime:
    """Whether a client may still be used; `kind` is the kind of client, for error messages."""

    __slots__ = ("_kind", "_pid", "is_closed")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._pid = process_id()
        self.is_closed = False

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the process that created the client.

        Its sockets must then not be used or closed here.
        """
        return self._pid != process_id()

    def check(self) -> None:
        """Raise unless calls may be made now.

        Raises:
            ForkedClientError: The process was forked after the client was created.
            ClientClosedError: The client is closed.
        """
        if self.is_forked:
            raise ForkedClientError
        if self.is_closed:
            raise ClientClosedError(f"the {self._kind} is closed")

    def end(self) -> bool:
        """Mark the client as closed; return whether the caller must close connections now."""
        was_closed, self.is_closed = self.is_closed, True
        return not was_closed and not self.is_forked


class BoundToProcess:
    """Base of the clients, and of the objects that use their connections."""

    __slots__ = ()

    def __reduce_ex__(self, _protocol: SupportsIndex) -> NoReturn:
        """Refuse to be pickled or copied.

        Spark and multiprocessing pickle the variables that a function uses.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied, because its connections belong "
            "to the process that created it: create it inside the function that another process "
            "runs (for Spark, inside the function of foreachPartition or mapPartitions), and pass "
            "only its configuration"
        )


class WithBlock(BoundToProcess, ABC):
    """Base class of the blocking clients."""

    @abstractmethod
    def close(self) -> None:
        """Close the object; the end of the block calls this."""

    def _give_up(self) -> None:
        """Close the object after an exception in the block."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._give_up()


class ClosedByUser(ABC):
    """Base of the clients with their own connections.

    The constructor calls `_watch` at its end. A class with records to deliver overrides
    `_undelivered`, `_has_transaction` and `_close_at_exit`.
    """

    # Its end shows that the client is closed; None before `_watch` and after the warning.
    _watched: Lifetime | None = None

    def _watch(self, lifetime: Lifetime) -> None:
        """Warn from now on if the client is not closed."""
        self._watched = lifetime
        _open_clients.add(self)

    @property
    def _is_left_open(self) -> bool:
        lifetime = self._watched
        return not (lifetime is None or lifetime.is_closed or lifetime.is_forked)

    def _undelivered(self) -> int:
        """Return the number of records that are neither delivered nor failed."""
        return 0

    @property
    def _has_transaction(self) -> bool:
        """Whether a transaction is open."""
        return False

    @abstractmethod
    def _close_at_exit(self, timeout: float) -> None:
        """Deliver records for up to `timeout` seconds; abort an open transaction.

        Raises:
            ClientError: Records were not delivered.
        """

    def _warn_not_closed(self) -> None:
        """Warn once that the client is not closed."""
        self._watched = None
        count = self._undelivered()
        left = f"; {count} records were not delivered yet" if count else ""
        if self._has_transaction:
            left += "; its transaction was not committed"
        warnings.warn(
            f"{self!r} was not closed{left}: call close(), or use it in a with block",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )

    def __del__(self) -> None:
        if not self._is_left_open:
            return
        count = self._undelivered()
        if count:
            # The end of the program delivers the records: the event loop must not run here, because
            # the garbage collector may call this anywhere.
            _dropped.append(self)
        if count or self._has_transaction:
            _log.warning(
                "A client was dropped but not closed; call close(): client=%r records=%d",
                self,
                count,
            )
        self._warn_not_closed()


# All clients that may be open. Clients that were closed stay until they are collected.
_open_clients: WeakSet[ClosedByUser] = WeakSet()
# Clients that the garbage collector found with undelivered records.
_dropped: list[ClosedByUser] = []


def _close_all() -> None:
    """Deliver the records of all clients that are not closed, for up to `AT_EXIT_S` together."""
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + AT_EXIT_S * _MS_PER_S
    left_open = [client for client in _open_clients if client._is_left_open]
    for client in left_open:
        client._warn_not_closed()
    for client in [*_dropped, *left_open]:
        count, has_transaction = client._undelivered(), client._has_transaction
        if has_transaction:
            _log.warning("A transaction was not committed: client=%r records=%d", client, count)
        left_s = max(0.0, end_ms - clock.monotonic_ms()) / _MS_PER_S
        try:
            client._close_at_exit(left_s)
        except ClientError as error:
            # Without records, the broker aborts a transaction after its timeout.
            if count:
                _log.error(
                    "Records are lost, because the program ended: client=%r error=%s", client, error
                )


at_exit(_close_all)
