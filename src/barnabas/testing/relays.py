"""Relays between the nodes of a cluster, with which a test cuts, stalls and delays links.

Each listener has a relay in front of it, and the node advertises the address of the relay. A link
is a pair of node ids in either order; `CLIENTS` stands for all clients.

cut      connections are closed, and new connections too
stall    connections stay open and new ones are accepted, but no byte passes
delay    each byte passes some milliseconds later, in both directions

The relay finds the node that opened a connection by its port: in /proc on Linux, elsewhere by the
command `lsof`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from .cluster_process import CLIENT_LISTENER, Address
from .free_ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_HAS_NETLINK = hasattr(socket, "AF_NETLINK")
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_ANY_STATE = 0xFFFFFFFF
_NO_COOKIE = 0xFFFFFFFF
# struct nlmsghdr: length, type, flags, sequence, port id.
_HEADER = Struct("=IHHII")
# First field of struct nlmsgerr: the negative error number.
_ERROR = Struct("=i")
# First fields of struct inet_diag_req_v2: family, protocol, extensions, padding, states.
_REQUEST = Struct("=BBBBI")
# struct inet_diag_sockid: ports in network order, addresses of 16 bytes each.
_PORTS = Struct(">HH")
_INTERFACE_AND_COOKIE = Struct("=III")
# Last fields of struct inet_diag_msg: expires, receive queue, send queue, user, inode.
_RESPONSE = Struct("=IIIII")
_SOCKID_BYTES = 48
_BEFORE_RESPONSE = _HEADER.size + 4 + _SOCKID_BYTES


def socket_inode(address: str, local_port: int, remote_port: int) -> str | None:
    """Return the inode of a connected socket; None if there is no such socket.

    sock_diag over netlink (Linux) returns this one socket. Reading /proc/net/tcp is slow, 100 ms
    with thousands of sockets, and is the fallback only where netlink is not permitted. A socket
    that the kernel does not find was closed: to search for it in /proc/net/tcp would delay all new
    connections of a test's relays.

    Args:
        address: the local IPv4 address of both ends.
        local_port: the port of the socket.
        remote_port: the port to which the socket is connected.
    """
    try:
        return _from_kernel(address, local_port, remote_port)
    except OSError:
        return _from_tables(local_port, remote_port)


def connected_process(pids: Iterable[int], local_port: int, remote_port: int) -> int | None:
    """Return which of some processes has a connected socket with these ports, by `lsof`."""
    listed = ",".join(map(str, pids))
    words = ["lsof", "-nP", "-a", "-p", listed, f"-iTCP:{local_port}", "-Fn"]
    output = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    # A line "pPID" for each process, and a line "nHOST:PORT->HOST:PORT" for each socket.
    owner = None
    for line in output.splitlines():
        if line.startswith("p"):
            owner = int(line[1:])
        elif line == f"n{HOST}:{local_port}->{HOST}:{remote_port}":
            return owner
    return None


def _from_kernel(address: str, local_port: int, remote_port: int) -> str | None:
    """Ask the kernel for the socket.

    Raises:
        OSError: sock_diag is not available or not permitted.
    """
    ends = socket.inet_aton(address) + bytes(12)
    request = (
        _REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ANY_STATE)
        + _PORTS.pack(local_port, remote_port)
        + ends
        + ends
        + _INTERFACE_AND_COOKIE.pack(0, _NO_COOKIE, _NO_COOKIE)
    )
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        netlink.send(header + request)
        response = netlink.recv(4096)
    kind = _HEADER.unpack_from(response)[1]
    if kind == _NLMSG_ERROR:
        error = -_ERROR.unpack_from(response, _HEADER.size)[0]
        if error == errno.ENOENT:
            return None
        raise OSError(error, os.strerror(error))
    if kind != _SOCK_DIAG_BY_FAMILY or len(response) < _BEFORE_RESPONSE + _RESPONSE.size:
        return None
    if _PORTS.unpack_from(response, _HEADER.size + 4) != (local_port, remote_port):
        # Without a connected socket, the kernel returns a socket that listens on the port.
        return None
    inode = _RESPONSE.unpack_from(response, _BEFORE_RESPONSE)[4]
    return str(inode) if inode else None


def _from_tables(local_port: int, remote_port: int) -> str | None:
    local, remote = f":{local_port:04X}", f":{remote_port:04X}"
    for table in _TABLES:
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if words[1].endswith(local) and words[2].endswith(remote):
                    return words[9]
    return None


# Stands for all clients at one end of a link, in place of a node id.
CLIENTS = 0
_UNKNOWN = -1
# Bytes that a relay holds per direction before it stops reading.
HELD_BYTES_MAX = 4 * 1024 * 1024
# Only a limit for operations that hang.
CALL_TIMEOUT_S = 90.0


@dataclass
class Link:
    """The faults of the link between two nodes."""

    is_cut: bool = False
    is_stalled: bool = False
    delay_ms: float = 0.0


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of Barnabas, which relays bytes faster, where Barnabas is installed."""
    try:
        from barnabas.runtime.loop import new_loop
    except ImportError:
        return asyncio.new_event_loop()
    return new_loop()


