"""Finds the inode of a local TCP socket by its ports, to identify the process that owns it.

sock_diag over netlink (Linux) returns this one socket. Reading /proc/net/tcp is slow, 100 ms with
thousands of sockets, and is the fallback only where netlink is not permitted. A socket that the
kernel does not find was closed: to search for it in /proc/net/tcp would delay all new connections
of a test's relays.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path
from struct import Struct

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
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

    Args:
        address: the local IPv4 address of both ends.
        local_port: the port of the socket.
        remote_port: the port to which the socket is connected.
    """
    try:
        return _from_kernel(address, local_port, remote_port)
    except OSError:
        return _from_tables(local_port, remote_port)


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
