"""The consumer's core on a simulated host, polled at intervals of virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.config import ClientConfig
from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.consumer.consumer_core import ConsumerCore
from barnabas.client.consumer.user_objects import take_user_objects
from barnabas.client.errors import ClientError
from barnabas.client.user_code import UserCode
from unit.server.simulated_broker import HOST, PORT

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.consumer.consumer_records import ConsumerRecords
    from barnabas.client.group.membership import OnHostDone
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.sim.world import SimWorld

_DEFAULT_KEYS = {
    "auto.offset.reset": "earliest",
    "request.timeout.ms": 5_000,
    "auto.commit.interval.ms": 500,
}
_CLASSIC_KEYS = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000}


class SimulatedConsumer:
    """Drives the core without a user class, and compares each record with that of its offset."""

    def __init__(self, world: SimWorld, name: str, *, strict: bool = True, **keys: object) -> None:
        """Create the consumer. Without `strict`, records are stored but not compared."""
        self._world = world
        self._strict = strict
        self._timer = world.host(name).runtime.timer
        given = {key.replace("_", "."): value for key, value in keys.items()}
        is_classic = given.get("group.protocol") != "consumer"
        default = _DEFAULT_KEYS | _CLASSIC_KEYS if is_classic else _DEFAULT_KEYS
        config = ClientConfig.parse({"bootstrap.servers": f"{HOST}:{PORT}", **default, **given})
        self.cluster = Cluster(world.host(name).runtime, config)
        parts, _ = take_user_objects({})
        self.core = ConsumerCore(self.cluster, Coordinators(self.cluster), parts, _run)
        # The records that were read, with repetitions after seeks, and the errors that polls
        # raised.
        self.seen: list[tuple[TopicPartition, int, bytes]] = []
        self.errors: list[ClientError] = []
        self._polls = False

    def poll_on(self, every_ms: float = 5.0) -> None:
        """Begin to poll."""
        self._polls = True
        self._timer.call_later(every_ms, lambda: self._poll(every_ms))

    def pause_polling(self) -> None:
        """Stop polling until `poll_on` is called."""
        self._polls = False

    def _poll(self, every_ms: float) -> None:
        if not self._polls:
            return
        assignment = self.core.subscription.assignment
        before = {tp: at.offset for tp, at in assignment.items()}
        try:
            self.core.round()
            before = {tp: at.offset for tp, at in assignment.items()}
            records = self.core.take(self.core.config.max_poll_records)
        except ClientError as error:
            self.errors.append(error)
            records = None
        if records:
            self._note(records, before)
        self.poll_on(every_ms)

    def _note(self, records: ConsumerRecords, before: dict[TopicPartition, int]) -> None:
        for tp, part in records.items():
            if self._strict:
                assert part.offsets[0] == before[tp], (tp, part.offsets[0], before[tp])
                assert part.offsets == list(range(before[tp], before[tp] + len(part)))
                position = self.core.subscription.partition(tp)
                assert position.offset == part.offsets[-1] + 1
            self.seen += [
                (tp, offset, value) for offset, value in zip(part.offsets, part.values, strict=True)
            ]

    def leave(self) -> None:
        """Close as the user classes do, and wait for the end."""
        self._polls = False
        ended: list[bool] = []
        self.core.begin_close(30_000, lambda: ended.append(True))

        def is_over() -> bool:
            self.core.host.run_scheduled()
            return bool(ended)

        assert self._world.run_until(is_over, 120_000)
        self.core.stop()
        self.cluster.close()


def _run(call: Callable[[], object], on_done: OnHostDone) -> None:
    with UserCode() as code:
        call()
    on_done(code.error)