class Relays:
    """A `Network` for `ClusterProcess`; its own thread moves the bytes.

    Args:
        pids: returns the process id of each running node, by node id. The thread of the relays
            calls it for each new connection between nodes.
        relays_clients: whether clients connect through relays too.
    """

    def __init__(
        self, pids: Callable[[], dict[int, int]] = dict, *, relays_clients: bool = False
    ) -> None:
        self.pids = pids
        self.relays_clients = relays_clients
        self.loop = _new_loop()
        # Links on which a fault was set since the last `heal`.
        self._links: dict[frozenset[int], Link] = {}
        self._pairs: set[_Pair] = set()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def relayed(self, node_id: int, listener: str, address: Address) -> Address:
        """Open a relay in front of a node's listener; return the address of the relay.

        Raises:
            OSError: no port is free.
        """
        is_for_clients = listener == CLIENT_LISTENER and self.relays_clients

        async def listen() -> Address:
            server: Any = await self.loop.create_server(
                lambda: _Incoming(self, _Target(node_id, address, is_for_clients)), HOST, 0
            )
            self._servers.append(server)
            return HOST, server.sockets[0].getsockname()[1]

        return asyncio.run_coroutine_threadsafe(listen(), self.loop).result(CALL_TIMEOUT_S)

    def cut(self, one: int, other: int) -> None:
        """Close all connections between two nodes, and every new one, until `heal`."""
        self._change(one, other, is_cut=True)

    def stall(self, one: int, other: int) -> None:
        """Stop all bytes between two nodes until `heal`; connections stay open."""
        self._change(one, other, is_stalled=True)

    def delay(self, one: int, other: int, delay_ms: float) -> None:
        """Delay all bytes between two nodes by `delay_ms`, in each direction."""
        self._change(one, other, delay_ms=delay_ms)

    def isolate(self, node: int, others: Iterable[int], *, stalled: bool = False) -> None:
        """Cut or stall the links between a node and `others`."""
        for other in others:
            if other != node:
                self.stall(node, other) if stalled else self.cut(node, other)

    def heal(self) -> None:
        """Remove the faults of all links; held bytes pass now."""

        def work() -> None:
            self._links.clear()
            for pair in list(self._pairs):
                pair.apply(Link())

        self._call(work)

    def connections(self) -> list[tuple[int, int]]:
        """Return (source, target) of each open connection, as node ids."""
        found: list[tuple[int, int]] = []
        self._call(lambda: found.extend((pair.source, pair.target) for pair in self._pairs))
        return sorted(found)

    def close(self) -> None:
        """Close all connections and listeners, and end the thread."""

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
        """Run `work` on the thread of the relays and wait for its end."""
        done = threading.Event()

        def run() -> None:
            try:
                work()
            finally:
                done.set()

        self.loop.call_soon_threadsafe(run)
        assert done.wait(CALL_TIMEOUT_S), "the relays do not respond"

    # All methods below run on the thread of the relays.

    def link(self, ends: frozenset[int]) -> Link:
        """Return the state of a link."""
        return self._links.get(ends) or Link()

    def open(self, incoming: _Incoming, target: _Target) -> None:
        """Connect an accepted connection to its target, unless their link is cut."""
        transport = incoming.transport
        assert transport is not None
        source = CLIENTS if target.is_for_clients else self._source(transport)
        pair = _Pair(self, _UNKNOWN if source is None else source, target.node_id, incoming)
        incoming.pair = pair
        # Without a source the link is unknown; the process may have closed its socket already.
        if source is None or self.link(pair.ends).is_cut:
            pair.abort()
            return
        self._pairs.add(pair)
        pair.connecting = self.loop.create_task(self._connect(pair, target.address))

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
        """Remove a pair that has ended."""
        self._pairs.discard(pair)

    def _source(self, transport: asyncio.Transport) -> int | None:
        """Return the node that opened the connection; None if its process is not found."""
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        pids = self.pids()
        if _HAS_NETLINK:
            inode = socket_inode(HOST, peer[1], own[1])
            owner = next((pid for pid in pids.values() if inode and _has_socket(pid, inode)), None)
        else:
            owner = connected_process(pids.values(), peer[1], own[1])
        return next((node for node, pid in pids.items() if pid == owner), None)


