"""Cases: small functions that send requests to both brokers, run over every version of an API.

    @case(ApiKey.LIST_OFFSETS)
    def an_unknown_topic(scene: Scene) -> None:
        scene.compare(list_offsets("absent"))

The function's name is the case's name. `known_differences` lists the accepted differences. A case
fails if one of its listed differences no longer exists.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey
from differential.known_differences import KNOWN_DIFFERENCES
from differential.playing import play_case
from differential.scene import Compared, Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from differential.scene import Pair


@dataclass(frozen=True)
class Case:
    """One case of one API."""

    api: ApiKey
    name: str
    play: Callable[[Scene], None]
    # Versions in which the case runs. Empty means all versions that both brokers serve.
    versions: frozenset[int] = frozenset()
    # Whether `make check` leaves it out.
    is_nightly: bool = False

    def __str__(self) -> str:
        return f"{self.api.name.lower()}: {self.name}"

    def run(self, pair: Pair, *, every_version: bool = True) -> list[str]:
        """Run the case in each version, or in the oldest and the newest.

        Returns:
            Lines that describe the unexpected differences.
        """
        served = pair.versions(self.api)
        played = [each for each in served if not self.versions or each in self.versions]
        if not every_version and len(played) > 2:
            played = [played[0], played[-1]]
        else:
            pair.complete.add(str(self))
        versions: dict[str, list[int]] = {}
        differs = KNOWN_DIFFERENCES.get(str(self), {})
        expected = set(differs)
        by_class: Counter[str] = Counter()
        before = pair.compared[self.api]
        for version in played:
            scene, differing = play_case(
                lambda name, version=version: Scene(pair, self.api, name, version),
                f"{self.api.name.lower()}-{self.name}",
                self.play,
                differs,
                expected,
            )
            by_class += scene.by_class
            for line in differing:
                versions.setdefault(line, []).append(version)
        pair.by_case[str(self)] = Compared(pair.compared[self.api] - before, by_class)
        found = [f"{spans(seen)} {line}" for line, seen in versions.items()]
        if str(self) not in pair.complete:
            return found
        return found + [f"no longer differs: {pattern}" for pattern in expected]


def spans(versions: Sequence[int]) -> str:
    """Return versions as text: v4-7,9 for 4, 5, 6, 7 and 9."""
    spans: list[list[int]] = []
    for version in versions:
        if spans and spans[-1][1] == version - 1:
            spans[-1][1] = version
        else:
            spans.append([version, version])
    return "v" + ",".join(f"{a}-{b}" if a < b else f"{a}" for a, b in spans)


def is_left_out(state: int, number: int) -> bool:
    """Return whether `make check` leaves out the request with this number in a state.

    It sends each request in every ninth state, and in each state every ninth request.
    """
    return (state + number) % 9 != 0


CASES: list[Case] = []


def case(
    api: ApiKey,
    versions: Iterable[int] = (),
    *,
    is_nightly: bool = False,
) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Register a function as a case of an API."""

    def register(play: Callable[[Scene], None]) -> Callable[[Scene], None]:
        name = play.__name__.replace("_", "-").strip("-")
        CASES.append(Case(api, name, play, frozenset(versions), is_nightly))
        return play

    return register
