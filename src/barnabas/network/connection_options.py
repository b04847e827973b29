"""Limits, dependencies and counters of a server's connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from barnabas.network.frame_budget import FrameBudget
    from barnabas.runtime.clock import Clock, Timer

FRAME_BYTES_MAX = 100 * 1024 * 1024


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Limits of one connection."""

    # `socket.request.max.bytes`.
    frame_bytes_max: int = FRAME_BYTES_MAX
    # Accepted requests without a response. Reading stops at the limit and continues at half of it.
    in_flight_max: int = 128
    # Total size of responses that wait for an earlier response.
    held_bytes_max: int = 4 * 1024 * 1024
    # Total size of accepted large requests without a response, whose data stays in memory.
    waiting_bytes_max: int = 16 * 1024 * 1024


class ConnectionDependencies(msgspec.Struct, frozen=True):
    """The resources that all connections of a broker share."""

    clock: Clock
    timer: Timer
    receive_buffer: bytearray
    # Budget for partially received requests; None without a limit.
    frame_budget: FrameBudget | None = None


class ConnectionStatistics(msgspec.Struct, frozen=True):
    """A snapshot of one connection's counters."""

    requests: int
    in_flight: int
    held_bytes: int
    buffered_bytes: int
    bytes_in: int
    bytes_out: int
    paused: bool
