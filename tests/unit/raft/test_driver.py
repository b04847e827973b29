"""The driver with a real log on a simulated disk: commits, restarts, power losses, snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.metadata.publishing import MetadataPublisher, SnapshotGenerator
from barnabas.protocol.records.topics import TopicRecord
from barnabas.raft.config import RaftConfig
from barnabas.raft.core.raft_core import RaftCore
from barnabas.raft.driver.opening import RaftOpening, bootstrap_records, open_raft
from barnabas.raft.election_state import decode_quorum_state
from barnabas.raft.listener import LeaderAndEpoch, NotLeaderError, RaftError, SnapshotId
from barnabas.raft.log.snapshot import list_snapshots
from barnabas.raft.transport.transport import NoTransport
from barnabas.sim.world import SimHost, SimWorld
from barnabas.storage.log_dependencies import LogDependencies
from unit.metadata.clusters import topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.raft.listener import CommittedBatch, LoadedSnapshot

DIRECTORY = "/data/__cluster_metadata-0"


class Recorder:
    """A listener that records its calls."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.topics: list[str] = []

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        for batch in batches:
            self.topics += [r.name for r, _ in batch.records if isinstance(r, TopicRecord)]
            self.events.append(f"commit {batch.base_offset}-{batch.last_offset}@{batch.epoch}")

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self.topics = [r.name for r, _ in snapshot.records if isinstance(r, TopicRecord)]
        self.events.append(f"snapshot {snapshot.id.end_offset}-{snapshot.id.epoch}")

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.events.append(f"leader {leader.leader_id}@{leader.epoch}")


class Unreachable(NoTransport):
    """The other voters receive nothing."""

    def send(self, *_: object) -> None:
        pass


class Replica:
    """One process on a simulated host."""

    def __init__(
        self, world: SimWorld, voters: tuple[int, ...] = (1,), **config_values: int
    ) -> None:
        self.host: SimHost = world.host("a")
        runtime = self.host.runtime
        runtime.disk.make_directory("/data")
        runtime.disk.sync_directory("/")
        log_dependencies = LogDependencies(
            runtime.disk, runtime.clock, runtime.executor, runtime.timer, runtime.rng
        )
        self.fatal: list[BaseException] = []
        config = RaftConfig(1, voters, **config_values)
        self.driver: RaftDriver = open_raft(
            config,
            RaftOpening(
                "/data",
                log_dependencies,
                runtime.rng,
                self.fatal.append,
                {"metadata.version": 33},
                None if voters == (1,) else Unreachable(),
            ),
        )
        self.publisher = MetadataPublisher()
        self.recorder = Recorder()
        self.driver.add_listener(self.publisher)
        self.generator = SnapshotGenerator(self.driver, self.publisher, config)
        self.driver.add_listener(self.generator)
        self.driver.add_listener(self.recorder)
        self.committed: list[int] = []
        self.failed: list[RaftError] = []
        self.driver.start()

    def append(self, *names: str) -> int:
        records = [(topic(name, int.from_bytes(name.encode()[-6:], "big")), 0) for name in names]
        return self.driver.append(records, self._on_committed)

    def _on_committed(self, offset: int, error: RaftError | None) -> None:
        if error is None:
            self.committed.append(offset)
        else:
            self.failed.append(error)


def await_settled(world: SimWorld, replica: Replica) -> None:
    assert world.run_until(
        lambda: replica.driver.core.high_watermark == replica.driver.log.log_end_offset
    )


def test_a_single_voter_leads_and_commits() -> None:
    world = SimWorld(1)
    replica = Replica(world)
    assert replica.driver.core.is_leader
    await_settled(world, replica)
    assert replica.recorder.events == ["leader 1@1"]
    assert replica.append("a", "b") == 2
    assert replica.committed == []
    await_settled(world, replica)
    assert replica.committed == [2]
    assert replica.recorder.events == ["leader 1@1", "commit 1-2@1"]
    assert replica.publisher.image.topics.by_name("b") is not None


def test_appends_made_before_the_first_sync_are_committed_in_order() -> None:
    world = SimWorld(2)
    replica = Replica(world)
    for name in "abc":
        replica.append(name)
    await_settled(world, replica)
    assert replica.committed == [1, 2, 3]
    assert replica.recorder.topics == ["a", "b", "c"]


def test_the_election_state_is_stored_in_kafkas_format() -> None:
    replica = Replica(SimWorld(3))
    state = decode_quorum_state(replica.host.disk.read(f"{DIRECTORY}/quorum-state"))
    assert (state.leader_id, state.epoch) == (1, 1)


def test_a_restart_replays_all_records_before_it_reports_the_leadership() -> None:
    world = SimWorld(4)
    replica = Replica(world)
    replica.append("a")
    await_settled(world, replica)
    replica.driver.shutdown()
    replica.host.kill()
    replica.host.start()
    again = Replica(world)
    await_settled(world, again)
    assert again.recorder.events == ["commit 1-1@1", "leader 1@2"]
    assert again.append("b") == 3


