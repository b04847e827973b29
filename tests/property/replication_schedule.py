"""One random life of a replicated partition, from a seed, under the invariants of ARCHITECTURE 5.

Producers write to the node that believes to lead, one of them idempotent, which retries requests
without a response; brokers are killed, lose power and come back; links between them, and theirs to
the controller, are cut; leaders change, now and then so quickly that logs part more than once and
followers are cut in the midst of it; records are deleted. In some lives followers fetch in a
version that does not tell where logs part, and ask for ends of epochs. After each step the
invariants are checked, and in the end all replicas must be the same.

`python -m property.replication_schedule FIRST COUNT` in tests/ runs as many lives as wanted.
"""

from __future__ import annotations

import logging
import random
import sys
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import batches
from barnabas.record.builder import BatchBuilder
from barnabas.replication.partition.partition_registry import ImageBrokers
from barnabas.storage.results import AppendOrigin
from unit.replication.replicated_cluster import PARTITION, ReplicatedCluster

if TYPE_CHECKING:
    from barnabas.replication.partition.results import ProduceResult
    from unit.replication.replicated_cluster import Node

BROKERS = (1, 2, 3)
STEPS = 60
SETTLE_MS = 60_000.0
# Knows nothing of diverging epochs (KIP-595).
OLD_FETCH_VERSION = 11
PRODUCER = 7
ACKS_ALL = -1


class Once:
    """An idempotent producer with one batch in flight, sent again until it is acknowledged."""

    def __init__(self) -> None:
        self.count = 0
        # The record in flight: its sequence, which is its value too.
        self.pending: int | None = None
        self.answers: list[ProduceResult] = []
        self.acknowledged: dict[int, bytes] = {}

    @staticmethod
    def value(sequence: int) -> bytes:
        return b"once %d" % sequence

    def take_answer(self) -> None:
        if self.pending is None or not self.answers:
            return
        answer = self.answers.pop()
        if answer.error is ErrorCode.NONE:
            assert answer.base_offset >= 0, "an acknowledgement has an offset"
            self.acknowledged[answer.base_offset] = self.value(self.pending)
            self.pending = None

    def send(self, node: Node) -> None:
        """The next batch, or once more the one that is in flight."""
        self.take_answer()
        if self.pending is None:
            self.pending = self.count
            self.count += 1
        builder = BatchBuilder(producer_id=PRODUCER, producer_epoch=0, base_sequence=self.pending)
        builder.append(node.host.clock.wall_ms(), None, self.value(self.pending))
        # Answers to earlier tries count no more: they may be of a leader that is none.
        answers = self.answers = []
        node.manager.append_records(
            200,
            ACKS_ALL,
            {PARTITION: memoryview(builder.build())},
            AppendOrigin.CLIENT,
            lambda results: answers.append(results[PARTITION]),
        )


