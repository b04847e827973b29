"""Check of the cluster id against other controllers, by DescribeCluster requests (KIP-919).

A node with a wrong `cluster.id` would wait forever, because the controllers reject its requests.
The node therefore sends the requests before it formats an empty directory. After the start it
repeats them until it has joined the quorum.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.protocol.messages.metadata import DescribeClusterRequest
from barnabas.server.listeners.endpoint_type import CONTROLLERS
from barnabas.server.quorum.probes import send_once
from barnabas.server.startup.node_failure import NodeFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.network.channel import ChannelDependencies
    from barnabas.network.network_error import NetworkError
    from barnabas.runtime.clock import Cancellable
    from barnabas.server.configs.configuration import Configuration

_log = logging.getLogger(__name__)

# First version of DescribeCluster that controllers support.
_VERSION = 1
# Timeout for the connection to a controller, and again for its response.
_RESPONSE_MS = 400.0
# Pauses between rounds after the start. The first one is short so that a node that cannot join the
# quorum ends quickly.
_FIRST_PAUSE_MS = 250.0
_PAUSE_MS_MAX = 5_000.0


class Controller(msgspec.Struct, frozen=True):
    """A controller of the configuration: a static voter, or a bootstrap server."""

    # The address, after "ID at " if the configuration has the node id.
    name: str
    host: str
    port: int


class ClusterIds(msgspec.Struct, frozen=True):
    """Result of one round of requests."""

    # Cluster id by controller name. Controllers without a response are missing.
    by_controller: dict[str, str]

    def others_than(self, cluster_id: str | None) -> dict[str, list[str]]:
        """Return the names of the controllers of each other cluster, by the cluster's id."""
        found: dict[str, list[str]] = {}
        for name, controller_cluster_id in sorted(self.by_controller.items()):
            if controller_cluster_id != cluster_id:
                found.setdefault(controller_cluster_id, []).append(name)
        return found


def other_controllers(configuration: Configuration) -> list[Controller]:
    """Return all controllers that the configuration names, without this node."""
    cluster = configuration.cluster
    if cluster.voters:
        return [
            Controller(f"{voter} at {host}:{port}", host, port)
            for voter, (host, port) in sorted(cluster.voters.items())
            if voter != cluster.node_id
        ]
    own = {(each.host, each.port) for each in configuration.advertised_controller_endpoints}
    return [
        Controller(f"{host}:{port}", host, port)
        for host, port in cluster.bootstrap_servers
        if (host, port) not in own
    ]


def fetch_cluster_ids(
    dependencies: ChannelDependencies,
    controllers: Sequence[Controller],
    on_done: Callable[[ClusterIds], None],
) -> None:
    """Send DescribeCluster to all controllers in parallel, and call `on_done` with the results.

    Args:
        dependencies: dependencies of the connections.
        controllers: at least one controller.
        on_done: called once, after every controller has responded or failed. Never called before
            this function returns.
    """
    assert controllers
    found: dict[str, str] = {}
    pending = {each.name for each in controllers}

    def end(controller: Controller, response: Any, error: NetworkError | None) -> None:
        if error is None and not response.error_code and response.cluster_id:
            found[controller.name] = response.cluster_id
        pending.discard(controller.name)
        if not pending:
            on_done(ClusterIds(found))

    for each in controllers:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=CONTROLLERS
        )
        address = each.host, each.port
        send_once(dependencies, address, request, _VERSION, _RESPONSE_MS, partial(end, each))


def check_before_format(found: ClusterIds, path: str, cluster_id: str | None) -> None:
    """Check that an empty directory is not formatted for the wrong cluster.

    Args:
        found: responses of the controllers. If there are none, formatting is allowed, because the
            first controllers of a new cluster cannot reach each other.
        path: the empty directory of the metadata log.
        cluster_id: `cluster.id`, or None if it is not set.

    Raises:
        NodeFailedError: a controller belongs to another cluster, and no controller belongs to this
            cluster.
    """
    others = found.others_than(cluster_id)
    if not others or cluster_id in found.by_controller.values():
        return
    own_setting = (
        "cluster.id is not set" if cluster_id is None else f"this node has cluster.id={cluster_id}"
    )
    raise NodeFailedError(
        f"{_listed(others)}, and {own_setting}. {path} is empty and was not formatted. "
        f"{_remedy(others)}; if the node belongs to another cluster, correct "
        f"controller.quorum.voters or controller.quorum.bootstrap.servers"
    )


