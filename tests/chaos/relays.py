"""Relays between the nodes of a cluster, whose links a test cuts, stalls and delays.

Each listener that nodes reach each other at has a relay before it, and its advertised address is
the relay's. Who has connected is found by the port: of which node's process is the socket (/proc).
So a link is a pair of nodes, whoever of them connects.

cut      connections end at once, and new ones too (a cable pulled, with a switch that says so)
stall    connections stay, new ones are made, and no byte passes (a router that drops)
delay    bytes pass later
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import uvloop

Address = tuple[str, int]
HOST = "127.0.0.1"
# Bytes that a relay holds per direction before it stops reading.
HELD_BYTES_MAX = 4 * 1024 * 1024
# A limit for what hangs.
CALL_TIMEOUT_S = 90.0
_ESTABLISHED_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


@dataclass
class Link:
    """How two nodes reach each other now."""

    is_cut: bool = False
    is_stalled: bool = False
    delay_ms: float = 0.0


class Relays:
    """A `Network` for `ClusterProcess`; its own thread moves the bytes.

    Args:
        pids: process id of each running node, asked whenever a connection comes in.
    """

    def __init__(self, pids: Callable[[], dict[int, int]] = dict) -> None:
        self.pids = pids
        self.loop = uvloop.new_event_loop()
        # Of all pairs of nodes that are not as usual.
        self._links: dict[frozenset[int], Link] = {}
        self._pairs: set[_Pair] = set()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def relayed(self, node_id: int, listener: str, address: Address) -> Address:
        """Open a relay before a listener; returns where it listens."""

        async def listen() -> Address:
            server = await self.loop.create_server(
                lambda: _Incoming(self, node_id, address), HOST, 0
            )
            self._servers.append(server)
            return HOST, server.sockets[0].getsockname()[1]

        return asyncio.run_coroutine_threadsafe(listen(), self.loop).result(CALL_TIMEOUT_S)

    def cut(self, one: int, other: int) -> None:
        """End all connections between two nodes, and every new one."""
        self._change(one, other, is_cut=True)

    def stall(self, one: int, other: int) -> None:
        """Let no byte pass between two nodes; connections stay."""
        self._change(one, other, is_stalled=True)

    def delay(self, one: int, other: int, delay_ms: float) -> None:
        """Let bytes between two nodes pass later, in either direction."""
        self._change(one, other, delay_ms=delay_ms)

    def isolate(self, node: int, others: Iterable[int], *, stalled: bool = False) -> None:
        """Cut (or stall) a node's links to the others."""
        for other in others:
            if other != node:
                self.stall(node, other) if stalled else self.cut(node, other)

    def heal(self) -> None:
        """All links are as usual again; what was stalled passes now."""

        def work() -> None:
            self._links.clear()
            for pair in list(self._pairs):
                pair.apply(Link())

        self._call(work)

    def connections(self) -> list[tuple[int, int]]:
        """(who connected, to whom) of every connection there is."""
        found: list[tuple[int, int]] = []
        self._call(lambda: found.extend((pair.source, pair.target) for pair in self._pairs))
        return sorted(found)

    def close(self) -> None:
        """End everything."""

        def work() -> None:
            for server in self._servers:
                server.close()
            for pair in list(self._pairs):
                pair.abort()

        self._call(work)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CALL_TIMEOUT_S)
        self.loop.close()

    def _change(self, one: int, other: int, **changes: Any) -> None:
        def work() -> None:
            ends = frozenset((one, other))
            link = self._links.setdefault(ends, Link())
            for name, value in changes.items():
                setattr(link, name, value)
            for pair in list(self._pairs):
                if pair.ends == ends:
                    pair.apply(link)

        self._call(work)

    def _call(self, work: Callable[[], None]) -> None:
        """Run on the relays' thread, and wait for it."""
        done = threading.Event()

        def run() -> None:
            try:
                work()
            finally:
                done.set()

        self.loop.call_soon_threadsafe(run)
        assert done.wait(CALL_TIMEOUT_S), "the relays do not answer"

    # What follows runs on the relays' thread.

    def link(self, ends: frozenset[int]) -> Link:
        """How two nodes reach each other."""
        return self._links.get(ends) or Link()

    def open(self, incoming: _Incoming, target: int, address: Address) -> None:
        """A connection came in: to be led on, unless its link is cut."""
        transport = incoming.transport
        assert transport is not None
        source = self._source(transport)
        pair = _Pair(self, source, target, incoming)
        incoming.pair = pair
        # One whose socket is gone already cannot be told to which link it belongs.
        if source == 0 or self.link(pair.ends).is_cut:
            pair.abort()
            return
        self._pairs.add(pair)
        pair.connecting = self.loop.create_task(self._connect(pair, address))

    async def _connect(self, pair: _Pair, address: Address) -> None:
        outgoing = _End()
        outgoing.pair = pair
        try:
            await self.loop.create_connection(lambda: outgoing, *address)
        except OSError:
            pair.abort()
            return
        pair.connected(outgoing)
        pair.apply(self.link(pair.ends))

    def forget(self, pair: _Pair) -> None:
        """A pair has ended."""
        self._pairs.discard(pair)

    def _source(self, transport: asyncio.Transport) -> int:
        """The node that has connected; 0 if its process is not found."""
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        inode = _inode_of(peer[1], own[1])
        if inode is None:
            return 0
        for node, pid in self.pids().items():
            if _has_socket(pid, inode):
                return node
        return 0