class Life:
    """One schedule and its invariants."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = ReplicatedCluster(
            seed=seed,
            metadata_delay_ms=self.random.choice([1.0, 30.0]),
            answer_delay_ms=self.random.choice([1.0, 60.0]),
            replica_lag_time_max_ms=self.random.choice([150, 600]),
            replica_fetch_backoff_ms=40,
            replica_fetch_wait_max_ms=30,
            replica_socket_timeout_ms=300,
            num_replica_fetchers=self.random.choice([1, 2]),
            log_settings={
                "min_insync_replicas": self.random.choice([1, 2]),
                "segment_bytes": 700,
                "flush_messages": self.random.choice([1, 1 << 40, 1 << 40]),
            },
        )
        self.cluster.make_topic()
        self.written = 0
        # Value by offset of all that was ever below a leader's high watermark.
        self.committed: dict[int, bytes] = {}
        # (broker, its life, leader epoch) to high watermark.
        self.high_watermarks: dict[tuple[int, int, int], int] = {}
        # Up to where `committed` was compared with a leader's log.
        self.compared: dict[tuple[int, int, int], int] = {}
        self.acknowledged: dict[int, bytes] = {}
        self.once = Once()
        self.deleted_below = 0
        self.history: list[str] = []

    # Steps.

    def run(self) -> None:
        steps = [
            (self.produce, 12),
            (self.produce_once, 12),
            (self.change_leaders_quickly, 2),
            (self.wait, 8),
            (self.cut_link, 2),
            (self.heal, 3),
            (self.isolate, 1),
            (self.kill, 2),
            (self.kill_leader, 2),
            (self.lose_power, 1),
            (self.restart, 4),
            (self.elect, 2),
            (self.reset, 1),
            (self.delete_records, 1),
        ]
        actions = [action for action, weight in steps for _ in range(weight)]
        for _ in range(STEPS):
            self.random.choice(actions)()
            self.cluster.run_for(self.random.choice([0.2, 2.0, 15.0]))
            self.check()
        self.settle()

    def note(self, text: str) -> None:
        self.history.append(f"{self.cluster.world.scheduler.now_ms:.1f} {text}")

    def up(self) -> list[Node]:
        return [node for node in self.cluster.nodes.values() if node.is_up]

    def leaders(self) -> list[Node]:
        """Return the node that believes to lead."""
        return [node for node in self.up() if PARTITION in node.logs.logs
                and node.partition().is_leader]  # fmt: skip

    def produce(self) -> None:
        leaders = self.leaders()
        if not leaders:
            return
        node = self.random.choice(leaders)
        values = [b"%d" % (self.written + i) for i in range(self.random.randint(1, 3))]
        self.written += len(values)
        acks = self.random.choice([-1, -1, 1])
        self.note(f"produce {values} acks={acks} to {node.id}")
        answered = node.produce(*values, acks=acks, timeout_ms=200)
        if acks == -1:
            self.cluster.world.scheduler.schedule(0.0, lambda: self.watch(answered, values, 250))

    def produce_once(self) -> None:
        leaders = self.leaders()
        if leaders:
            node = self.random.choice(leaders)
            self.once.send(node)
            self.note(f"once {self.once.pending} to {node.id}")

    def change_leaders_quickly(self) -> None:
        """Each writes what the others do not get, so that logs part in several epochs (KIP-279)."""
        alone = self.random.random() < 0.7
        if alone:
            self.note("cut all")
            for one, other in ((1, 2), (1, 3), (2, 3)):
                self.cluster.world.network.partition(f"b{one}", f"b{other}")
        for _ in range(self.random.randint(2, 5)):
            self.produce()
            self.elect()
            self.cluster.run_for(self.random.choice([0.3, 3.0, 35.0]))
            self.check()
        if alone:
            self.heal()

    def watch(self, answered: list[ProduceResult], values: list[bytes], tries: int) -> None:
        if answered:
            result = answered[0]
            if result.error is ErrorCode.NONE:
                for index, value in enumerate(values):
                    self.acknowledged[result.base_offset + index] = value
        elif tries:
            self.cluster.world.scheduler.schedule(
                1.0, lambda: self.watch(answered, values, tries - 1)
            )

    def wait(self) -> None:
        self.cluster.run_for(self.random.choice([5.0, 50.0, 250.0]))

    def cut_link(self) -> None:
        one, other = self.random.sample(BROKERS, 2)
        self.note(f"cut {one}-{other}")
        self.cluster.world.network.partition(f"b{one}", f"b{other}")

    def heal(self) -> None:
        self.note("heal")
        self.cluster.world.network.heal()
        self.cluster.controller.unreachable.clear()

    def isolate(self) -> None:
        """A broker that the controller does not reach is dead to it after a while."""
        node_id = self.random.choice(BROKERS)
        if not self.cluster[node_id].is_up:
            return
        self.note(f"isolate {node_id}")
        self.cluster.controller.unreachable.add(node_id)
        if self.random.random() < 0.7:
            self.cluster.controller.fence(node_id)

    def kill(self) -> None:
        node_id = self.random.choice(BROKERS)
        if not self.cluster[node_id].is_up:
            return
        self.note(f"kill {node_id}")
        self.cluster[node_id].kill()
        if self.random.random() < 0.7:
            self.cluster.controller.fence(node_id)

    def kill_leader(self) -> None:
        """Soon after it has taken records that some replicas lack."""
        self.produce()
        node_id = self.cluster.registration().leader
        if node_id < 0 or not self.cluster[node_id].is_up:
            return
        self.cluster.run_for(self.random.choice([0.0, 0.6, 1.2]))
        self.note(f"kill leader {node_id}")
        self.cluster[node_id].kill()
        self.cluster.controller.fence(node_id)

    def lose_power(self) -> None:
        """Never of the last one that has everything: nothing could keep what only it had."""
        node_id = self.random.choice(BROKERS)
        if not self.cluster[node_id].is_up or self.cluster.registration().isr == (node_id,):
            return
        self.note(f"lose power {node_id}")
        self.cluster[node_id].lose_power()
        self.cluster.controller.fence(node_id)

    def restart(self) -> None:
        down = [node.id for node in self.cluster.nodes.values() if not node.is_up]
        if down:
            node_id = self.random.choice(down)
            self.note(f"restart {node_id}")
            self.cluster.controller.unreachable.discard(node_id)
            self.cluster.restart(node_id)

    def elect(self) -> None:
        registration = self.cluster.registration()
        able = [
            each
            for each in registration.isr
            if each != registration.leader and self.cluster.controller.is_alive(each)
        ]
        if able:
            node_id = self.random.choice(able)
            self.note(f"elect {node_id}")
            self.cluster.controller.elect(node_id)

    def reset(self) -> None:
        one, other = self.random.sample(BROKERS, 2)
        self.note(f"reset {one}-{other}")
        self.cluster.world.network.reset_connections(f"b{one}", f"b{other}")

    def delete_records(self) -> None:
        leaders = self.leaders()
        if not leaders:
            return
        node = self.random.choice(leaders)
        offset = self.random.randint(0, node.log().high_watermark)
        self.note(f"delete below {offset} at {node.id}")
        node.manager.delete_records(100, {PARTITION: offset}, lambda _: None)

    def settle(self) -> None:
        """Everything comes back; the replicas must become the same."""
        self.heal()
        for node in self.cluster.nodes.values():
            if not node.is_up:
                self.cluster.restart(node.id)
            elif not self.cluster.controller.is_alive(node.id):
                self.cluster.controller.unfence(node.id)
        self.note("settle")
        assert self.cluster.until(self.is_settled, SETTLE_MS), self.state()
        self.check()
        assert self.cluster.produce(b"last").error is ErrorCode.NONE
        assert self.cluster.until(self.is_settled, SETTLE_MS), self.state()
        self.check()
        first = max(node.log().log_start_offset for node in self.cluster.nodes.values())
        contents = [
            [(each.offset, each.value) for each in node.records(first)]
            for node in self.cluster.nodes.values()
        ]
        assert contents[0] == contents[1] == contents[2], "replicas differ"
        self.check_once([value for _, value in contents[0]])

    def check_once(self, values: list[bytes]) -> None:
        """ExactlyOncePerSequence, and that all replicas remember the producer alike."""
        for sequence in range(self.once.count):
            assert values.count(Once.value(sequence)) <= 1, f"ExactlyOncePerSequence {sequence}"
        nodes = self.cluster.nodes.values()
        entries = [node.log().producer_state.entries.get(PRODUCER) for node in nodes]
        last = {entry.batches[-1] if entry and entry.batches else None for entry in entries}
        # A replica that restarted behind deleted records never saw their producer state.
        start = max(node.log().log_start_offset for node in nodes)
        is_deleted = all(each is None or each.last_offset < start for each in last)
        assert len(last) == 1 or is_deleted, f"the producer is remembered differently: {entries}"
        if not self.once.count:
            return
        leader = self.cluster.leader()
        # Also by the newest leader, which may not have known it as a follower.
        self.once.send(leader)
        assert self.cluster.until(lambda: bool(self.once.answers))
        assert self.once.answers[0].error is ErrorCode.NONE, self.once.answers
        self.once.take_answer()
        top = max(self.once.acknowledged)
        found = {each.offset: each.value for each in leader.records(leader.log().log_start_offset)}
        assert found[top] == self.once.acknowledged[top], "AckedAllNeverLost"

    def is_settled(self) -> bool:
        registration = self.cluster.registration()
        if registration.leader < 0 or set(registration.isr) != set(BROKERS):
            return False
        leader = self.cluster[registration.leader]
        return leader.partition().is_leader and self.cluster.in_sync()

    # Check the invariants.

    def check(self) -> None:
        registration = self.cluster.registration()
        assert set(registration.isr) <= set(registration.replicas), "IsrSubsetOfReplicas"
        assert registration.leader < 0 or registration.leader in registration.isr, "LeaderInIsr"
        for node in self.up():
            if PARTITION in node.logs.logs:
                self.check_replica(node)
        self.check_log_matching()
        self.check_isr(registration.isr)
        self.once.take_answer()
        self.acknowledged.update(self.once.acknowledged)
        for offset, value in self.acknowledged.items():
            assert self.committed.get(offset, value) == value, f"AckedAllNeverLost {offset}"

    def check_replica(self, node: Node) -> None:
        log, partition = node.log(), node.partition()
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark
        assert log.high_watermark <= log.log_end_offset
        if not partition.is_leader:
            return
        assert node.id in partition.leader.isr_state.isr, "LeaderInIsr"
        key = (node.id, node.life, partition.leader_epoch)
        before = self.high_watermarks.get(key, 0)
        assert log.high_watermark >= before, "HighWatermarkMonotonic"
        self.high_watermarks[key] = log.high_watermark
        self.deleted_below = max(self.deleted_below, log.log_start_offset)
        self.check_committed(node, key)
        if partition.leader_epoch == self.cluster.registration().leader_epoch:
            top = max(self.committed, default=-1)
            assert top < log.log_end_offset, f"CommittedNeverLost: {top} is not on {node.id}"
            assert max(self.acknowledged, default=-1) < log.log_end_offset, "AckedAllNeverLost"

    def check_isr(self, isr: tuple[int, ...]) -> None:
        """Each member has all that is committed: any of them may lead next."""
        top = max(self.committed, default=-1)
        for node in self.up():
            if node.id in isr and PARTITION in node.logs.logs:
                end = node.log().log_end_offset
                assert top < end, f"{node.id} is in the ISR and ends at {end}: {top} is committed"

    def check_committed(self, node: Node, key: tuple[int, int, int]) -> None:
        """NoOffsetTwice: below a leader's high watermark an offset has one value for ever."""
        log = node.log()
        begin = self.compared.get(key, log.log_start_offset)
        for record in node.records(max(begin, log.log_start_offset)):
            if record.offset >= log.high_watermark:
                break
            known = self.committed.setdefault(record.offset, record.value)
            assert known == record.value, f"NoOffsetTwice {record.offset}: {known}, {record.value}"
        self.compared[key] = log.high_watermark

    def check_log_matching(self) -> None:
        """The same offset and epoch on two replicas: the same bytes, from there down."""
        nodes = [node for node in self.up() if PARTITION in node.logs.logs]
        logs = [(node.log().log_start_offset, self.placed(node)) for node in nodes]
        for index, (start, one) in enumerate(logs):
            for other_start, other in logs[index + 1 :]:
                common = one.keys() & other.keys()
                if not common:
                    continue
                last = max(common)
                # The replicas need not have the same deleted records.
                first = (max(start, other_start, min(one)[0], min(other)[0]), -1)
                mine, theirs = (
                    {key: content for key, content in each.items() if first <= key <= last}
                    for each in (one, other)
                )
                assert mine == theirs, f"LogMatching up to {last}"

    def placed(self, node: Node) -> dict[tuple[int, int], bytes]:
        """Bytes of each batch by offset and epoch."""
        content = node.bytes()
        return {
            (header.base_offset, header.partition_leader_epoch): content[
                position : position + header.size
            ]
            for position, header in batches(content)
        }

    def state(self) -> Any:
        registration = self.cluster.registration()
        lines = [f"controller: {registration}"]
        for node in self.cluster.nodes.values():
            if not node.is_up or PARTITION not in node.logs.logs:
                lines.append(f"{node.id}: up={node.is_up}")
                continue
            log, partition = node.log(), node.partition()
            fetchers = node.manager.followed.fetchers
            states = []
            if fetchers is not None:
                for _, fetcher in fetchers.fetchers():
                    state = fetcher.states.get(PARTITION)
                    if state is not None:
                        states.append(
                            f"{fetcher.name} {state.phase} at {state.fetch_offset} "
                            f"dead={fetcher.is_dead}"
                        )
                states.append(f"failed={fetchers.failed}")
            lines.append(
                f"{node.id}: leads={partition.is_leader} epoch={partition.leader_epoch} "
                f"isr={partition.leader.isr_state} start={log.log_start_offset} "
                f"hw={log.high_watermark} end={log.log_end_offset} "
                f"epochs={log.leader_epochs.entries} {states}"
            )
        return "\n".join(lines)


def live(seed: int) -> Life:
    """Run the life of a seed; a failure tells its seed, its history and the end state."""
    life = Life(seed)
    versions = pytest.MonkeyPatch()
    if seed % 4 == 3:
        versions.setattr(ImageBrokers, "fetch_version", lambda _: OLD_FETCH_VERSION)
    try:
        life.run()
    except AssertionError as error:
        story = "\n".join(life.history)
        raise AssertionError(f"seed {seed}: {error}\n{story}\n{life.state()}") from error
    finally:
        versions.undo()
    return life


if __name__ == "__main__":
    # Warnings of brokers are expected: the schedule causes them.
    logging.disable(logging.CRITICAL)
    begin, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(begin, begin + count):
        live(number)
        if number % 100 == 99:
            print(f"up to seed {number}", flush=True)
    print(f"{count} lives from seed {begin} on")
