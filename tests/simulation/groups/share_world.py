"""Three simulated brokers with members of a share group and faults, by a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from barnabas.client.share.acknowledgements import AcknowledgeType
from barnabas.protocol.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from chaos.groups.share_history import ShareHistory
from chaos.groups.share_notes import ShareNotes
from simulation.cluster_world import BOOTSTRAP, ClusterWorld
from simulation.groups.share_actors import ActingShareConsumer, ActingWriter
from simulation.transactions.actors import ActingConsumer, Actor, Work, sleep

TOPIC, GROUP = "jobs", "workers"
PARTITIONS = 2
PLACES = tuple((TOPIC, number) for number in range(PARTITIONS))
STATES, OFFSETS = INTERNAL = ("__share_group_state", "__consumer_offsets")
LOCK_MS = 1_000
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.session.timeout.ms": "2000",
    "group.share.min.session.timeout.ms": "2000",
    "group.share.assignment.interval.ms": "0",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.min.record.lock.duration.ms": "1000",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
}
# Time after the last fault until a record in flight counts as locked for ever.
CALM_MS = 10_000.0
COMMIT_MS = 5_000.0


@dataclass(frozen=True)
class Behavior:
    """How members process and acknowledge records."""

    # Probability of each acknowledgement type except ACCEPT.
    release: float = 0.15
    reject: float = 0.05
    renew: float = 0.05
    # Probability, after each poll, of holding the records for longer than their locks.
    hold_past_lock: float = 0.03
    # Processing time of a poll's records, as a fraction of the lock duration.
    hold: tuple[float, float] = (0.0, 0.04)
    # Records per second.
    rate: float = 150.0
    delivery_limit: int = 10


@dataclass
class Member:
    """A member on a separate host."""

    name: str
    host: str
    actor: Actor
    consumer: ActingShareConsumer
    is_stopped: bool = False


class ShareWorld(ClusterWorld):
    """The cluster, a writer, the members and their history."""

    def __init__(self, seed: int, behavior: Behavior, **settings: str) -> None:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        limit = str(behavior.delivery_limit)
        super().__init__(seed, {**SETTINGS, "group.share.delivery.count.limit": limit, **given})
        self.behavior = behavior
        self.history = ShareHistory(LOCK_MS / 1000, behavior.delivery_limit)
        self.members: list[Member] = []
        self._is_calm = False
        self._is_written = False
        self._written = 0
        self.make_topic(TOPIC, PARTITIONS)
        self.configure_group(GROUP, {"share.auto.offset.reset": "earliest"})
        self.await_full_isr()
        self._writer = self._launch_writer()

    def _launch_writer(self) -> Actor:
        runtime = self.cluster.world.host("writer").runtime
        writer = ActingWriter(runtime, BOOTSTRAP)
        return Actor(runtime, self._write(writer), writer.pump)

    def _write(self, writer: ActingWriter) -> Work[None]:
        rng = random.Random(self.rng.random())
        while not self._is_written:
            for _ in range(rng.choice((1, 1, 2, 5, 20))):
                self._written += 1
                yield from writer.send(rng.choice(PLACES), b"%d" % self._written)
            yield from sleep(rng.expovariate(self.behavior.rate / 5_000))
        yield from writer.flush()

    # Members.

    def launch(self) -> Member:
        """Start a member."""
        instance = self.next_instance()
        name = f"member-{instance}"
        runtime = self.cluster.world.host(name).runtime
        notes = ShareNotes(name, self.history, int, lambda: self.now)
        consumer = ActingShareConsumer(runtime, GROUP, notes, BOOTSTRAP)
        member = Member(name, name, None, consumer)
        member.actor = Actor(runtime, self._consume(member), consumer.pump)
        self.members.append(member)
        return member

    def kill(self, member: Member) -> None:
        """Kill a member."""
        member.consumer.notes.end()
        self.cluster.world.host(member.host).kill()
        self.members.remove(member)
        # The broker detects it immediately, or when the locks time out.
        self.history.drops.append((self.now - 0.1, self.now + 0.1))

    def _consume(self, member: Member) -> Work[None]:
        rng = random.Random(self.rng.random())
        consumer, behavior = member.consumer, self.behavior
        consumer.core.subscribe([TOPIC])
        while not member.is_stopped:
            records = yield from consumer.poll(300)
            if not records:
                continue
            pause_ms = rng.uniform(*behavior.hold) * LOCK_MS
            if not self._is_calm and rng.random() < behavior.hold_past_lock:
                pause_ms = rng.uniform(1.1, 1.6) * LOCK_MS
            if pause_ms > 0.3 * LOCK_MS:
                # The consumer drops records that have arrived meanwhile and whose locks have ended.
                self.history.drops.append((self.now, self.now + pause_ms / 1000 + 1))
            yield from sleep(pause_ms)
            for record in records:
                consumer.acknowledge(record, self._kind(rng))
            yield from consumer.commit(COMMIT_MS)
        began = self.now
        yield from consumer.leave(COMMIT_MS)
        if not self._is_calm:
            self.history.drops.append((began, self.now))

    def _kind(self, rng: random.Random) -> AcknowledgeType:
        behavior, chance = self.behavior, rng.random()
        if self._is_calm:
            return AcknowledgeType.ACCEPT
        for kind, share in (
            (AcknowledgeType.RELEASE, behavior.release),
            (AcknowledgeType.REJECT, behavior.reject),
            (AcknowledgeType.RENEW, behavior.renew),
        ):
            if chance < share:
                return kind
            chance -= share
        return AcknowledgeType.ACCEPT

    # Nodes that faults hit.

    def leader_of_records(self) -> int:
        """Return the leader of a partition of the topic."""
        return self._or_any(self.leader(self.rng.choice(PLACES)))

    def share_coordinator(self) -> int:
        """Return the leader of a partition of the state topic."""
        return self._or_any(self.leader((STATES, self.rng.randrange(2))))

    def group_coordinator(self) -> int:
        """Return the coordinator of the group."""
        return self._or_any(self.leader((OFFSETS, 0)))

    def _or_any(self, node: int) -> int:
        """Return the node if it runs, else any running node."""
        ready = self.cluster.ready
        return node if node in ready else self.rng.choice(sorted(ready))

    # The end.

    def finish(self) -> ShareHistory:
        """Stop the writer, let members process everything, and record the final state."""
        self._is_written = self._is_calm = True
        assert self.await_that(lambda: self._writer.has_ended), "the writer does not end"
        self._read_logs()
        self._await_end()
        self._stop_members()
        return self.history

    def _is_processed(self) -> bool:
        """Return whether the group has processed all records."""
        if not self.members:
            self.launch()
        self.sample_offsets()
        return all(self.history.lags.get(n) == 0 for n in range(PARTITIONS))

    def _await_end(self) -> None:
        """Advance time until all records are processed, within a limit."""
        deadline = self.now + CALM_MS / 1000
        while self.now < deadline and not self._is_processed():
            self.run_for(250)

    def sample_offsets(self) -> None:
        """Fetch the group's start offsets and lags."""
        topic = DescribeShareGroupOffsetsRequestTopic(
            topic_name=TOPIC, partitions=list(range(PARTITIONS))
        )
        group = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=[topic])
        request = DescribeShareGroupOffsetsRequest(groups=[group])
        found = self.cluster.ask(self.group_coordinator(), request, 1).groups[0]
        if found.error_code:
            return
        for each in found.topics[0].partitions:
            if not each.error_code:
                self.history.start_offsets[each.partition_index] = each.start_offset
                self.history.lags[each.partition_index] = each.lag

    def _stop_members(self) -> None:
        own = list(self.members)
        for member in own:
            member.is_stopped = True
        self.await_that(lambda: all(each.actor.has_ended for each in own), CALM_MS)

    def _read_logs(self) -> None:
        logs = self.history.logs = {partition: {} for partition in range(PARTITIONS)}

        def work(consumer: ActingConsumer) -> Work[None]:
            ends = yield from consumer.ends(PLACES)
            consumer.assign(dict.fromkeys(PLACES, 0))
            while any(consumer.position(place) < end for place, end in ends.items()):
                for record in consumer.take(500) or ():
                    logs[record.partition][record.offset] = int(record.value)
                yield from sleep(5)

        self.perform(work)
