"""A client that runs beside the load of a campaign, with topics and a checker of its own."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from chaos.cluster_view import ClusterView
from chaos.load import ANSWER_TIMEOUT_MS, QUICK, Errors, Worker
from chaos.resources import Leftovers
from chaos.verdict import Verdict

# Keys of our own clients: they repeat requests quickly, and do not give up during a fault.
OWN_KEYS: Mapping[str, object] = {
    **QUICK,
    "retry.backoff.max.ms": 100,
    "request.timeout.ms": ANSWER_TIMEOUT_MS,
    "default.api.timeout.ms": 120_000,
}


@dataclass(frozen=True)
class TopicShape:
    """Partitions and configs of a topic that the campaign creates before the start."""

    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SideOptions:
    """What each side load gets from the campaign."""

    view: ClusterView
    bootstrap: str
    seed: int
    errors: Errors


class SideLoad(Worker):
    """One client in a thread. It works until `settle` stops it and judges what it saw."""

    # Names the load on the command line and in the result.
    name: ClassVar[str]
    topics: ClassVar[Mapping[str, TopicShape]] = {}
    # Keys of the brokers that the load needs.
    settings: ClassVar[Mapping[str, str]] = {}

    def __init__(self, options: SideOptions) -> None:
        super().__init__(self.name)
        self.options = options
        self.rng = random.Random(f"{self.name} {options.seed}")

    def settle(self) -> Verdict:
        """Stop, and return the violations."""
        self.stop()
        self.join()
        return self.judge()

    def judge(self) -> Verdict:
        """Return the violations; the thread has ended."""
        raise NotImplementedError

    def leftovers(self) -> Leftovers:
        """Return what the load has made, and the nodes may keep."""
        return Leftovers()

    def figures(self) -> dict[str, int]:
        """Return how often the load did what, for the result."""
        return {}
