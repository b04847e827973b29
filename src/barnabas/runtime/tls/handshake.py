"""One TLS handshake, from the first byte of the peer to the session."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from barnabas.runtime.tls.client_hello import check_client_hello, is_complete
from barnabas.runtime.tls.tls_error import TlsError, check_first_bytes, describe_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.timer import Cancellable
    from barnabas.runtime.tls.tls_session import TlsSession


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


class HandshakePlaces(Protocol):
    """The bounded number of places for started handshakes (`Handshakes`)."""

    def enter(self, handshake: Handshake) -> None:
        """Queue the handshake. It is started by `start` as soon as there is a place."""
        ...

    def run(self, handshake: Handshake, session: TlsSession) -> None:
        """Run `TlsSession.step` outside the loop, then call `on_stepped`."""
        ...

    def leave(self, handshake: Handshake) -> None:
        """Free the place."""
        ...

    def after_time_limit(self, callback: Callable[[], None]) -> Cancellable:
        """Call back after the time limit of a handshake."""
        ...


class Handshake:
    """The handshake of one connection."""

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
        places: HandshakePlaces,
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
                if not is_complete(self._first_bytes):
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
