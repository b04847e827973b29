"""The cluster as the client sees it: brokers, bootstrap servers and metadata.

Calls go to a node by id, to the controller, or to any node that responds. Only one metadata refresh
is in flight at a time; refreshes requested meanwhile share the next request.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from barnabas.client.connections.connections import Call, Connections, deliver_response
from barnabas.client.connections.metadata_cache import MetadataCache, NodeInfo
from barnabas.client.errors import (
    ClientClosedError,
    ClientError,
    DisconnectedError,
    NoBrokersError,
    broker_error,
)
from barnabas.client.retries import Backoff, RetryTimer
from barnabas.client.user_code import LogUserErrors
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.client.config import ClientConfig
    from barnabas.client.errors import UnreachableBrokerError
    from barnabas.protocol.schema import Message
    from barnabas.runtime.loop import Runtime

__all__ = ["ANY_NODE", "CONTROLLER", "Cluster"]

ANY_NODE = -1
CONTROLLER = -2
# Connections to coordinators have the id of this number minus the node id, as in Kafka's clients.
_COORDINATOR_IDS = 2**31 - 1


class Cluster:
    """Nodes and metadata, shared by fetchers, producers and admin calls."""

    def __init__(self, runtime: Runtime, config: ClientConfig) -> None:
        self.runtime = runtime
        self.config = config
        self.metadata = MetadataCache()
        # Delays of retries (retry.backoff.ms up to retry.backoff.max.ms).
        self.retry_backoff = Backoff(
            runtime.rng, config.retry_backoff_ms, config.retry_backoff_max_ms
        )
        # Topics that every refresh includes besides those of its caller. Fetchers, producers and
        # consumers add the topics that they use.
        self.tracked: set[str] = set()
        # Whether the broker may create tracked topics; producers set it to True.
        self.allow_auto_creation = config.allow_auto_create_topics
        self._connections = Connections(runtime, config)
        # Bootstrap servers. Their ids are negative, because their node ids are unknown.
        self._bootstrap = [
            NodeInfo(-1 - index, host, port)
            for index, (host, port) in enumerate(config.bootstrap_servers)
        ]
        # Callers that wait for the next refresh; moved into the request when it is sent.
        self._waiting: list[_Refresh] = []
        # Whether a refresh is in flight.
        self._refreshing = False
        # Delays background refreshes after a refresh; counts consecutive failed refreshes.
        self._update_retry = self.retry_timer()
        # End of the last refresh (ms, monotonic clock).
        self._refreshed_ms = 0.0
        # Called after every refresh.
        self._listeners: list[Callable[[], None]] = []
        # Index of the known node that the next call to any node tries first.
        self._first_candidate = 0
        self._closed = False

    def retry_timer(self, timeout_ms: float = inf) -> RetryTimer:
        """Return a timer for the retries of one operation; `timeout_ms` limits them (ms)."""
        return RetryTimer(self.runtime, self.retry_backoff, timeout_ms)

    def feature_level(self, name: str) -> int:
        """Return the finalized level of a feature as the brokers reported it; 0 if unknown."""
        return self._connections.features.get(name, 0)

    # Calls

    def call(self, node_id: int, call: Call) -> None:
        """Send a request; `call.on_done` is called exactly once, possibly before this returns.

        Args:
            node_id: Id of the node; ANY_NODE or CONTROLLER are allowed.
            call: The request and its callback.
        """
        if self._closed:
            call.on_done(None, ClientClosedError("the client is closed"))
        elif node_id == ANY_NODE:
            _AnyNodeCall(self._connections, self._candidates(), self._bootstrap, call).next()
        else:
            wanted = self.metadata.controller_id if node_id == CONTROLLER else node_id
            info = self.metadata.nodes.get(wanted)
            if info is not None:
                self._connections.call(info, call)
            elif node_id == CONTROLLER:
                self.call(ANY_NODE, call)
            else:
                self.request_update()
                error = DisconnectedError(f"node {node_id}", "metadata does not name this broker")
                call.on_done(None, error)

    def call_coordinator(self, node_id: int, call: Call) -> None:
        """Send a request like `call`, but over a separate connection for coordinator requests.

        Apache Kafka handles the requests of a connection one after the other. On a shared
        connection a fetch that waits for data would delay heartbeats, and a pending JoinGroup would
        block fetches.
        """
        info = self.metadata.nodes.get(node_id)
        if info is None or self._closed:
            self.call(node_id, call)
        else:
            self._connections.call(replace(info, id=_COORDINATOR_IDS - node_id), call)

    def _candidates(self) -> list[NodeInfo]:
        """Return the nodes to try for a call to any node: connected, then known, then bootstrap.

        The order rotates with each call, because a broker that is partitioned from the others
        returns old metadata.
        """
        infos = list(self.metadata.nodes.values())
        if infos:
            self._first_candidate = (self._first_candidate + 1) % len(infos)
            infos = infos[self._first_candidate :] + infos[: self._first_candidate]
        known = {info.address for info in infos}
        infos += [info for info in self._bootstrap if info.address not in known]
        connections = self._connections
        return sorted(
            infos,
            key=lambda info: (not connections.is_ready(info), connections.is_backing_off(info)),
        )

    @property
    def unreachable(self) -> UnreachableBrokerError | None:
        """Error of a broker that metadata names and that has never responded there, or None."""
        addresses = {info.address for info in self.metadata.nodes.values()}
        found = self._connections.unreachable
        return next((found[address] for address in found if address in addresses), None)

    @property
    def outage(self) -> NoBrokersError | None:
        """Why the last attempt reached no broker at all; None after any broker has responded."""
        return self._connections.outage

    # Metadata

    def on_update(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every metadata refresh, including failed ones."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Undo `on_update`."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def refresh(
        self, topics: Iterable[str] | None, on_done: Callable[[None, ClientError | None], None]
    ) -> None:
        """Request metadata of `topics` and the tracked topics, once and without retries.

        The caller decides about retries. Errors of single topics are in `metadata.errors`.

        Args:
            topics: Names of topics; None for all topics.
            on_done: Called with None and an error or None.
        """
        self._waiting.append(_Refresh(None if topics is None else set(topics), on_done))
        self._maybe_refresh()

    def refresh_by_id(
        self,
        topic_ids: Iterable[bytes],
        on_done: Callable[[None, ClientError | None], None],
    ) -> None:
        """Request metadata of topics by id, once, when their names are unknown (KIP-516)."""
        requested = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids]

        def build(_version: int) -> Message:
            return MetadataRequest(topics=requested, allow_auto_topic_creation=False)

        def on_response(response: Message | None, error: ClientError | None) -> None:
            if response is not None:
                assert isinstance(response, MetadataResponse)
                if response.error_code:
                    error = broker_error(response.error_code, "metadata of the cluster")
                else:
                    self.metadata.update(response, ())
            on_done(None, error)

        self.call(ANY_NODE, Call(ApiKey.METADATA, build, on_response))

    def request_update(self) -> None:
        """Schedule a refresh of the tracked topics, because known metadata proved to be wrong."""
        if self._update_retry.is_scheduled or self._closed:
            return
        backoff_ms = self.retry_backoff.delay_ms(self._update_retry.failures)
        elapsed_ms = self.runtime.clock.monotonic_ms() - self._refreshed_ms
        self._update_retry.start(max(0.0, backoff_ms - elapsed_ms), self._update_now)

    def maybe_update_by_age(self) -> None:
        """Schedule a refresh if the metadata is older than metadata.max.age.ms."""
        age_ms = self.runtime.clock.monotonic_ms() - self._refreshed_ms
        if age_ms >= self.config.metadata_max_age_ms:
            self.request_update()

    def _update_now(self) -> None:
        self.refresh((), lambda _none, _error: None)

    def _maybe_refresh(self) -> None:
        if self._refreshing or not self._waiting:
            return
        served, self._waiting = self._waiting, []
        self._refreshing = True
        topics: set[str] | None = set(self.tracked)
        for refresh in served:
            if refresh.topics is None or topics is None:
                topics = None
            else:
                topics |= refresh.topics

        def build(version: int) -> Message:
            return _metadata_request(topics, version, auto=self.allow_auto_creation)

        def on_done(response: Message | None, error: ClientError | None) -> None:
            self._on_refreshed(served, topics, response, error)

        self.call(ANY_NODE, Call(ApiKey.METADATA, build, on_done))

    def _on_refreshed(
        self,
        served: list[_Refresh],
        topics: set[str] | None,
        response: Message | None,
        error: ClientError | None,
    ) -> None:
        self._refreshing = False
        self._refreshed_ms = self.runtime.clock.monotonic_ms()
        if response is not None:
            assert isinstance(response, MetadataResponse)
            if response.error_code:
                error = broker_error(response.error_code, "metadata of the cluster")
            else:
                self.metadata.update(response, topics)
                self._close_unnamed()
        if error is None:
            self._update_retry.reset()
        else:
            self._update_retry.count_failure()
        for refresh in served:
            if error is not None:
                refresh.on_done(None, error)
            else:
                deliver_response(refresh.on_done, None, ApiKey.METADATA.name, "cluster")
        for listener in list(self._listeners):
            with LogUserErrors(listener, "listener of metadata"):
                listener()
        self._maybe_refresh()

    def _close_unnamed(self) -> None:
        """Close the bootstrap connections once the metadata contains brokers."""
        if self.metadata.nodes:
            for info in self._bootstrap:
                self._connections.drop_when_unused(info.id)

    def close(self) -> None:
        """Close all connections; calls in flight end with `ClientClosedError`."""
        self._closed = True
        self._connections.close()


class _Refresh:
    """A caller that waits for a metadata refresh."""

    __slots__ = ("on_done", "topics")

    def __init__(
        self, topics: set[str] | None, on_done: Callable[[None, ClientError | None], None]
    ) -> None:
        self.topics = topics
        self.on_done = on_done


class _AnyNodeCall:
    """Tries one broker after another until one responds, and records each failed attempt."""

    __slots__ = ("_attempts", "_bootstrap", "_call", "_connections", "_infos", "_may_retry")

    def __init__(
        self,
        connections: Connections,
        infos: list[NodeInfo],
        bootstrap: list[NodeInfo],
        call: Call,
    ) -> None:
        self._connections = connections
        self._infos = infos
        self._bootstrap = bootstrap
        self._call = call
        self._attempts: list[tuple[str, str]] = []
        # Whether an attempt failed for a reason that may pass.
        self._may_retry = not infos

    def next(self) -> None:
        if not self._infos:
            servers = [info.address for info in self._bootstrap]
            error = NoBrokersError(servers, self._attempts)
            # Certificates do not change while the client waits.
            error.retriable = self._may_retry
            self._connections.note_outage(error)
            self._call.on_done(None, error)
            return
        info = self._infos.pop(0)

        def on_done(response: Message | None, error: ClientError | None) -> None:
            if isinstance(error, DisconnectedError):
                named = "" if info.id < 0 else f" (broker {info.id} as metadata names it)"
                self._attempts.append((info.address + named, error.reason))
                self._may_retry = self._may_retry or error.retriable
                self.next()
            else:
                self._call.on_done(response, error)

        self._connections.call(info, self._call._replace(on_done=on_done))


def _metadata_request(topics: set[str] | None, version: int, *, auto: bool) -> MetadataRequest:
    requested = None
    if topics is not None:
        requested = [MetadataRequestTopic(name=name) for name in sorted(topics)]
    return MetadataRequest(
        topics=requested, allow_auto_topic_creation=auto if version >= 4 else True
    )
