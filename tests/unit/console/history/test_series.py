"""Series of one day: steps, gaps, and the file that keeps them over restarts."""

from __future__ import annotations

import pytest

from barnabas.console.history.history_file import HistoryFile, HistoryFileError, history_file
from barnabas.console.history.series import COARSE_S, DAY_S, POINTS_MAX, Ring, Series
from barnabas.runtime.rng import SeededRng
from barnabas.sim.disk import SimDisk
from unit.storage.storage_fixtures import ManualClock

# Begin of a step of five minutes.
BEGIN = 1_769_860_800.0


def filled(seconds: int, interval: int = 5) -> Series:
    series = Series("mean", interval)
    for at in range(0, seconds, interval):
        series.add(BEGIN + at, float(at))
    return series


def test_a_ring_keeps_the_newest_points_in_order() -> None:
    ring = Ring(10)
    for at in range(1000):
        ring.append(float(at), 1.0)
    # The wall clock was set back.
    ring.append(3.0, 2.0)
    assert [at for at, _ in ring] == [float(at) for at in range(990, 1000)]


def test_a_series_covers_a_day_in_bounded_memory_with_the_finest_points_at_its_end() -> None:
    series = filled(2 * DAY_S, 10)
    points = [(at, value) for at, value in series if value is not None]
    assert len(points) < POINTS_MAX + 120 + DAY_S // COARSE_S
    times = [at for at, _ in points]
    assert times == sorted(times)
    assert times[-1] - times[0] >= DAY_S - 2 * COARSE_S
    assert (times[1] - times[0], times[-1] - times[-2]) == (COARSE_S, 10)
    # A value of five minutes is the mean of its samples.
    at, value = points[0]
    assert value == at - BEGIN + (COARSE_S - 10) / 2


def test_a_pause_interrupts_the_line() -> None:
    series = filled(60)
    series.add(BEGIN + 600, 1.0)
    values = [value for _, value in series]
    assert values.count(None) == 1
    assert values[-2] is None


def written(disk: SimDisk, series: dict[str, Series], seconds: int) -> HistoryFile:
    file = history_file("/lines", "h:1", disk)
    for at in range(0, seconds, 30):
        ended: dict[float, dict[str, float]] = {}
        for name, each in series.items():
            point = each.add(BEGIN + at, at / 30)
            if point is not None:
                ended.setdefault(point[0], {})[name] = point[1]
        for begin, values in ended.items():
            file.add(begin, values, series)
    return file


def loaded(disk: SimDisk) -> dict[str, Series]:
    found: dict[str, Series] = {}
    file = history_file("/lines", "h:1", disk)
    file.load(lambda name: found.setdefault(name, Series()))
    file.close()
    return found


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_restart_keeps_the_minutes_and_the_longer_steps(is_compacted: bool) -> None:
    disk = SimDisk(ManualClock(), SeededRng(1))
    series = {"records_in": Series(), "topic/a": Series()}
    file = written(disk, series, 6 * 3600)
    if is_compacted:
        file.compact(series)
    file.close()
    found = loaded(disk)
    assert found.keys() == series.keys()
    for name, each in series.items():
        for own, again in zip(each.tiers(), found[name].tiers(), strict=True):
            assert list(again.points) == list(own.points)


def test_the_file_stays_bounded() -> None:
    disk = SimDisk(ManualClock(), SeededRng(1))
    series = {f"topic/{number}": Series() for number in range(40)}
    written(disk, series, 3 * DAY_S).close()
    assert disk.size("/lines") < 2 * 40 * (DAY_S // COARSE_S + 120) * 25


def test_torn_and_foreign_lines_are_ignored() -> None:
    disk = SimDisk(ManualClock(), SeededRng(1))
    written(disk, {"a": Series()}, 600).close()
    lines = disk.read("/lines")
    foreign = b'[]\n{"step": 60, "at": 1, "values": {"a": "x"}}\n{"step": 60}\n\xff\n{"step": 6'
    disk.write_atomically("/lines", lines + foreign)
    assert len(list(loaded(disk)["a"])) == 9


def test_two_consoles_do_not_share_a_file_and_a_directory_has_one_per_cluster() -> None:
    disk = SimDisk(ManualClock(), SeededRng(1))
    disk.make_directory("/all")
    first = history_file("/all", "h:1,h:2", disk)
    with pytest.raises(HistoryFileError, match="another console"):
        history_file("/all", "h:1,h:2", disk)
    history_file("/all", "h:3", disk).close()
    first.close()
    history_file("/all", "h:1,h:2", disk).close()
