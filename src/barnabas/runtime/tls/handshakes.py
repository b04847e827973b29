"""All TLS handshakes of a process: bounded in number, memory, time and computation.

A handshake takes one or more milliseconds of computation and about 45 KB of memory, and any client
can begin one. Therefore:

- A connection holds only its bytes until its first message is complete and has been checked.
- A limited number of handshakes is started. Further ones are queued in order of arrival; each holds
  only its first message.
- While handshakes are queued, a started one whose peer is silent loses its place after a short
  time. Stalled peers therefore delay others by seconds at most.
- The computation runs in few threads, without the GIL. The event loop stays free, whatever the
  peer's choice of algorithm costs.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.runtime.tls.tls_error import (
    HANDSHAKE_FAILURE_ALERT,
    TlsError,
    check_first_bytes,
    describe_failure,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Cancellable, Clock, Timer
    from barnabas.runtime.executor import Executor
    from barnabas.runtime.tls.tls_session import TlsSession


_RECORD_HEADER = Struct(">BHH")
_CLIENT_HELLO = 1
_RECORD_BYTES_MAX = 16 * 1024
# Version and random value of a client's hello.
_FIXED_BYTES = 34
_SUPPORTED_GROUPS = 10
_KEY_SHARE = 51
_FINITE_FIELDS = range(0x0100, 0x0200)
# P-256, P-384, P-521, X25519, X448.
_CURVES = frozenset((23, 24, 25, 29, 30))


class _MalformedHelloError(Exception):
    """A hello that ends too early."""


def is_first_record_complete(data: bytes) -> bool:
    """Return whether the first record has arrived.

    The bytes begin with the type of a handshake record.
    """
    if len(data) < _RECORD_HEADER.size:
        return False
    length: int
    _, _, length = _RECORD_HEADER.unpack_from(data)
    return len(data) >= _RECORD_HEADER.size + length or length > _RECORD_BYTES_MAX


def check_client_hello(data: bytes) -> TlsError | None:
    """Return an error unless the first record has a whole hello that is cheap to answer.

    A server computes a key exchange for a client that has proved nothing (RFC 8446, section 4.1.2).
    In the larger finite fields (ffdhe8192) that takes 130 ms, and a client need not compute
    anything for it. Python's `ssl` cannot exclude these groups without excluding all but one
    elliptic curve. Therefore, a client that makes the server use one is refused here, before
    OpenSSL gets its message. No usual client does: all offer an elliptic curve first.
    """
    length: int
    _, _, length = _RECORD_HEADER.unpack_from(data)
    message = data[_RECORD_HEADER.size : _RECORD_HEADER.size + length]
    try:
        groups, shares = _groups(_Reader(message))
    except _MalformedHelloError:
        return _refusal("the first TLS message is malformed, or divided among records")
    if any(group in _FINITE_FIELDS for group in shares):
        return _refusal("the client wants a finite-field key exchange (ffdhe)")
    if groups is not None and _CURVES.isdisjoint(groups):
        return _refusal("the client supports no usual elliptic curve for the key exchange")
    return None


def _refusal(description: str) -> TlsError:
    return TlsError(description, alert=HANDSHAKE_FAILURE_ALERT)


def _groups(reader: _Reader) -> tuple[list[int] | None, list[int]]:
    """Return the supported groups, None if the client names none, and those with a key share."""
    if reader.number(1) != _CLIENT_HELLO:
        raise _MalformedHelloError
    hello = reader.part(3)
    hello.skip(_FIXED_BYTES)
    hello.part(1)
    hello.part(2)
    hello.part(1)
    groups: list[int] | None = None
    shares: list[int] = []
    if hello.is_empty:
        return groups, shares
    extensions = hello.part(2)
    while not extensions.is_empty:
        kind = extensions.number(2)
        content = extensions.part(2)
        if kind == _SUPPORTED_GROUPS:
            listed = content.part(2)
            groups = groups or []
            while not listed.is_empty:
                groups.append(listed.number(2))
        elif kind == _KEY_SHARE:
            listed = content.part(2)
            while not listed.is_empty:
                shares.append(listed.number(2))
                listed.part(2)
    return groups, shares


class _Reader:
    """Reads numbers and parts with a length from bytes."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_empty(self) -> bool:
        return self._position >= len(self._data)

    def skip(self, size: int) -> None:
        self._take(size)

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size))

    def part(self, length_size: int) -> _Reader:
        return _Reader(self._take(self.number(length_size)))

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise _MalformedHelloError
        taken = self._data[self._position : end]
        self._position = end
        return taken


class HandshakePhase(Enum):
    """The event that a handshake waits for."""

    # The first message of the client. Only its bytes are held.
    EXPECTING = "expecting"
    # A place among the started handshakes. Only the first message is held.
    QUEUED = "queued"
    # The end of a computation outside the event loop. Reading is paused.
    STEPPING = "stepping"
    # The next message of the peer.
    RECEIVING = "receiving"
    # Nothing: the handshake succeeded, failed or was canceled.
    ENDED = "ended"


