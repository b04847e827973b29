"""A process writes only while it leads, and only after it has read what earlier leaders wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import pytest

from barnabas.client.errors import ClientError, broker_error
from barnabas.protocol.errors import ErrorCode
from barnabas.registry.errors import RegistryError
from barnabas.registry.leader.election import RegistryIdentity
from barnabas.registry.leader.fenced_writer import FencedWriter
from barnabas.registry.leader.leadership import Leadership
from barnabas.registry.records import (
    ConfigRecord,
    Content,
    NoopRecord,
    SchemaRecord,
    StoredSchema,
    decode,
)
from barnabas.registry.topic import TopicReader

SELF, OTHER = RegistryIdentity("127.0.0.1", 8081), RegistryIdentity("127.0.0.1", 8082)
CONFIG = ConfigRecord(None, {"compatibilityLevel": "FULL"})
FENCED = broker_error(ErrorCode.INVALID_PRODUCER_EPOCH, "write")


class Log:
    """A partition, its writer and its reader."""

    def __init__(self) -> None:
        self.written: list[object] = []
        self.fences = 0
        # The error of the next append.
        self.error: ClientError | None = None
        # Whether written records are read back.
        self.is_read = True
        # What the reader has found, and what it finds when it reads the first NOOP record.
        self.last_ids: dict[str, int] = {}
        self.found_ids: dict[str, int] = {}

    def resign(self) -> None: ...

    async def fence(self) -> None:
        self.fences += 1

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> int:
        error, self.error = self.error, None
        if error is not None:
            raise error
        self.written += [decode(key, value) for key, value in records]
        return len(self.written) - 1

    async def read_up_to(self, offset: int, timeout_s: float) -> None:
        if not self.is_read:
            raise TimeoutError
        self.last_ids = self.last_ids | self.found_ids


def run(test: Callable[[Log, Leadership], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        log = Log()
        leadership = Leadership(cast("FencedWriter", log), cast("TopicReader", log), 0.1)
        await test(log, leadership)
        leadership.close()

    asyncio.run(main())


async def refusal(leadership: Leadership) -> int:
    """Return the code with which a write is refused."""
    with pytest.raises(RegistryError) as caught:
        await leadership.write([CONFIG])
    return caught.value.code


def test_a_new_leader_fences_before_it_writes() -> None:
    async def test(log: Log, leadership: Leadership) -> None:
        leadership.on_elected(SELF, is_self=True)
        assert await leadership.leader() is None
        await leadership.write([CONFIG])
        assert (log.fences, log.written) == (1, [NoopRecord(), CONFIG])

    run(test)


def test_a_new_leader_writes_the_last_ids_that_it_reads() -> None:
    async def test(log: Log, leadership: Leadership) -> None:
        log.last_ids, log.found_ids = {".": 3}, {".": 4}
        leadership.on_elected(SELF, is_self=True)
        await leadership.leader()
        assert log.written == [NoopRecord({".": 3}), NoopRecord({".": 4})]

    run(test)


def test_a_leader_that_is_elected_again_goes_on() -> None:
    async def test(log: Log, leadership: Leadership) -> None:
        for _ in range(2):
            leadership.on_elected(SELF, is_self=True)
            assert await leadership.leader() is None
        assert log.fences == 1

    run(test)


def test_a_follower_knows_the_leader_and_does_not_write() -> None:
    async def test(log: Log, leadership: Leadership) -> None:
        leadership.on_elected(OTHER, is_self=False)
        assert await leadership.leader() == OTHER
        assert await refusal(leadership) == 50004
        assert log.written == []

    run(test)


def test_a_removed_leader_does_not_write() -> None:
    async def test(log: Log, leadership: Leadership) -> None:
        leadership.on_elected(SELF, is_self=True)
        await leadership.leader()
        leadership.on_removed()
        assert await refusal(leadership) == 50004
        with pytest.raises(RegistryError) as caught:
            await leadership.leader()
        assert caught.value.code == 50004

    run(test)


def test_a_leader_without_a_session_does_not_write() -> None:
    async def test(log: Log, leadership: Leadership) -> None:
        leadership.on_elected(SELF, is_self=True)
        await leadership.leader()
        leadership.has_session = lambda: False
        assert await refusal(leadership) == 50004
        assert log.written == [NoopRecord()]

    run(test)


def test_a_group_without_a_leader_refuses_changes() -> None:
    async def test(log: Log, leadership: Leadership) -> None:
        leadership.on_elected(None, is_self=False)
        assert await refusal(leadership) == 50004
        with pytest.raises(RegistryError):
            await leadership.leader()

    run(test)


def test_a_failed_write_makes_the_leader_fence_again() -> None:
    async def test(log: Log, leadership: Leadership) -> None:
        leadership.on_elected(SELF, is_self=True)
        await leadership.leader()
        log.error = FENCED
        assert await refusal(leadership) == 50001
        assert await leadership.leader() is None
        await leadership.write([CONFIG])
        assert (log.fences, log.written) == (2, [NoopRecord(), NoopRecord(), CONFIG])

    run(test)


def test_a_write_that_is_not_read_back_is_not_acknowledged() -> None:
    async def test(log: Log, leadership: Leadership) -> None:
        leadership.on_elected(SELF, is_self=True)
        await leadership.leader()
        log.is_read = False
        assert await refusal(leadership) == 50002

    run(test)


def test_a_record_above_the_limit_is_not_written() -> None:
    async def test(log: Log, leadership: Leadership) -> None:
        leadership.on_elected(SELF, is_self=True)
        await leadership.leader()
        large = StoredSchema("a", 1, 1, Content("AVRO", "x" * 1_000_001))
        with pytest.raises(RegistryError) as caught:
            await leadership.write([SchemaRecord("a", 1, large)])
        assert caught.value.code == 42209
        assert (log.fences, log.written) == (1, [NoopRecord()])

    run(test)
