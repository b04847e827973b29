"""Where new replicas go (Kafka's ReplicaPlacer, KIP-36 for racks).

Leaders are spread evenly over the live brokers, and followers so that the partitions led by one
broker have different seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.controller.result import Refusal
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.runtime.rng import Rng


class UsableBroker(NamedTuple):
    """A broker that may be given replicas."""

    id: int
    rack: str | None
    # Takes replicas when there are not enough others, but never the first place.
    fenced: bool


class PlacementSpec(NamedTuple):
    """What is to be placed."""

    partition_count: int
    replication_factor: int


class ReplicaPlacer(Protocol):
    """A rule of placement."""

    def place(self, spec: PlacementSpec, brokers: Sequence[UsableBroker]) -> list[list[int]]:
        """Replicas of each new partition, the preferred leader first.

        Raises:
            Refusal: INVALID_REPLICATION_FACTOR, there are not enough brokers.
        """
        ...


class StripedPlacer:
    """Round robin from a random start, shifted by one with each round; racks are not looked at."""

    __slots__ = ("_rng",)

    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def place(self, spec: PlacementSpec, brokers: Sequence[UsableBroker]) -> list[list[int]]:
        """Replicas of each new partition, the preferred leader first."""
        factor = spec.replication_factor
        live = sorted(broker.id for broker in brokers if not broker.fenced)
        fenced = sorted(broker.id for broker in brokers if broker.fenced)
        if not live:
            raise Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR, "no broker is live to lead the partitions"
            )
        if len(live) + len(fenced) < factor:
            raise Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {factor} needs as many brokers;"
                f" {len(live) + len(fenced)} are registered",
            )
        start = self._rng.randint(0, len(live) - 1)
        return [
            _replicas(live, fenced, factor, start + partition)
            for partition in range(spec.partition_count)
        ]


def _replicas(live: list[int], fenced: list[int], factor: int, turn: int) -> list[int]:
    count = len(live)
    first = turn % count
    # One more shift per round: the same leader gets other followers.
    shift = turn // count % max(1, count - 1)
    others = [live[(first + 1 + (shift + step) % max(1, count - 1)) % count]
              for step in range(count - 1)]  # fmt: skip
    return [live[first], *others, *fenced][:factor]