class HandshakeOwner(Protocol):
    """The stream of a handshake."""

    def read_for_handshake(self, wanted: bool) -> None:
        """Start or stop reading from the peer."""
        ...

    def send_for_handshake(self, data: bytes) -> None:
        """Send a message of the handshake."""
        ...

    def on_handshake_done(self, session: TlsSession) -> None:
        """Use the session; the last call."""
        ...

    def on_handshake_failed(self, error: TlsError) -> None:
        """Close the connection; the last call."""
        ...


class Handshake:
    """The handshake of one connection, from the first byte of the peer to the session."""

    __slots__ = (
        "_deadline",
        "_first_bytes",
        "_new_session",
        "_owner",
        "_places",
        "_session",
        "is_outgoing",
        "phase",
        "started_ms",
    )

    def __init__(
        self,
        owner: HandshakeOwner,
        places: Handshakes,
        new_session: Callable[[], TlsSession],
        *,
        is_outgoing: bool,
    ) -> None:
        self._owner = owner
        self._places = places
        self._new_session = new_session
        # Whether this side is the client.
        self.is_outgoing = is_outgoing
        self.phase = HandshakePhase.EXPECTING
        # The client's first bytes, until the session takes them. At most one record and one read.
        self._first_bytes = b""
        self._session: TlsSession | None = None
        # Runs in the phases EXPECTING and RECEIVING of incoming connections. A client's connection
        # attempt has its own time limit.
        self._deadline: Cancellable | None = None
        # Time when the handshake got its place, monotonic ms; set by `start`.
        self.started_ms = 0.0

    def expect(self) -> None:
        """Limit the time until the client's first bytes."""
        if self.phase is HandshakePhase.EXPECTING:
            self._arm()

    def stop_expecting(self) -> None:
        """Lift the time limit while this side does not read from the client."""
        if self.phase is HandshakePhase.EXPECTING:
            self._disarm()

    def begin(self) -> None:
        """Begin the handshake of an outgoing connection."""
        assert self.is_outgoing
        self._enter()

    def receive(self, data: memoryview) -> None:
        """Handle bytes of the peer. Reading stops while they are processed."""
        if self.phase is HandshakePhase.EXPECTING:
            self._first_bytes += data
            wrong = check_first_bytes(self._first_bytes)
            if wrong is None:
                if not is_first_record_complete(self._first_bytes):
                    return
                wrong = check_client_hello(self._first_bytes)
            if wrong is not None:
                self.fail(wrong)
                return
            self._enter()
        elif self.phase is HandshakePhase.RECEIVING:
            assert self._session is not None
            self._session.receive_for_handshake(data)
            self._step()

    def start(self, now_ms: float) -> None:
        """Start the handshake, which has a place now."""
        assert self.phase is HandshakePhase.QUEUED, self.phase
        self.started_ms = now_ms
        try:
            self._session = self._new_session()
        except (OSError, ValueError) as error:
            self.fail(describe_failure(error))
            return
        if self._first_bytes:
            self._session.receive_for_handshake(memoryview(self._first_bytes))
            self._first_bytes = b""
        if not self.is_outgoing:
            self._arm()
        self._step()

    def on_stepped(self, is_done: bool | None, error: BaseException | None) -> None:
        """Handle the result of a computation outside the loop."""
        if self.phase is HandshakePhase.ENDED:
            return
        session = self._session
        assert session is not None
        output = session.take_output()
        if output:
            self._owner.send_for_handshake(output)
        if self.phase is not HandshakePhase.STEPPING:
            return
        if error is not None:
            self.fail(describe_failure(error, session.versions))
        elif is_done:
            self._end()
            self._owner.on_handshake_done(session)
        else:
            self.phase = HandshakePhase.RECEIVING
            self._owner.read_for_handshake(True)

    def fail(self, error: TlsError) -> None:
        """End the handshake and its connection."""
        if self.phase is not HandshakePhase.ENDED:
            self._end()
            self._owner.on_handshake_failed(error)

    def cancel(self) -> None:
        """End the handshake, whose connection has ended."""
        if self.phase is not HandshakePhase.ENDED:
            self._end()

    def _enter(self) -> None:
        self._disarm()
        self.phase = HandshakePhase.QUEUED
        self._owner.read_for_handshake(False)
        self._places.enter(self)

    def _step(self) -> None:
        assert self._session is not None
        self.phase = HandshakePhase.STEPPING
        self._owner.read_for_handshake(False)
        self._places.run(self, self._session)

    def _end(self) -> None:
        self.phase = HandshakePhase.ENDED
        self._disarm()
        self._session = None
        self._first_bytes = b""
        self._places.leave(self)

    def _arm(self) -> None:
        self._disarm()
        self._deadline = self._places.after_time_limit(self._on_deadline)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        self._deadline = None
        self.fail(TlsError("the peer did not complete the TLS handshake in time"))


