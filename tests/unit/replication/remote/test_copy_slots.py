"""Copies start in the order of their requests, as many at a time as there are threads."""

from __future__ import annotations

from barnabas.replication.remote.copy_causes import CopyCause
from barnabas.replication.remote.copy_slots import CopySlots
from barnabas.replication.remote.remote_quota import RemoteQuota
from barnabas.replication.remote.store_health import StoreHealth
from barnabas.sim.world import sim_runtime
from barnabas.storage.remote.remote_storage import RemoteRefusedError
from barnabas.waiting.timing_wheel import TimingWheel

UNLIMITED = 0x7FFF_FFFF_FFFF_FFFF


class Copy:
    """A copy that notes when it starts."""

    def __init__(self, slots: CopySlots, started: list[Copy], *, ends_at_once: bool = False):
        self._slots = slots
        self._started = started
        self._ends_at_once = ends_at_once

    def on_admitted(self) -> None:
        self._started.append(self)
        if self._ends_at_once:
            self._slots.release()


class Scene:
    def __init__(self, count: int = 2, bytes_per_second: int = UNLIMITED) -> None:
        self.world, runtime = sim_runtime(1)
        wheel = TimingWheel(runtime.clock, runtime.timer)
        self.health = StoreHealth(runtime.clock)
        self.quota = RemoteQuota(runtime.clock, bytes_per_second, 11, 1)
        self.slots = CopySlots(count, self.quota, self.health, wheel)
        self.started: list[Copy] = []

    def request(self, count: int, *, ends_at_once: bool = False) -> list[Copy]:
        copies = [Copy(self.slots, self.started, ends_at_once=ends_at_once) for _ in range(count)]
        for copy in copies:
            self.slots.request(copy)
        return copies


def test_as_many_copies_run_as_there_are_threads() -> None:
    scene = Scene(count=2)
    copies = scene.request(4)
    assert scene.started == copies[:2]
    scene.slots.release()
    assert scene.started == copies[:3]
    assert scene.slots.waiting == 1


def test_copies_that_end_at_once_do_not_nest() -> None:
    scene = Scene(count=1)
    blocking = scene.request(1)
    copies = scene.request(5_000, ends_at_once=True)
    scene.slots.release()
    assert scene.started == blocking + copies


def test_a_withdrawn_copy_does_not_start() -> None:
    scene = Scene(count=1)
    first, second, third = scene.request(3)
    scene.slots.withdraw(second)
    scene.slots.release()
    assert scene.started == [first, third]


def test_more_threads_start_waiting_copies() -> None:
    scene = Scene(count=1)
    scene.request(3)
    scene.slots.resize(2)
    assert len(scene.started) == 2


def test_no_copy_starts_while_the_store_refuses() -> None:
    scene = Scene()
    scene.health.on_failure("copy", RemoteRefusedError("wrong credentials"))
    scene.request(1)
    assert scene.slots.pause is CopyCause.REFUSED
    scene.world.run_for(20_000)
    assert not scene.started
    scene.world.run_for(11_000)
    assert len(scene.started) == 1


def test_no_copy_starts_above_the_quota() -> None:
    scene = Scene(bytes_per_second=100)
    scene.quota.record(1_000)
    scene.request(1)
    assert scene.slots.pause is CopyCause.QUOTA
    scene.world.run_for(9_000)
    assert not scene.started
    scene.world.run_for(2_500)
    assert len(scene.started) == 1
    assert scene.quota.throttle_times().average == 1_000


def test_no_copy_starts_while_too_many_segments_are_known(caplog) -> None:
    scene = Scene()
    scene.slots.has_room = False
    scene.request(1)
    assert scene.slots.pause is CopyCause.SEGMENTS_MAX
    scene.request(1)
    (line,) = caplog.records
    assert "raise barnabas.remote.segments.max" in line.getMessage()
    scene.slots.has_room = True
    scene.world.run_for(31_000)
    assert len(scene.started) == 2
    assert scene.slots.pause is None


def test_nothing_starts_after_the_end() -> None:
    scene = Scene(count=1)
    scene.request(2)
    scene.slots.close()
    scene.slots.release()
    scene.world.run_for(60_000)
    assert len(scene.started) == 1