@dataclass(frozen=True)
class _Target:
    """The listener behind a relay."""

    node_id: int
    address: Address
    is_for_clients: bool


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

    def connection_lost(self, _error: Exception | None) -> None:
        if self.pair is not None:
            self.pair.on_lost(self)


class _Incoming(_End):
    """The side of the client or node that opened the connection."""

    def __init__(self, relays: Relays, target: _Target) -> None:
        super().__init__()
        self._relays = relays
        self._target = target

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._relays.open(self, self._target)


class _Flow:
    """One direction: held bytes, each with the loop time (s) at which it may pass."""

    def __init__(self) -> None:
        self.held: deque[tuple[float, bytes]] = deque()
        self.held_bytes = 0
        self.is_scheduled = False
        # Whether the sender closed its side; the receiver's side closes after the held bytes.
        self.has_ended = False


class _Pair:
    """A relayed connection: its incoming and its outgoing side."""

    def __init__(self, relays: Relays, source: int, target: int, incoming: _End) -> None:
        self._relays = relays
        self.source = source
        self.target = target
        self.ends = frozenset((source, target))
        self._incoming = incoming
        self._outgoing: _End | None = None
        self._link = Link()
        # Key: whether the flow goes to the target.
        self._flows: dict[bool, _Flow] = {True: _Flow(), False: _Flow()}
        self.connecting: asyncio.Task[None] | None = None
        self._loop = relays.loop

    def connected(self, outgoing: _End) -> None:
        self._outgoing = outgoing

    def apply(self, link: Link) -> None:
        """Apply the new state of the link."""
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
        """Close the other side as well, after all bytes sent before have passed."""
        to_target = end is self._incoming
        self._flows[to_target].has_ended = True
        self._release(to_target)

    def _release(self, to_target: bool) -> None:
        flow = self._flows[to_target]
        receiver = self._outgoing if to_target else self._incoming
        if receiver is None or receiver.transport is None or flow.is_scheduled:
            return
        if receiver.transport.is_closing():
            # The receiver closed while its link was stalled: now the sender is closed too.
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
        """Close both sides at once and drop held bytes."""
        self._relays.forget(self)
        if self.connecting is not None:
            self.connecting.cancel()
        for end in (self._incoming, self._outgoing):
            if end is not None and end.transport is not None:
                end.pair = None
                end.transport.abort()


def _has_socket(pid: int, inode: str) -> bool:
    wanted = f"socket:[{inode}]"
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if str(entry.readlink()) == wanted:
                    return True
    return False