# Stalled handshakes that one turn of the loop ends, and as many that it starts instead. A slice
# takes about 3 ms.
_STALLED_SLICE = 50


class HandshakeLimits(msgspec.Struct, frozen=True):
    """Limits of all handshakes of a process."""

    # Started incoming handshakes. Each takes about 45 KB.
    started_max: int = 1_000
    # Computations at the same time. The threads of the executor have other work, too.
    running_max: int = 2
    # Time until a client's first bytes, and from the start of its handshake to the end (ms).
    time_limit_ms: float = 10_000.0
    # Time that a started handshake has at least while others are queued (ms).
    started_ms_min: float = 1_000.0


class HandshakeStatistics(msgspec.Struct, frozen=True):
    """A snapshot of the handshakes."""

    queued: int
    started: int
    running: int
    completed: int
    failed: int


class Handshakes:
    """Starts handshakes and runs their computations."""

    def __init__(
        self,
        clock: Clock,
        timer: Timer,
        executor: Executor,
        limits: HandshakeLimits | None = None,
    ) -> None:
        self._clock = clock
        self._timer = timer
        self._executor = executor
        self._limits = limits or HandshakeLimits()
        # Handshakes that wait for a place, oldest first.
        self._queue: dict[Handshake, None] = {}
        # Incoming handshakes with a place, oldest first. Invariant: at most `started_max`.
        self._started: dict[Handshake, None] = {}
        # Computations that wait for a thread.
        self._runnable: deque[tuple[Handshake, TlsSession]] = deque()
        # Number of computations in threads. Invariant: at most `running_max`.
        self._running = 0
        # The next check for stalled handshakes; None while no handshake is queued.
        self._check: Cancellable | None = None
        # Whether handshakes are being started or ended. The places that they free meanwhile are
        # given away afterwards.
        self._is_busy = False
        self._completed = 0
        self._failed = 0

    def statistics(self) -> HandshakeStatistics:
        """Return a snapshot."""
        return HandshakeStatistics(
            queued=len(self._queue),
            started=len(self._started),
            running=self._running,
            completed=self._completed,
            failed=self._failed,
        )

    def enter(self, handshake: Handshake) -> None:
        """Start the handshake, or queue it. Outgoing ones always start: this side chose them."""
        if handshake.is_outgoing:
            handshake.start(self._clock.monotonic_ms())
            return
        self._queue[handshake] = None
        self._start_queued()

    def run(self, handshake: Handshake, session: TlsSession) -> None:
        """Run a computation when a thread is free, outgoing handshakes first."""
        if handshake.is_outgoing:
            self._runnable.appendleft((handshake, session))
        else:
            self._runnable.append((handshake, session))
        self._run_next()

    def leave(self, handshake: Handshake) -> None:
        """Free the place of a handshake that has ended."""
        self._queue.pop(handshake, None)
        if handshake in self._started:
            del self._started[handshake]
            self._start_queued()

    def after_time_limit(self, callback: Callable[[], None]) -> Cancellable:
        """Call back after the time limit of a handshake."""
        return self._timer.call_later(self._limits.time_limit_ms, callback)

    def _start_queued(self) -> None:
        if self._is_busy:
            return
        self._is_busy = True
        while self._queue and len(self._started) < self._limits.started_max:
            handshake = next(iter(self._queue))
            del self._queue[handshake]
            self._started[handshake] = None
            handshake.start(self._clock.monotonic_ms())
        self._is_busy = False
        self._schedule_check(self._limits.started_ms_min)

    def _schedule_check(self, delay_ms: float) -> None:
        if self._queue and self._check is None:
            self._check = self._timer.call_later(delay_ms, self._end_stalled)

    def _end_stalled(self) -> None:
        """End some started handshakes whose peers were silent too long, while others wait."""
        self._check = None
        latest_ms = self._clock.monotonic_ms() - self._limits.started_ms_min
        stalled = [
            each
            for each in self._started
            if each.started_ms <= latest_ms and each.phase is HandshakePhase.RECEIVING
        ]
        count = min(len(self._queue), _STALLED_SLICE)
        self._is_busy = True
        for handshake in stalled[:count]:
            handshake.fail(TlsError("the peer did not continue the TLS handshake, others waited"))
        self._is_busy = False
        if len(stalled) > count:
            self._schedule_check(0.0)
        self._start_queued()

    def _run_next(self) -> None:
        while self._runnable and self._running < self._limits.running_max:
            handshake, session = self._runnable.popleft()
            if handshake.phase is HandshakePhase.ENDED:
                continue
            self._running += 1
            self._executor.submit(session.step, partial(self._on_ran, handshake))

    def _on_ran(
        self, handshake: Handshake, is_done: bool | None, error: BaseException | None
    ) -> None:
        self._running -= 1
        if error is not None:
            self._failed += 1
        elif is_done:
            self._completed += 1
        handshake.on_stepped(is_done, error)
        self._run_next()
