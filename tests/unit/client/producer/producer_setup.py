"""A producer with a simulated cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from barnabas.client.producer.producer import SharedProducer
from barnabas.client.producer.user_objects import take_parts
from barnabas.client.session.lifetime import Lifetime
from unit.client.scripted_cluster import HandStepper, ScriptedCluster

if TYPE_CHECKING:
    pass


class Setup:
    """A producer over a scripted cluster."""

    def __init__(self, parts: dict[str, Any] | None = None, **keys: object) -> None:
        self.cluster = ScriptedCluster(linger_ms=1000, **keys)
        self.closed: list[SharedProducer] = []
        session: Any = SimpleNamespace(
            cluster=self.cluster,
            coordinators=None,
            stepper=HandStepper(self.cluster.time),
            check_usable=lambda: None,
            lifetime=Lifetime("producer"),
        )
        parts, _ = take_parts(parts or {})
        self.producer = SharedProducer(session, self.cluster.config, self.closed.append, parts)
