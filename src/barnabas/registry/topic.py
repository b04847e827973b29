"""The topic `_schemas`: its creation, and the reader that applies its records to the state.

The topic has one partition and is compacted. It is read from its beginning when the process starts,
and without end afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.admin.topics import NewTopic
from barnabas.client.aio.consumer import Consumer
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.registry.records import DamagedRecordError, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.aio.admin import Admin
    from barnabas.registry.state import RegistryState

_log = logging.getLogger(__name__)

_REPLICAS_MAX = 3
_POLL_S = 1.0
_FIRST_RETRY_S, _RETRY_S_MAX = 0.1, 5.0
_POLL_RECORDS = 5000
_COMPACT = "compact"


class TopicError(Exception):
    """The topic cannot be the registry's; the message says why."""


async def prepare_topic(admin: Admin, name: str, replication_factor: int) -> None:
    """Create the topic unless it exists, and check its partitions and its cleanup policy.

    Args:
        replication_factor: The number of replicas; -1 for three, or for fewer brokers all.

    Raises:
        TopicError: The topic has several partitions, or is not compacted.
        ClientError: The brokers refuse a request.
    """
    found = (await admin.describe_topic_partitions([name]))[name]
    if isinstance(found, ClientError):
        if found.error_code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise found
        await _create(admin, name, replication_factor)
        return
    if len(found.partitions) != 1:
        raise TopicError(
            f"the topic {name} has {len(found.partitions)} partitions; the topic of a registry has "
            "one: give another topic (kafkastore.topic)"
        )
    resource = ConfigResource(ResourceType.TOPIC, name)
    described = (await admin.describe_configs([resource], keys=["cleanup.policy"]))[resource]
    if isinstance(described, ClientError):
        _log.warning("the cleanup policy cannot be checked: topic=%s error=%s", name, described)
        return
    policy = next((each.value for each in described if each.name == "cleanup.policy"), None)
    if policy is not None and policy != _COMPACT:
        raise TopicError(
            f"the topic {name} has cleanup.policy={policy}, which deletes schemas: set it to "
            "compact"
        )


async def _create(admin: Admin, name: str, replication_factor: int) -> None:
    if replication_factor < 1:
        described = await admin.describe_cluster()
        replication_factor = min(_REPLICAS_MAX, len(described.brokers))
    new = NewTopic(name, 1, replication_factor, {"cleanup.policy": _COMPACT})
    error = (await admin.create_topics([new], raise_errors=False))[name]
    # Another process of the registry may have created it meanwhile.
    if error is not None and error.error_code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise error


class TopicReader:
    """Applies all records of the topic to the state, in order.

    Args:
        bootstrap: Addresses of brokers.
        client: Further configuration of the consumer.
        topic: Name of the topic.
        state: Gets the records.
    """

    def __init__(
        self, bootstrap: str, client: Mapping[str, Any], topic: str, state: RegistryState
    ) -> None:
        self._tp = TopicPartition(topic, 0)
        self._state = state
        self._consumer = Consumer(
            bootstrap_servers=bootstrap,
            **{
                **client,
                "enable_auto_commit": False,
                "auto_offset_reset": "earliest",
                "max_poll_records": _POLL_RECORDS,
            },
        )
        self._consumer.assign([self._tp])
        # The next offset to apply; moved by `_read`, and back if the topic was created anew.
        self._position = 0
        # Each is called when the position has moved.
        self._waiting: set[Callable[[], None]] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def last_ids(self) -> Mapping[str, int]:
        """The largest id of each context, as read so far."""
        return self._state.last_ids

    def start(self) -> None:
        """Read in the background until `close`."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._consumer.close()

    async def _run(self) -> None:
        delay_s = _FIRST_RETRY_S
        while True:
            try:
                await self._read()
                delay_s = _FIRST_RETRY_S
            except ClientError as error:
                _log.warning("the topic cannot be read: topic=%s error=%s", self._tp.topic, error)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_S_MAX)

    async def _read(self) -> None:
        """Apply the records of one poll."""
        records = await self._consumer.poll(_POLL_S)
        for record in records:
            self._move_to(record.offset)
            self._apply(record.offset, record.key, record.value)
        # A topic that was created anew may be empty.
        self._move_to(await self._consumer.position(self._tp))
        for wake in list(self._waiting):
            wake()

    def _move_to(self, offset: int) -> None:
        """Set the position; forget what was read if the position moves back."""
        if offset < self._position:
            _log.error("the topic was created anew, it is read again: %s", self._tp.topic)
            self._state.clear()
        self._position = offset

    def _apply(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        try:
            self._state.apply(decode(key, value))
        except DamagedRecordError as error:
            _log.warning(
                "a record is skipped: topic=%s offset=%d error=%s", self._tp.topic, offset, error
            )

    async def read_up_to(self, offset: int, timeout_s: float) -> None:
        """Wait until the record at an offset is applied.

        Raises:
            TimeoutError: It was not read in time.
        """
        moved = asyncio.Event()
        self._waiting.add(moved.set)
        try:
            async with asyncio.timeout(timeout_s):
                while self._position <= offset:
                    moved.clear()
                    await moved.wait()
        finally:
            self._waiting.discard(moved.set)

    async def read_to_end(self, timeout_s: float) -> None:
        """Wait until all records are applied that the topic has now.

        Raises:
            TimeoutError: They were not read in time.
            ClientError: The end of the topic cannot be found out.
        """
        end = (await self._consumer.end_offsets([self._tp]))[self._tp]
        await self.read_up_to(end - 1, timeout_s)
