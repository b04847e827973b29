"""Three simulated brokers with members of a consumer group (KIP-848) and faults, by a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.groups import ConsumerGroupHeartbeatRequest
from barnabas.protocol.primitives import uuid_to_string
from chaos.groups.member_history import MemberHistory, Probe
from simulation.cluster_world import BOOTSTRAP, ClusterWorld
from simulation.groups.member_actors import ActingMember, Identity
from simulation.groups.share_actors import ActingWriter
from simulation.transactions.actors import ActingConsumer, Actor, Work, sleep
from storms.history import NS_PER_S

TOPIC, GROUP = "input", "readers"
PARTITIONS = 6
PLACES = tuple((TOPIC, number) for number in range(PARTITIONS))
OFFSETS = "__consumer_offsets"
SESSION_MS = 1_500
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.assignment.interval.ms": "0",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
}
# Time limit for processing all records after the last fault.
CALM_MS = 8_000.0
# Maximum time from the end of a dead member's session to its removal (s).
REMOVAL_S = 1.0
HEARTBEAT_VERSION, COMMIT_VERSION = 1, 10


@dataclass
class Client:
    """A member on a separate host."""

    identity: Identity
    host: str
    member: ActingMember
    actor: Actor
    is_stopped: bool = False
    # Earlier epochs, with the partitions that the member owned in them.
    epochs: dict[int, frozenset[int]] = field(default_factory=dict)

    @property
    def member_id(self) -> str:
        """The id that the client has chosen."""
        return str(self.member.core.generation.member_id)


@dataclass
class Departed:
    """A former member, and the time of its removal (virtual seconds)."""

    name: str
    member_id: str
    epoch: int
    since: float


class MemberWorld(ClusterWorld):
    """The cluster, a writer, the members and their history."""

    def __init__(self, seed: int, **settings: str) -> None:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        super().__init__(seed, {**SETTINGS, **given})
        self.history = MemberHistory(SESSION_MS * NS_PER_S // 1000)
        self.clients: list[Client] = []
        self.departed: list[Departed] = []
        self._is_written = False
        self._is_over = False
        self.make_topic(TOPIC, PARTITIONS)
        self.await_full_isr()
        runtime = self.cluster.world.host("writer").runtime
        writer = ActingWriter(runtime, BOOTSTRAP)
        self._writer = Actor(runtime, self._write(writer), writer.pump)
        runtime = self.cluster.world.host("looker").runtime
        offset_reader = ActingConsumer(runtime, BOOTSTRAP, GROUP)
        self._offset_reader = Actor(runtime, self._look(offset_reader), offset_reader.pump)

    @property
    def now_ns(self) -> int:
        """Return the virtual time."""
        return round(self.now * NS_PER_S)

    def _write(self, writer: ActingWriter) -> Work[None]:
        rng = random.Random(self.rng.random())
        while not self._is_written:
            for _ in range(rng.choice((1, 3, 10))):
                yield from writer.send(rng.choice(PLACES), b"x")
            yield from sleep(rng.expovariate(1 / 40))
        yield from writer.flush()

    def _look(self, offset_reader: ActingConsumer) -> Work[None]:
        """Fetch the group's offsets repeatedly."""
        while not self._is_over:
            began_ns = self.now_ns
            found = yield from offset_reader.committed(PLACES)
            if not self.history.is_isolated(began_ns, self.now_ns):
                for (_, partition), offset in found.items():
                    self.history.seen.setdefault(partition, []).append(offset)
            yield from sleep(50)

    # Members.

    def launch(self, instance_id: str | None = None) -> Client:
        """Start a member, static with an instance id."""
        number = self.next_instance()
        name = f"member-{number}"
        identity = Identity(name, GROUP, instance_id, self.rng.choice(("uniform", "range")))
        runtime = self.cluster.world.host(name).runtime
        member = ActingMember(runtime, identity, self.history, BOOTSTRAP)
        client = Client(identity, name, member, None)
        client.actor = Actor(runtime, self._consume(client), _nothing)
        self.clients.append(client)
        if instance_id is not None:
            self.history.instances[name] = instance_id
        return client

    def _consume(self, client: Client) -> Work[None]:
        rng = random.Random(self.rng.random())
        member = client.member
        member.core.subscribe([TOPIC], member)
        while not client.is_stopped:
            member.poll(rng.choice((5, 50)))
            if member.generation > 0:
                client.epochs.setdefault(member.generation, member.owned)
            if member.is_refused:
                # Another live or not yet removed member has its instance id.
                self.history.deaths[client.host] = self.now_ns
                self.clients.remove(client)
                member.core.stop()
                return
            if rng.random() < 0.3:
                member.commit()
            yield from sleep(rng.expovariate(1 / 15))
        member_id, epoch = client.member_id, member.generation
        ended: list[bool] = []
        member.core.begin_close(5_000, lambda: ended.append(True))
        for _ in range(1_000):
            member.core.host.run_scheduled()
            if ended:
                break
            yield from sleep(5)
        member.core.stop()
        if ended and client.identity.instance_id is None:
            self.departed.append(Departed(client.host, member_id, epoch, self.now))

    def stop_member(self, client: Client) -> None:
        """Let a member leave the group."""
        client.is_stopped = True
        self.clients.remove(client)

    def kill(self, client: Client) -> None:
        """Kill a member."""
        since = self.now + SESSION_MS / 1000 + REMOVAL_S
        gone = Departed(client.host, client.member_id, client.member.generation, since)
        if gone.epoch > 0:
            self.departed.append(gone)
        self.history.deaths[client.host] = self.now_ns
        self.cluster.world.host(client.host).kill()
        self.clients.remove(client)

    def delay_removals(self) -> None:
        """Extend the expected sessions of dead members after a change of the coordinator."""
        for each in self.departed:
            if each.since > self.now - 3 * SESSION_MS / 1000:
                each.since = max(each.since, self.now + SESSION_MS / 1000 + REMOVAL_S)

    def coordinator(self) -> int:
        """Return the coordinator of the group; without one, any running node."""
        found = self.leader((OFFSETS, 0))
        return found if found in self.cluster.ready else self.rng.choice(sorted(self.cluster.ready))

    # Requests that must be refused.

    def probe_departed(self) -> None:
        """Send a heartbeat and a commit as a former member."""
        gone = [each for each in self.departed if each.since <= self.now and each.epoch > 0]
        if not gone:
            return
        each = self.rng.choice(gone)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=each.member_id, member_epoch=each.epoch, topic_partitions=None
        )
        error = self.cluster.ask(self.coordinator(), request, HEARTBEAT_VERSION).error_code
        self._note_probe("zombie served", error, f"{each.name} in epoch {each.epoch}")
        error = self._commit(each.member_id, each.epoch, self.rng.randrange(PARTITIONS))
        self._note_probe("commit after leave", error, f"{each.name} in epoch {each.epoch}")

    def probe_stale(self) -> None:
        """Commit with an old epoch, for a partition that the member no longer owns."""
        found = [
            (client, epoch, partition)
            for client in self.clients
            for epoch, owned in client.epochs.items()
            if 0 < epoch < client.member.generation
            for partition in owned - client.member.owned
        ]
        if not found:
            return
        client, epoch, partition = self.rng.choice(found)
        error = self._commit(client.member_id, epoch, partition)
        self._note_probe("stale commit", error, f"{client.host} in epoch {epoch}")

    def probe_double(self) -> None:
        """Join with the instance id of a live member."""
        served = {
            each.member
            for each in self.history.heartbeats[-100:]
            if each.is_served and each.asked_ns > self.now_ns - self.history.session_ns // 3
        }
        living = [
            each
            for each in self.clients
            if each.identity.instance_id is not None and each.host in served
        ]
        if not living:
            return
        instance_id = self.rng.choice(living).identity.instance_id
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=uuid_to_string(self.rng.randbytes(16)),
            member_epoch=0,
            instance_id=instance_id,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        error = self.cluster.ask(self.coordinator(), request, HEARTBEAT_VERSION).error_code
        self._note_probe("doubled instance", error, f"instance {instance_id}")

    def _commit(self, member_id: str, epoch: int, partition: int) -> int:
        topic_id = self.cluster.image(self.cluster.active).topics.by_name(TOPIC).id
        offset = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=0, committed_metadata=""
        )
        topic = OffsetCommitRequestTopic(name=TOPIC, topic_id=topic_id, partitions=[offset])
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            topics=[topic],
        )
        response = self.cluster.ask(self.coordinator(), request, COMMIT_VERSION)
        return int(response.topics[0].partitions[0].error_code)

    def _note_probe(self, kind: str, error: int, text: str) -> None:
        self.history.probes.append(Probe(kind, error, f"{text} at {self.now:.3f}"))

    # The end.

    def finish(self) -> MemberHistory:
        """Stop the writer, let members process everything, and record their partitions."""
        self._is_written = True
        assert self.await_that(lambda: self._writer.has_ended), "the writer does not end"
        self._find_ends()
        if not self.clients:
            self.launch()
        self.await_that(self._is_processed, CALM_MS)
        self.await_that(self._is_assigned, CALM_MS / 3)
        self.history.final = {each.host: each.member.owned for each in self.clients}
        own, self._is_over = list(self.clients), True
        for client in own:
            client.is_stopped = True
        self.await_that(lambda: all(each.actor.has_ended for each in own), CALM_MS)
        return self.history

    def _is_assigned(self) -> bool:
        """Return whether each partition has an owner."""
        owned = [partition for each in self.clients for partition in each.member.owned]
        fair = PARTITIONS // len(self.clients)
        return sorted(owned) == list(range(PARTITIONS)) and all(
            len(each.member.owned) >= fair for each in self.clients
        )

    def _is_processed(self) -> bool:
        """Return whether another client sees that the group has committed everything."""
        seen = self.history.seen
        return all(
            not end or seen.get(partition, [0])[-1] == end
            for partition, end in self.history.ends.items()
        )

    def _find_ends(self) -> None:
        def work(consumer: ActingConsumer) -> Work[None]:
            ends = yield from consumer.ends(PLACES)
            self.history.ends = {partition: end for (_, partition), end in ends.items()}

        self.perform(work)


def _nothing() -> None:
    pass