class _End(asyncio.Protocol):
    """One side of a relayed connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.pair: _Pair | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.pair is not None:
            self.pair.on_data(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.pair is not None:
            self.pair.on_lost(self)


class _Incoming(_End):
    """The side that connected."""

    def __init__(self, relays: Relays, target: int, address: Address) -> None:
        super().__init__()
        self._relays = relays
        self._target = target
        self._address = address

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._relays.open(self, self._target, self._address)


class _Flow:
    """One direction: what is held, and when it may pass (seconds of the loop)."""

    def __init__(self) -> None:
        self.held: deque[tuple[float, bytes]] = deque()
        self.held_bytes = 0
        self.is_scheduled = False
        # Its sender has ended: the receiver hears of it behind what is held.
        self.has_ended = False


class _Pair:
    """A connection and its continuation."""

    def __init__(self, relays: Relays, source: int, target: int, incoming: _End) -> None:
        self._relays = relays
        self.source = source
        self.target = target
        self.ends = frozenset((source, target))
        self._incoming = incoming
        self._outgoing: _End | None = None
        self._link = Link()
        # By the side that receives.
        self._flows: dict[bool, _Flow] = {True: _Flow(), False: _Flow()}
        self.connecting: asyncio.Task[None] | None = None
        self._loop = relays.loop

    def connected(self, outgoing: _End) -> None:
        self._outgoing = outgoing

    def apply(self, link: Link) -> None:
        """The link has changed."""
        if link.is_cut:
            self.abort()
            return
        self._link = link
        for to_target in (True, False):
            self._release(to_target)

    def on_data(self, end: _End, data: bytes) -> None:
        to_target = end is self._incoming
        flow = self._flows[to_target]
        due = self._loop.time() + self._link.delay_ms / 1000
        flow.held.append((due, data))
        flow.held_bytes += len(data)
        if flow.held_bytes > HELD_BYTES_MAX and end.transport is not None:
            end.transport.pause_reading()
        self._release(to_target)

    def on_lost(self, end: _End) -> None:
        """One side has ended: so does the other, once it has what was sent before."""
        to_target = end is self._incoming
        self._flows[to_target].has_ended = True
        self._release(to_target)

    def _release(self, to_target: bool) -> None:
        flow = self._flows[to_target]
        receiver = self._outgoing if to_target else self._incoming
        if receiver is None or receiver.transport is None or flow.is_scheduled:
            return
        if receiver.transport.is_closing():
            # It ended while its link was stalled: now its sender hears of it.
            self.abort()
            return
        if self._link.is_stalled:
            return
        now = self._loop.time()
        while flow.held and flow.held[0][0] <= now + 0.0005:
            data = flow.held.popleft()[1]
            flow.held_bytes -= len(data)
            receiver.transport.write(data)
        if flow.held:
            flow.is_scheduled = True
            self._loop.call_later(flow.held[0][0] - now, self._on_due, to_target)
        elif flow.has_ended:
            receiver.transport.close()
            self._relays.forget(self)
        if flow.held_bytes <= HELD_BYTES_MAX:
            sender = self._incoming if to_target else self._outgoing
            if (
                sender is not None
                and sender.transport is not None
                and not flow.has_ended
                and not sender.transport.is_closing()
            ):
                sender.transport.resume_reading()

    def _on_due(self, to_target: bool) -> None:
        self._flows[to_target].is_scheduled = False
        self._release(to_target)

    def abort(self) -> None:
        """End both sides at once, whatever is held."""
        self._relays.forget(self)
        if self.connecting is not None:
            self.connecting.cancel()
        for end in (self._incoming, self._outgoing):
            if end is not None and end.transport is not None:
                end.pair = None
                end.transport.abort()


def _inode_of(local_port: int, remote_port: int) -> str | None:
    """The inode of a socket of this machine, by its ports."""
    local, remote = f":{local_port:04X}", f":{remote_port:04X}"
    for table in _ESTABLISHED_TABLES:
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if words[1].endswith(local) and words[2].endswith(remote):
                    return words[9]
    return None


def _has_socket(pid: int, inode: str) -> bool:
    wanted = f"socket:[{inode}]"
    directory = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            with contextlib.suppress(OSError):
                if os.readlink(f"{directory}/{name}") == wanted:
                    return True
    return False
