"""A controller that is the only voter, on a simulated host."""

from __future__ import annotations

from typing import Any

from barnabas.controller.controller import Controller, ControllerDependencies
from barnabas.metadata.broker_registration import ControllerRegistration
from barnabas.metadata.publishing import MetadataPublisher
from barnabas.raft.config import RaftConfig
from barnabas.raft.driver.opening import RaftOpening, open_raft
from barnabas.sim.world import SimWorld
from barnabas.storage.log_dependencies import LogDependencies
from unit.controller.parts import (
    config_of,
    heartbeat,
    registration,
)

FEATURES = {"metadata.version": 33, "eligible.leader.replicas.version": 1}


class Node:
    """One process: quorum, publisher, controller."""

    def __init__(self, world: SimWorld, **settings: str) -> None:
        self.world = world
        self.host = world.host("a")
        runtime = self.host.runtime
        runtime.disk.make_directory("/data")
        runtime.disk.sync_directory("/")
        log_dependencies = LogDependencies(
            runtime.disk, runtime.clock, runtime.executor, runtime.timer, runtime.rng
        )
        self.fatal: list[BaseException] = []
        opening = RaftOpening("/data", log_dependencies, runtime.rng, self.fatal.append, FEATURES)
        self.driver = open_raft(RaftConfig(1, (1,)), opening)
        self.publisher = MetadataPublisher()
        self.driver.add_listener(self.publisher)
        registered = ControllerRegistration(1, bytes(16), {}, {})
        self.controller = Controller(
            config_of(**settings),
            ControllerDependencies(self.driver, self.publisher, runtime.rng, registered),
        )
        self.driver.add_listener(self.controller)
        self.driver.start()
        self.answers: list[Any] = []

    def wait(self, count: int = 1) -> Any:
        wanted = len(self.answers) + count
        assert self.world.run_until(lambda: len(self.answers) >= wanted)
        return self.answers[-1]

    def ready(self, **options: int) -> int:
        """Make the controller active and its broker unfenced; return the broker epoch."""
        assert self.world.run_until(lambda: self.controller.is_active)
        self.controller.serve(
            registration(**options),
            self.answers.append,  # type: ignore[arg-type]
        )
        epoch: int = self.wait().broker_epoch
        self.controller.serve(heartbeat(epoch), self.answers.append)
        assert not self.wait().is_fenced
        return epoch
