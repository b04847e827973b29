"""A member with librdkafka reads its partitions although its coordinator moves at the join."""

from __future__ import annotations

import asyncio

from confluent_kafka import Consumer, TopicPartition

from barnabas import aio
from barnabas.coordinator.group.group_coordinator import GroupCoordinator
from barnabas.testing import running_broker
from chaos.load import Errors, GroupReading, LoadOptions
from waiting import PATIENCE_S, eventually

TOPIC = "t"
RECORDS = 3


class MemberOfMovingCoordinator(GroupReading):
    """A member whose coordinator resigns while the member gets its first partitions."""

    def __init__(self, bootstrap: str, errors: Errors, groups: GroupCoordinator) -> None:
        super().__init__("member", bootstrap, LoadOptions(TOPIC, partitions=1), errors)
        self._loop = asyncio.get_running_loop()
        self._groups = groups
        self.has_moved = False

    def _on_change(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        super()._on_change(consumer, partitions)
        if not self.has_moved:
            # The member asks for its offsets when this method has returned.
            asyncio.run_coroutine_threadsafe(self._resign(), self._loop).result(PATIENCE_S)
            self.has_moved = True

    async def _resign(self) -> None:
        self._groups.runtime.on_resigned(0)


def has_committed_all(member: GroupReading) -> bool:
    member.check_alive()
    return any(commit.offset == RECORDS for commit in member.commits)


async def read_with_moving_coordinator() -> None:
    settings = {"offsets.topic.num.partitions": "1"}
    async with running_broker(settings=settings, topics=[TOPIC]) as broker:
        async with aio.Producer(broker.bootstrap) as producer:
            for number in range(RECORDS):
                await (await producer.send(TOPIC, b"0:%d:" % number))
        assert broker._node is not None
        assert broker._node.broker is not None
        groups = broker._node.broker.groups
        errors = Errors()
        member = MemberOfMovingCoordinator(broker.bootstrap, errors, groups)
        member.start()
        try:
            refused = "consumer: NOT_COORDINATOR"
            await asyncio.to_thread(eventually, lambda: errors.counts[refused])
            groups.runtime.on_elected(0, leader_epoch=0)
            await asyncio.to_thread(eventually, lambda: has_committed_all(member))
        finally:
            member.stop()
            await asyncio.to_thread(member.join)
        assert {offset for run in member.runs for offset in run.offsets} == set(range(RECORDS))


def test_a_member_that_was_refused_its_committed_offsets_asks_for_them_again() -> None:
    asyncio.run(read_with_moving_coordinator())
