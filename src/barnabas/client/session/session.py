"""Base of all blocking clients: a private event loop, the cluster, and ways to wait.

There is no thread: the loop runs while a call waits. Ctrl-C interrupts any wait. A session belongs
to the process that created it, and only one thread at a time may use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.coordinators import Coordinators
from barnabas.client.errors import ClientError
from barnabas.client.session.lifetime import Lifetime
from barnabas.client.session.waiter import Waiter
from barnabas.runtime.stepper import LoopStepper

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.config import ClientConfig
    from barnabas.client.retries.retrying import OnDone

__all__ = ["Session"]

T = TypeVar("T")


class Session:
    """Connections and their event loop, shared by all clients that use them.

    Args:
        config: the parsed configuration.
        kind: names the client in the error of a call after `close`.
    """

    def __init__(self, config: ClientConfig, kind: str = "client") -> None:
        self.config = config
        self.lifetime = Lifetime(kind)
        # Raises an error if the session is closed or belongs to another process.
        self.check_usable = self.lifetime.check
        self.stepper = LoopStepper()
        self.runtime = self.stepper.runtime
        self.cluster = Cluster(self.runtime, config)
        self.coordinators = Coordinators(self.cluster)
        self.waiter = Waiter(self.stepper, self.check_usable, config.default_api_timeout_ms)

    def wait(self, start: Callable[[OnDone[T]], None], operation: str) -> T:
        """Start a call and run the loop until its end; a timeout error contains `operation`.

        Raises:
            ClientError: the call failed.
        """
        return self.waiter.wait(start, operation)

    def check_idle(self) -> None:
        """Raise unless the loop may run now; at the end of a program, daemon threads may run it.

        Raises:
            ClientError: A thread is in a call of the client.
        """
        if self.stepper.is_running:
            raise ClientError("another thread is in a call of the client")

    def close(self) -> None:
        """Close all connections and the loop; does nothing when repeated or in a forked child."""
        if self.lifetime.end():
            self.cluster.close()
            self.stepper.close()