class ClusterIdCheck:
    """Requests the cluster id of the other controllers until this node has joined the quorum.

    A node without metadata records fails if a controller has another cluster id and no controller
    has the same one. A node with records fails only if more than half of the other controllers have
    another cluster id. One misconfigured controller must not stop the others.
    """

    def __init__(
        self,
        dependencies: ChannelDependencies,
        controllers: Sequence[Controller],
        directory: tuple[str, str, bool],
        has_joined: Callable[[], bool],
        on_failed: Callable[[NodeFailedError], None],
    ) -> None:
        """Create the cluster id check.

        Args:
            dependencies: dependencies of the connections.
            controllers: the other controllers.
            directory: path and cluster id of the metadata log's directory, and whether it is new.
            has_joined: returns whether this node has contact with the quorum.
            on_failed: called once if this node belongs to another cluster.
        """
        self._dependencies = dependencies
        self._controllers = controllers
        self._path, self._cluster_id, self._is_new = directory
        self._has_joined = has_joined
        self._on_failed = on_failed
        # Pause (ms) before the next round. It doubles with each round.
        self._pause_ms = _FIRST_PAUSE_MS
        # Timer of the next round. None during a round and at the end.
        self._timer: Cancellable | None = None
        self._is_stopped = False
        # Controllers of other clusters that were already logged.
        self._reported: set[str] = set()

    def start(self) -> None:
        """Send the requests now, and again until the node has joined or `stop` is called."""
        self._check()

    def stop(self) -> None:
        """Send no more requests."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if not self._has_joined():
            fetch_cluster_ids(self._dependencies, self._controllers, self._on_found)

    def _on_found(self, found: ClusterIds) -> None:
        if self._is_stopped:
            return
        others = found.others_than(self._cluster_id)
        different = [name for names in others.values() for name in names]
        same = len(found.by_controller) - len(different)
        if different and self._belongs_elsewhere(len(different), same):
            self.stop()
            self._on_failed(NodeFailedError(self._failure(others)))
            return
        if set(different) - self._reported:
            self._reported |= set(different)
            _log.warning("%s, and this node belongs to %s", _listed(others), self._cluster_id)
        if same == len(self._controllers):
            return
        self._timer = self._dependencies.timer.call_later(self._pause_ms, self._check)
        self._pause_ms = min(2 * self._pause_ms, _PAUSE_MS_MAX)

    def _belongs_elsewhere(self, different: int, same: int) -> bool:
        if self._is_new:
            return same == 0
        return 2 * different > len(self._controllers)

    def _failure(self, others: dict[str, list[str]]) -> str:
        if self._is_new:
            return (
                f"{_listed(others)}, and {self._path} was formatted for {self._cluster_id} while "
                f"no controller responded. It has no records yet: empty it. {_remedy(others)}"
            )
        return (
            f"{_listed(others)}, and {self._path} belongs to {self._cluster_id}. Use this node's "
            f"data directory of that cluster, or correct controller.quorum.voters or "
            f"controller.quorum.bootstrap.servers"
        )


def _listed(others: dict[str, list[str]]) -> str:
    parts = (
        f"{'controllers' if len(names) > 1 else 'controller'} {', '.join(names)} "
        f"{'belong' if len(names) > 1 else 'belongs'} to cluster {cluster_id}"
        for cluster_id, names in others.items()
    )
    return ", ".join(parts)


def _remedy(others: dict[str, list[str]]) -> str:
    if len(others) > 1:
        return "Find out which of these clusters is the right one, and set its cluster.id"
    return f"To join that cluster set cluster.id={next(iter(others))}"
