"""Values over one day in bounded memory: the older they are, the coarser are their steps.

A series holds every sample of the last half hour, one value a minute for two hours, and one value
per five minutes for a day. A value of a longer step stands for all samples within that step: their
mean, or their highest value where a peak matters, such as a latency or a lag.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Point: TypeAlias = tuple[float, float]
# What a longer step keeps of the samples within it.
Kept: TypeAlias = Literal["mean", "highest"]

DAY_S = 86_400
# Samples that are kept as they are: 30 minutes with five seconds between them.
POINTS_MAX = 360
MINUTE_S, COARSE_S = 60, 300
_MINUTES_MAX = 120
_COARSE_MAX = DAY_S // COARSE_S
# No value for this many steps interrupts a line.
_GAP_STEPS = 3


class Ring:
    """The newest points, up to a number of them, in order of their times (s since 1970)."""

    __slots__ = ("_most", "_points")

    def __init__(self, most: int) -> None:
        self._most = most
        # Times and values in turn: a tuple for each point would take seven times the memory.
        self._points = array("d")

    def append(self, at: float, value: float) -> None:
        """Add a point; ignore one that is not newer than the last (the wall clock was set back)."""
        points = self._points
        if points and at <= points[-2]:
            return
        points.extend((at, value))
        # Points are removed in groups, because each removal moves all others.
        if len(points) > 2 * (self._most + self._most // 4):
            del points[: len(points) - 2 * self._most]

    def __len__(self) -> int:
        return min(self._most, len(self._points) // 2)

    def __iter__(self) -> Iterator[Point]:
        newest = self._points[max(0, len(self._points) - 2 * self._most) :]
        return iter(zip(newest[::2], newest[1::2], strict=True))

    @property
    def last_at(self) -> float:
        """The time of the newest point; -1 if there is none."""
        return self._points[-2] if self._points else -1.0


class _Step:
    """The samples of a step that has not ended."""

    __slots__ = ("count", "highest", "number", "total")

    def __init__(self) -> None:
        self.number = -1
        self.count = 0
        self.total = 0.0
        self.highest = 0.0

    def add(self, number: int, value: float) -> None:
        """Add a sample to the step of this number, which may be a new one."""
        if number != self.number:
            self.number, self.count, self.total, self.highest = number, 0, 0.0, value
        self.count += 1
        self.total += value
        self.highest = max(self.highest, value)

    def value(self, kept: Kept) -> float:
        """Return the value that stands for all samples."""
        return self.highest if kept == "highest" else self.total / self.count


class Tier(NamedTuple):
    """The points with one step (s)."""

    step_s: float
    points: Ring


class Series:
    """One value over time.

    Args:
        kept: What a longer step keeps of the samples within it.
        interval_s: Time between two samples.
    """

    __slots__ = (
        "_coarse",
        "_coarse_step",
        "_interval_s",
        "_kept",
        "_minute_step",
        "_minutes",
        "_raw",
    )

    def __init__(self, kept: Kept = "mean", interval_s: float = 5.0) -> None:
        self._kept = kept
        self._interval_s = interval_s
        self._raw = Ring(POINTS_MAX)
        self._minutes, self._minute_step = Ring(_MINUTES_MAX), _Step()
        self._coarse, self._coarse_step = Ring(_COARSE_MAX), _Step()

    def __bool__(self) -> bool:
        return bool(len(self._raw) or len(self._minutes) or len(self._coarse))

    def add(self, at: float, value: float) -> Point | None:
        """Add a sample.

        Returns:
            The minute that ended before the sample, for a file; None if none did.
        """
        self._raw.append(at, value)
        step, number = self._minute_step, int(at // MINUTE_S)
        ended = None
        if step.number not in (-1, number):
            ended = (step.number * MINUTE_S, step.value(self._kept))
            self.add_minute(*ended)
        step.add(number, value)
        return ended

    def add_minute(self, at: float, value: float) -> None:
        """Add the value of a minute that begins at this time."""
        self._minutes.append(at, value)
        step, number = self._coarse_step, int(at // COARSE_S)
        if number * COARSE_S <= self._coarse.last_at:
            # A file has the whole step already.
            return
        if step.number not in (-1, number):
            self._coarse.append(step.number * COARSE_S, step.value(self._kept))
        step.add(number, value)

    def add_coarse(self, at: float, value: float) -> None:
        """Add the value of five minutes that begin at this time."""
        self._coarse.append(at, value)

    def tiers(self) -> tuple[Tier, Tier]:
        """Return what a file keeps: the points of five minutes and those of one."""
        return Tier(COARSE_S, self._coarse), Tier(MINUTE_S, self._minutes)

    def __iter__(self) -> Iterator[tuple[float, float | None]]:
        """Yield all points in order, the finest that there are; None in a gap."""
        finest_begin = next(iter(self._raw), (float("inf"), 0.0))[0]
        minutes_begin = next(iter(self._minutes), (finest_begin, 0.0))[0]
        last, last_step = -1.0, 0.0
        for ring, step, end in (
            (self._coarse, float(COARSE_S), min(minutes_begin, finest_begin)),
            (self._minutes, float(MINUTE_S), finest_begin),
            (self._raw, self._interval_s, float("inf")),
        ):
            for at, value in ring:
                # The finer points that follow cover this step, or a part of it.
                if at + (step if step > self._interval_s else 0) > end:
                    break
                if last >= 0 and at - last > _GAP_STEPS * max(step, last_step):
                    yield last + last_step, None
                yield at, value
                last, last_step = at, step
