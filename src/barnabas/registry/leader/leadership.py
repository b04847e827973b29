"""The part of a process that the election gives it: it leads and writes, or it forwards.

A new leader first fences the writers before it, appends a NOOP record with its own epoch, and reads
the topic up to that record. Nothing that another leader wrote can follow the record, so the state
is then complete, and the process may write. A process that was deposed and does not know it yet
cannot append: its epoch is refused. Its own clock is a second check: it does not write when the
group may have removed it for its silence, which also holds beside a registry that does not fence.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.client.errors import ClientError
from barnabas.protocol.errors import ErrorCode
from barnabas.registry.errors import (
    RegistryError,
    leader_unknown,
    store_failed,
    store_timed_out,
)
from barnabas.registry.records import NoopRecord, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.registry.leader.election import RegistryIdentity
    from barnabas.registry.leader.fenced_writer import FencedWriter
    from barnabas.registry.records import Record
    from barnabas.registry.topic import TopicReader

_log = logging.getLogger(__name__)

# How long a request waits for a leader, and a write for its record (s). A dead leader is replaced
# after the session timeout of 10 s.
_LEADER_S = 15.0
_READ_S = 15.0
_RETRY_S = 0.5
_SCHEMA_TOO_LARGE = 42209
# Brokers accept batches of 1 MiB by default. A refused batch makes the leader fence anew.
_RECORD_BYTES_MAX = 1_000_000


class Leadership:
    """Knows the leader; implements `ElectionListener` and, for the leader, `Store`.

    Args:
        writer: Writes the topic.
        reader: Reads the topic.
        leader_s: How long a request waits for a leader (seconds).
    """

    def __init__(
        self, writer: FencedWriter, reader: TopicReader, leader_s: float = _LEADER_S
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._leader_s = leader_s
        # The elected process; None while it is unknown.
        self._leader: RegistryIdentity | None = None
        # Whether this process was elected.
        self._is_self = False
        # Whether this process leads and its state is complete.
        self._is_ready = False
        # Makes this process ready; None if that is done, or if another process leads.
        self._preparing: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        # Whether the group still counts on this process; set by the owner of the member.
        self.has_session: Callable[[], bool] = lambda: True
        # The reason that was logged last; empty while the group works.
        self._failure = ""
        self._notifying: set[asyncio.Task[None]] = set()

    # Election

    def on_elected(self, leader: RegistryIdentity | None, *, is_self: bool) -> None:
        """Begin to lead, or stop leading."""
        self._failure = ""
        if is_self and self._is_self:
            self._leader = leader
            return
        self._step_down()
        self._leader, self._is_self = leader, is_self
        if is_self:
            _log.info("this process leads the registry")
            self._prepare()
        self._notify()

    def on_removed(self) -> None:
        """Stop leading: another process may lead."""
        self._step_down()
        self._leader, self._is_self = None, False
        self._notify()

    def on_failed(self, error: BaseException) -> None:
        """Log why this process cannot be a member of the group, once for each reason."""
        if str(error) != self._failure:
            self._failure = str(error)
            _log.error("the registry cannot elect a leader: %s", error)

    def _step_down(self) -> None:
        self._is_ready = False
        self._writer.resign()
        if self._preparing is not None:
            self._preparing.cancel()
            self._preparing = None

    def close(self) -> None:
        """Stop leading."""
        self.on_removed()

    def _prepare(self) -> None:
        self._is_ready = False
        self._preparing = asyncio.get_running_loop().create_task(self._become_ready())

    async def _become_ready(self) -> None:
        """Fence earlier leaders and read all that they wrote; repeat it after errors."""
        while True:
            try:
                if self.has_session():
                    await self._writer.fence()
                    await self._write_last_ids()
                    break
            except (ClientError, TimeoutError) as error:
                _log.warning("the new leader is not ready: %s", error or type(error).__name__)
            await asyncio.sleep(_RETRY_S)
        self._preparing = None
        self._is_ready = True
        self._notify()

    async def _write_last_ids(self) -> None:
        """Append a NOOP record, and read up to it.

        It replaces the NOOP record of an earlier leader, which may have been written after this
        process read the last ids. They are then written again.
        """
        last_ids: Mapping[str, int] | None = None
        while last_ids != self._reader.last_ids:
            last_ids = self._reader.last_ids
            offset = await self._writer.append([encode(NoopRecord(last_ids))])
            await self._reader.read_up_to(offset, _READ_S)

    def _notify(self) -> None:
        async def notify() -> None:
            async with self._changed:
                self._changed.notify_all()

        task = asyncio.get_running_loop().create_task(notify())
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)

    async def leader(self) -> RegistryIdentity | None:
        """Return the leader; None if it is this process, and ready.

        Raises:
            RegistryError: No leader is known in time.
        """
        if not self._is_known:
            try:
                async with asyncio.timeout(self._leader_s), self._changed:
                    await self._changed.wait_for(lambda: self._is_known)
            except TimeoutError:
                raise leader_unknown() from None
        return None if self._is_self else self._leader

    @property
    def _is_known(self) -> bool:
        return self._is_ready if self._is_self else self._leader is not None

    # Writes

    async def write(self, records: Sequence[Record]) -> None:
        """Append records and wait until they were read back."""
        if not (self._is_self and self._is_ready and self.has_session()):
            raise leader_unknown()
        encoded = [encode(each) for each in records]
        if any(len(value or b"") > _RECORD_BYTES_MAX for _, value in encoded):
            raise _too_large()
        try:
            offset = await self._writer.append(encoded)
        except ClientError as error:
            if self._is_self and self._is_ready:
                self._prepare()
            raise _store_error(error) from None
        try:
            await self._reader.read_up_to(offset, _READ_S)
        except TimeoutError:
            raise store_timed_out("the written record was not read back in time") from None


def _too_large() -> RegistryError:
    words = "Register operation failed because schema is too large"
    return RegistryError(_SCHEMA_TOO_LARGE, words)


def _store_error(error: ClientError) -> RegistryError:
    too_large = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
    if error.error_code in too_large:
        return _too_large()
    return store_failed(f"the write to the topic failed: {error}")
