"""Observation of a node from outside: metrics, health and readiness."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.group_coordinator import group_families
from barnabas.coordinator.share.share_coordinator import share_families
from barnabas.metrics import names
from barnabas.metrics.registry import MetricFamily, MetricsRegistry, summary_of
from barnabas.replication.replica_gauges import publish_replica_metrics
from barnabas.runtime.packages import needed_for
from barnabas.server.metrics.broker_metrics import (
    producer_families,
    share_partition_families,
    transaction_families,
)
from barnabas.server.metrics.cluster_metrics import (
    ClusterMetrics,
    damage_families,
    directory_families,
    quorum_families,
    session_families,
)
from barnabas.server.metrics.node_metrics import (
    ProcessMetrics,
    certificate_families,
    client_families,
    connection_families,
    quota_families,
    request_families,
)
from barnabas.storage.manager.log_gauges import cleaner_families, log_families
from barnabas.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.metrics.metrics_listener import MetricsListener
    from barnabas.server.handlers.dependencies import BrokerDependencies
    from barnabas.server.links.link_manager import LinkManager
    from barnabas.server.listeners.listener import Listener
    from barnabas.server.metrics.client_telemetry import ClientTelemetry
    from barnabas.server.process.shared_server import SharedServer
    from barnabas.server.process.tiered_storage import TieredStorage
    from barnabas.server.quorum.quorum_watch import QuorumWatch

# Kafka's values of the broker state metric.
STARTING = 1
RUNNING = 3
STOPPING = 6


class Observation:
    """Collects all sources of metrics, and optionally serves them over HTTP."""

    def __init__(self, shared: SharedServer, listeners: Sequence[Listener]) -> None:
        """Register the sources of metrics that all nodes have.

        Args:
            shared: the shared dependencies of the node.
            listeners: all listeners of the process, read at each request for metrics.
        """
        self._shared = shared
        runtime = self._runtime = shared.runtime
        self.registry = MetricsRegistry(runtime.clock)
        self._process = ProcessMetrics(runtime.clock, runtime.timer, runtime.watch, __version__)
        # The metrics listener. None without `metrics.listener`.
        self._listener: MetricsListener | None = None
        # One of the broker states above. Changed by `Node`.
        self.state = STARTING
        # The error that ends the process, or None. Set by `Node`.
        self.failure: BaseException | None = None
        # Watches the metadata quorum. None on a single node, and before the node is ready.
        self.quorum_watch: QuorumWatch | None = None
        cluster = ClusterMetrics(shared.cluster, shared.quorum, shared.elections)
        self.registry.gauge(names.BROKER_STATE, None, lambda: self.state)
        for source in (
            lambda: request_families(shared.statistics, runtime.clock.monotonic_ms()),
            lambda: connection_families(listeners),
            lambda: client_families(listeners),
            lambda: certificate_families(shared.sockets.tls),
            lambda: quota_families(shared.quotas),
            cluster.families,
            lambda: quorum_families(shared.quorum, self.quorum_watch),
            lambda: directory_families(shared.directories, runtime.disk),
            lambda: damage_families(shared.log_dependencies.damage),
            lambda: [
                MetricFamily(
                    names.LOG_FLUSH_TIME,
                    [
                        (
                            (),
                            summary_of(
                                shared.log_dependencies.flush_times, runtime.clock.monotonic_ms()
                            ),
                        )
                    ],
                )
            ],
            self._process.families,
        ):
            self.registry.add_source(source)

    def observe_broker(
        self, dependencies: BrokerDependencies, links: LinkManager, tiering: TieredStorage | None
    ) -> None:
        """Add the metrics that only brokers have."""
        if tiering is not None:
            # Imported only on brokers with a remote tier.
            from barnabas.server.metrics.remote_metrics import remote_families

            self.registry.add_source(
                lambda: remote_families(tiering.sources, dependencies.clock.monotonic_ms())
            )
        publish_replica_metrics(dependencies.replicas, self.registry, self._address_of)
        publisher, counts = self._shared.publisher, dependencies.replicas.metrics
        logs = dependencies.logs
        coordinators = (
            dependencies.groups.runtime,
            dependencies.transactions.runtime,
            dependencies.share_coordinator.runtime,
        )
        for source in (
            lambda: [
                MetricFamily(
                    names.METADATA_APPLY_ERRORS,
                    [((), publisher.apply_errors + counts.metadata_apply_errors)],
                )
            ],
            lambda: cleaner_families(logs.cleaner, logs.directories),
            lambda: log_families(logs),
            lambda: session_families(dependencies.fetch_sessions),
            lambda: share_partition_families(
                dependencies.shares, dependencies.clock.monotonic_ms()
            ),
            links.families,
            lambda: group_families(dependencies.groups),
            lambda: transaction_families(
                dependencies.transactions, dependencies.marker_sender, dependencies.verification
            ),
            lambda: producer_families(
                dependencies.replicas,
                dependencies.config.integer("transaction.max.timeout.ms"),
                dependencies.clock.wall_ms(),
            ),
            lambda: share_families(dependencies.share_coordinator),
            lambda: [
                MetricFamily(
                    names.COORDINATOR_TIMERS_FAILED,
                    [((("topic", each.topic),), each.failed_timers) for each in coordinators],
                )
            ],
        ):
            self.registry.add_source(source)

    def listen(self, host: str, port: int) -> str:
        """Serve HTTP requests, and return HOST:PORT with the real port.

        Raises:
            OSError: the address cannot be bound.
            MissingPackageError: a package of the listener is not installed.
        """
        # Imported only with `metrics.listener`: these modules take a third of the start time.
        with needed_for("the metrics listener"):
            from barnabas.metrics.metrics_listener import MetricsListener

        self._listener = MetricsListener(
            self.registry, self._runtime.timer, self._why_not_healthy, self._why_not_ready
        )
        address = self._listener.bind(self._runtime.sockets, host, port)
        self._process.start()
        return address

    def close(self) -> None:
        """Stop measuring and serving."""
        self._process.stop()
        if self._listener is not None:
            self._listener.close()

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        """Return the address of a broker on the inter-broker listener, even of a fenced one."""
        broker = self._shared.cluster.image.brokers.get(broker_id)
        listener = self._shared.configuration.inter_broker_listener
        if broker is None or listener is None:
            return None
        endpoint = broker.listeners.get(listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _why_not_healthy(self) -> str | None:
        return None if self.failure is None else f"the broker cannot continue: {self.failure}"

    def _why_not_ready(self) -> str | None:
        if self.state == STARTING:
            return "starting: logs are being loaded, or the controller has not unfenced this broker"
        if self.state == STOPPING:
            return "stopping"
        lost = None if self.quorum_watch is None else self.quorum_watch.problem
        return self._why_not_healthy() or lost


def make_telemetry(shared: SharedServer) -> ClientTelemetry | None:
    """Return the receiver of metrics that clients send; None if they are not collected."""
    if shared.config.string("barnabas.client.telemetry") == "none":
        return None
    from barnabas.server.metrics.client_telemetry import ClientTelemetry, LoggingReceiver

    clock = shared.runtime.clock
    max_bytes = shared.config.integer("telemetry.max.bytes")
    return ClientTelemetry(shared.cluster, clock, max_bytes, LoggingReceiver(clock))
