"""The cluster as the client reaches it: one node object per broker, bootstrap, fresh metadata.

Calls go to a node by id, to the controller, or to any node that answers. Metadata is refreshed by
one request at a time; who asks while one is under way gets the next.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.client.backoff import Backoff
from barnabas.client.connections import Call, Connections
from barnabas.client.errors import (
    ClientClosedError,
    ClientError,
    DisconnectedError,
    NoBrokersError,
    broker_error,
)
from barnabas.client.handing_over import hand_over
from barnabas.client.metadata_cache import MetadataCache, NodeInfo
from barnabas.client.shielded import Shielded
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
# Ids of the connections to coordinators: this less the node's id, as Kafka's clients count.
_COORDINATOR_IDS = 2**31 - 1


class Cluster:
    """Nodes and metadata, shared by fetchers, producers and admin calls."""

    def __init__(self, runtime: Runtime, config: ClientConfig) -> None:
        self.runtime = runtime
        self.config = config
        self.metadata = MetadataCache()
        self.retry_backoff = Backoff(
            runtime.rng, config.retry_backoff_ms, config.retry_backoff_max_ms
        )
        # Topics that refreshes ask for beside those of the caller: what fetchers and producers use.
        self.tracked: set[str] = set()
        # Whether the broker may create tracked topics; producers turn it on.
        self.allow_auto_creation = config.allow_auto_create_topics
        self._connections = Connections(runtime, config)
        # Negative ids: metadata has not named them.
        self._bootstrap = [
            NodeInfo(-1 - index, host, port)
            for index, (host, port) in enumerate(config.bootstrap_servers)
        ]
        self._waiting: list[_Refresh] = []
        self._refreshing = False
        # A refresh that nobody waits for is planned: on a timer, not before the back-off is over.
        self._update_planned = False
        self._refresh_failures = 0
        self._refreshed_ms = 0.0
        self._listeners: list[Callable[[], None]] = []
        # Which of the known nodes is tried first by a call that any can answer.
        self._first_candidate = 0
        self._closed = False

    def feature_level(self, name: str) -> int:
        """The level of a feature that the cluster has finalised, as brokers told; 0 without."""
        return self._connections.features.get(name, 0)

    # Calls

    def call(self, node_id: int, call: Call) -> None:
        """Send a request; `call.on_done` is called exactly once, maybe before this returns."""
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
        """As `call`, over a connection to the node that only coordinators' calls take.

        Apache Kafka handles the requests of a connection one after the other: behind a fetch that
        waits for data heartbeats would be late, and fetches would stand still behind a join.
        """
        info = self.metadata.nodes.get(node_id)
        if info is None or self._closed:
            self.call(node_id, call)
        else:
            self._connections.call(replace(info, id=_COORDINATOR_IDS - node_id), call)

    def _candidates(self) -> list[NodeInfo]:
        """Brokers to try for a call that any can answer: connected, then known, then bootstrap.

        Another one goes first each time: who is cut off from the rest answers with what was.
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
        """A broker that metadata names and that has never answered there, if there is one."""
        addresses = {info.address for info in self.metadata.nodes.values()}
        found = self._connections.unreachable
        return next((found[address] for address in found if address in addresses), None)

    @property
    def outage(self) -> NoBrokersError | None:
        """Why no broker at all was reached, as of the last attempt; None since one answered."""
        return self._connections.outage

    # Metadata

    def on_update(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every metadata answer."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Undo `on_update`."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def refresh(
        self, topics: Iterable[str] | None, on_done: Callable[[None, ClientError | None], None]
    ) -> None:
        """Ask for the metadata of `topics` (None: all) and the tracked ones, once.

        No retry here: what is worth one is the caller's to know. Errors of single topics are in
        `metadata.errors`.
        """
        self._waiting.append(_Refresh(None if topics is None else set(topics), on_done))
        self._maybe_refresh()

    def refresh_by_id(
        self,
        topic_ids: Iterable[bytes],
        on_done: Callable[[None, ClientError | None], None],
    ) -> None:
        """Ask once for the topics of these ids, whose names are not known (KIP-516)."""
        asked = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids]

        def build(_version: int) -> Message:
            return MetadataRequest(topics=asked, allow_auto_topic_creation=False)

        def on_answer(response: Message | None, error: ClientError | None) -> None:
            if response is not None:
                assert isinstance(response, MetadataResponse)
                if response.error_code:
                    error = broker_error(response.error_code, "metadata of the cluster")
                else:
                    self.metadata.update(response, ())
            on_done(None, error)

        self.call(ANY_NODE, Call(ApiKey.METADATA, build, on_answer))

    def request_update(self) -> None:
        """Have the tracked topics refreshed soon: something that was known proved wrong."""
        if self._update_planned or self._closed:
            return
        self._update_planned = True
        backoff_ms = self.retry_backoff.delay_ms(self._refresh_failures)
        elapsed_ms = self.runtime.clock.monotonic_ms() - self._refreshed_ms
        self.runtime.timer.call_later(max(0.0, backoff_ms - elapsed_ms), self._update_now)

    def maybe_update_by_age(self) -> None:
        """Plan a refresh if what is known is older than metadata.max.age.ms."""
        age_ms = self.runtime.clock.monotonic_ms() - self._refreshed_ms
        if age_ms >= self.config.metadata_max_age_ms:
            self.request_update()

    def _update_now(self) -> None:
        self._update_planned = False
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
        self._refresh_failures = self._refresh_failures + 1 if error is not None else 0
        for refresh in served:
            if error is not None:
                refresh.on_done(None, error)
            else:
                hand_over(refresh.on_done, None, ApiKey.METADATA.name, "cluster")
        for listener in list(self._listeners):
            with Shielded(listener, "listener of metadata"):
                listener()
        self._maybe_refresh()

    def _close_unnamed(self) -> None:
        """Close the bootstrap connections once metadata names brokers to talk to."""
        if self.metadata.nodes:
            for info in self._bootstrap:
                self._connections.drop_when_unused(info.id)

    def close(self) -> None:
        """Close all connections; calls under way end with `ClientClosedError`."""
        self._closed = True
        self._connections.close()


class _Refresh:
    """A caller that waits for fresh metadata."""

    __slots__ = ("on_done", "topics")

    def __init__(
        self, topics: set[str] | None, on_done: Callable[[None, ClientError | None], None]
    ) -> None:
        self.topics = topics
        self.on_done = on_done


class _AnyNodeCall:
    """Tries one broker after the other until one answers, and says of each what became of it."""

    __slots__ = ("_attempts", "_bootstrap", "_call", "_connections", "_infos")

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

    def next(self) -> None:
        if not self._infos:
            servers = [info.address for info in self._bootstrap]
            error = NoBrokersError(servers, self._attempts)
            self._connections.note_outage(error)
            self._call.on_done(None, error)
            return
        info = self._infos.pop(0)

        def on_done(response: Message | None, error: ClientError | None) -> None:
            if isinstance(error, DisconnectedError):
                named = "" if info.id < 0 else f" (broker {info.id} as metadata names it)"
                self._attempts.append((info.address + named, error.reason))
                self.next()
            else:
                self._call.on_done(response, error)

        self._connections.call(info, self._call._replace(on_done=on_done))


def _metadata_request(topics: set[str] | None, version: int, *, auto: bool) -> MetadataRequest:
    asked = None
    if topics is not None:
        asked = [MetadataRequestTopic(name=name) for name in sorted(topics)]
    return MetadataRequest(topics=asked, allow_auto_topic_creation=auto if version >= 4 else True)