def test_acknowledged_records_survive_a_power_loss() -> None:
    for seed in range(20):
        world = SimWorld(seed)
        replica = Replica(world)
        for number in range(30):
            replica.append(f"t{number}")
            world.run_for(world.host("a").rng.random() * 3)
        acknowledged = len(replica.committed)
        replica.host.lose_power()
        replica.host.start()
        again = Replica(world)
        await_settled(world, again)
        names = [f"t{number}" for number in range(30)]
        assert len(again.recorder.topics) >= acknowledged
        assert again.recorder.topics == names[: len(again.recorder.topics)]


def test_a_snapshot_is_written_at_the_size_limit_and_loaded_at_the_next_start() -> None:
    world = SimWorld(5)
    replica = Replica(world, snapshot_record_bytes=2000)
    for number in range(60):
        replica.append(f"t{number}")
        await_settled(world, replica)
    world.run_for(100)
    snapshots = list_snapshots(replica.host.disk, DIRECTORY)
    assert snapshots
    assert snapshots[-1] == replica.driver.latest_snapshot
    replica.driver.shutdown()
    replica.host.kill()
    replica.host.start()
    again = Replica(world)
    await_settled(world, again)
    end = snapshots[-1].end_offset
    assert again.recorder.events[0] == f"snapshot {end}-1"
    assert sorted(again.recorder.topics) == sorted(f"t{number}" for number in range(60))
    assert len(again.publisher.image.topics) == 60


def test_a_snapshot_limits_the_number_of_records_to_replay() -> None:
    world = SimWorld(5)
    replica = Replica(world)
    for number in range(20):
        assert replica.driver.latest_snapshot is None
        replica.append(*(f"t{number}-{each}" for each in range(1000)))
        await_settled(world, replica)
    assert world.run_until(lambda: replica.driver.latest_snapshot is not None)
    assert replica.driver.latest_snapshot == SnapshotId(replica.driver.log.log_end_offset, 1)


def test_old_snapshots_and_segments_are_deleted_by_size() -> None:
    world = SimWorld(6)
    replica = Replica(world, retention_bytes=1)
    for number in range(5):
        replica.append(f"t{number}")
        await_settled(world, replica)
        assert replica.generator.maybe_begin()
        assert not replica.generator.maybe_begin()
        world.run_for(100)
    assert list_snapshots(replica.host.disk, DIRECTORY) == [SnapshotId(6, 1)]
    assert replica.driver.log.log_start_offset == 6
    replica.append("behind")
    await_settled(world, replica)
    replica.driver.shutdown()
    replica.host.kill()
    replica.host.start()
    again = Replica(world)
    await_settled(world, again)
    assert sorted(again.recorder.topics) == ["behind", "t0", "t1", "t2", "t3", "t4"]


def test_old_snapshots_are_deleted_by_age_except_the_latest() -> None:
    world = SimWorld(12)
    replica = Replica(world, retention_ms=120_000)
    for number in range(3):
        replica.append(f"t{number}")
        await_settled(world, replica)
        assert replica.generator.maybe_begin()
        world.run_for(100)
    assert len(list_snapshots(replica.host.disk, DIRECTORY)) == 4
    world.run_for(240_000)
    assert list_snapshots(replica.host.disk, DIRECTORY) == [SnapshotId(4, 1)]
    assert replica.driver.log.log_start_offset == 4


def test_no_snapshot_is_written_without_new_records() -> None:
    world = SimWorld(7)
    replica = Replica(world)
    await_settled(world, replica)
    assert not replica.generator.maybe_begin()


def test_the_bootstrap_checkpoint_is_returned_but_is_not_a_snapshot_of_the_log() -> None:
    world = SimWorld(8)
    replica = Replica(world)
    await_settled(world, replica)
    assert replica.publisher.image.features.finalized == {}
    (record, version), *more = bootstrap_records(replica.driver)
    assert (getattr(record, "name", None), version, more) == ("metadata.version", 0, [])


def test_a_shutdown_fails_pending_and_later_appends() -> None:
    world = SimWorld(9)
    replica = Replica(world)
    replica.append("a")
    replica.driver.shutdown()
    assert [type(error) for error in replica.failed] == [NotLeaderError]
    with pytest.raises(NotLeaderError):
        replica.append("b")
    assert replica.recorder.events[-1] == "leader -1@1"


def test_a_failed_sync_is_fatal_and_commits_nothing() -> None:
    world = SimWorld(10)
    replica = Replica(world)
    await_settled(world, replica)
    replica.append("a")
    replica.driver.fail(OSError("disk"))
    world.run_for(100)
    assert len(replica.fatal) == 1
    assert replica.committed == []
    assert len(replica.failed) == 1


def test_an_unexpected_error_of_the_timer_is_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica without a timer would never elect a leader again."""

    def tick(*_: object) -> None:
        raise RuntimeError("not foreseen")

    world = SimWorld(12)
    replica = Replica(world, voters=(1, 2))
    monkeypatch.setattr(RaftCore, "tick", tick)
    with pytest.raises(RuntimeError, match="not foreseen"):
        world.run_for(10_000)
    assert [str(error) for error in replica.fatal] == ["not foreseen"]


def test_the_status_shows_leader_epoch_and_end() -> None:
    world = SimWorld(11)
    replica = Replica(world)
    replica.append("a")
    await_settled(world, replica)
    status = replica.driver.status()
    assert (status.leader_id, status.epoch, status.high_watermark) == (1, 1, 2)
    assert [(each.id, each.log_end_offset) for each in status.voters] == [(1, 2)]
