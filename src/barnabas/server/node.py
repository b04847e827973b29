"""One process: the only place where its parts are joined, started and stopped (KafkaRaftServer).

Start: data directories locked and checked, listeners bound (connections wait), metadata quorum and
controller, first image, logs, replicas, registration; once the controller has let this broker in,
connections are served and the node is `ready`. Stop: the reverse, ending with the mark of a clean
stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.broker_server import BrokerServer
from barnabas.server.controller_server import ControllerServer
from barnabas.server.endpoint import parse_address
from barnabas.server.forwarding import Forwarding
from barnabas.server.observation import RUNNING, STOPPING, Observation
from barnabas.server.shared_server import SharedServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.loop import Runtime
    from barnabas.server.configuration import Configuration


class Node:
    """A node of a cluster, perhaps its only one."""

    def __init__(
        self,
        configuration: Configuration,
        runtime: Runtime,
        on_ready: Callable[[str], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """Args:
        on_ready: told HOST:PORT once requests are answered.
        on_failed: told why the node cannot go on; the process is to end.
        """
        self._configuration = configuration
        self._runtime = runtime
        self._on_ready = on_ready
        self._on_failed = on_failed
        # HOST:PORT of `metrics.listener`; None while there is none.
        self.metrics_address: str | None = None

    def start(self) -> None:
        """Begin; `on_ready` follows in a later turn.

        Raises:
            StorageError: a data directory is in use, another's, or cannot be opened.
            OSError: an address cannot be bound, a directory not be made.
            ConfigError: an endpoint that clients could not connect to.
        """
        self.shared = SharedServer(self._configuration, self._runtime, self._fail)
        self.controller = ControllerServer(self.shared)
        forwarding = Forwarding(self.controller.local)
        self.broker = BrokerServer(self.shared, forwarding, forwarding, self._on_serving)
        self.observation = Observation(self.shared, self.broker.listeners)
        self.observation.observe_broker(self.broker.parts)
        self._listen_for_metrics()
        self.shared.follow_quorum()
        self.controller.follow_quorum()
        self.controller.controller.when_active(self.broker.start)
        self.shared.quorum.start()

    def stop(self, on_stopped: Callable[[], None]) -> None:
        """Stop serving, close every log, leave the mark of a clean stop, then call back."""
        if self.shared.is_stopping:
            return
        self.shared.is_stopping = True
        self.observation.state = STOPPING
        self.broker.drain(lambda: self.broker.leave(lambda: self._close(on_stopped)))

    def _close(self, on_stopped: Callable[[], None]) -> None:
        """The controller knows: nothing is asked of this broker any more."""

        def finish() -> None:
            self.shared.quorum.shutdown()
            self.broker.close_logs()
            self.shared.close()
            on_stopped()

        self.observation.close()
        self.broker.close(finish)

    def _listen_for_metrics(self) -> None:
        address = self.shared.config.optional_string("metrics.listener")
        host_and_port = parse_address(address) if address else None
        if host_and_port is not None:
            self.metrics_address = self.observation.listen(*host_and_port)

    def _on_serving(self) -> None:
        self.observation.state = RUNNING
        self._on_ready(self.broker.bound[0].address)

    def _fail(self, error: BaseException) -> None:
        self.observation.failure = error
        self._on_failed(error)
