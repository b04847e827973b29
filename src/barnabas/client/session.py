"""What every blocking face of the client stands on: a private loop, the cluster, ways to wait.

There is no thread: the loop moves while a call waits. Ctrl-C interrupts any wait. A session belongs
to the process that made it; one thread at a time may use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.coordinators import Coordinators
from barnabas.client.lifetime import Lifetime
from barnabas.client.waiter import Waiter
from barnabas.runtime.stepper import LoopStepper

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.config import ClientConfig
    from barnabas.client.retrying import OnDone

__all__ = ["Session"]

T = TypeVar("T")


class Session:
    """Connections and their loop, for one face or for several over the same connections.

    Args:
        config: checked keys of the client.
        what: names the face in the message of a call after `close`.
    """

    def __init__(self, config: ClientConfig, what: str = "client") -> None:
        self.config = config
        self.lifetime = Lifetime(what)
        # Raises when the session must not be used: closed, or in a forked child.
        self.check_usable = self.lifetime.check
        self.stepper = LoopStepper()
        self.runtime = self.stepper.runtime
        self.cluster = Cluster(self.runtime, config)
        self.coordinators = Coordinators(self.cluster)
        self.waiter = Waiter(self.stepper, self.check_usable, config.default_api_timeout_ms)

    def wait(self, start: Callable[[OnDone[T]], None], what: str) -> T:
        """Start a call and run the loop until it is done; `what` names it should it time out.

        Raises:
            ClientError: what the call ended with.
        """
        return self.waiter.wait(start, what)

    def close(self) -> None:
        """Close all connections and the loop; again, or in a forked child, it does nothing."""
        if self.lifetime.end():
            self.cluster.close()
            self.stepper.close()
