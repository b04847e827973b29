"""Probes that show which nodes respond: a single request on a connection of its own.

All voters of the metadata quorum are probed in parallel, to name those that do not respond.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.network.channel import Channel
from barnabas.protocol.messages.connection import ApiVersionsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.network.channel import ChannelDependencies
    from barnabas.network.network_error import NetworkError
    from barnabas.protocol.schema import Message

    # Host and port of a voter; None if they are unknown.
    VoterAddress = tuple[str, int] | None


# Timeout of the connection, and again of the response.
PROBE_MS = 1_000.0


def send_once(
    dependencies: ChannelDependencies,
    address: tuple[str, int],
    request: Message,
    version: int,
    timeout_ms: float,
    on_result: Callable[[Any, NetworkError | None], None],
) -> None:
    """Connect, send a request, and close the connection after the response.

    Args:
        dependencies: dependencies of the connection.
        address: host and port.
        request: any request with a response.
        version: version of the request. No ApiVersions request is sent before it.
        timeout_ms: timeout of the connection, and again of the response.
        on_result: called once with the response and None, or with None and the error.
    """
    channel = Channel(dependencies, None, lambda *_: None)

    def on_connected(error: NetworkError | None) -> None:
        if error is None:
            channel.send(request, version, on_response, timeout_ms)
        else:
            on_result(None, error)

    def on_response(response: Any, error: NetworkError | None) -> None:
        channel.close()
        on_result(response, error)

    channel.connect(*address, timeout_ms, on_connected)


def probe(
    dependencies: ChannelDependencies,
    host: str,
    port: int,
    on_result: Callable[[NetworkError | None], None],
) -> None:
    """Connect and send ApiVersions, then call `on_result` with the error, or None after a response.

    An accepted connection is not enough: a proxy or load balancer may accept connections for a node
    that is down.
    """
    send_once(
        dependencies,
        (host, port),
        ApiVersionsRequest(),
        0,
        PROBE_MS,
        lambda _, error: on_result(error),
    )


def find_silent_voters(
    dependencies: ChannelDependencies,
    voters: Mapping[int, VoterAddress],
    on_done: Callable[[list[str]], None],
) -> None:
    """Probe all voters, and report the silent ones once each probe has a result.

    A voter whose process is paused accepts the connection, and is silent when the time for its
    response is over.

    Args:
        dependencies: dependencies of the probes' channels.
        voters: addresses by node id. Voters with an unknown address count as silent.
        on_done: called once with the silent voters in the order of their ids, as "ID at HOST:PORT".
            The call comes at most twice `PROBE_MS` later, and before this returns if there is
            nothing to probe.
    """
    _Round(voters, on_done).start(dependencies)


class _Round:
    """One probe of each voter."""

    __slots__ = ("_on_done", "_pending", "_silent", "_voters")

    def __init__(
        self, voters: Mapping[int, VoterAddress], on_done: Callable[[list[str]], None]
    ) -> None:
        self._voters = voters
        self._on_done = on_done
        # Voters without a result yet, by id. The round ends when it is empty.
        self._pending = set(voters)
        self._silent: dict[int, str] = {}

    def start(self, dependencies: ChannelDependencies) -> None:
        if not self._pending:
            self._on_done([])
        for voter, address in self._voters.items():
            if address is None:
                self._on_result(voter, f"{voter} (address unknown)")
            else:
                host, port = address
                on_result = partial(self._on_probed, voter, f"{voter} at {host}:{port}")
                probe(dependencies, host, port, on_result)

    def _on_probed(self, voter: int, name: str, error: NetworkError | None) -> None:
        self._on_result(voter, None if error is None else name)

    def _on_result(self, voter: int, silent_name: str | None) -> None:
        assert voter in self._pending, f"voter {voter} has a result already"
        self._pending.remove(voter)
        if silent_name is not None:
            self._silent[voter] = silent_name
        if not self._pending:
            self._on_done([name for _, name in sorted(self._silent.items())])
