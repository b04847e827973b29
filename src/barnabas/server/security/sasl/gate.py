"""Gate between the connections of a SASL listener and the dispatcher of its requests.

Before the login, only ApiVersions and SASL requests are served. Other requests end the connection.
After the login, requests pass. A failed login ends the connection too, after a delay.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from barnabas.network.principal import Principal
from barnabas.protocol.api_table import API_ROWS, ApiKey
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.connection import (
    ApiVersionsResponse,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from barnabas.server.dispatch.dispatcher import Dispatcher, Entry
from barnabas.server.security.sasl.login import Login, LoginState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.network.connection import Connection
    from barnabas.protocol.schema import Message
    from barnabas.runtime.clock import Timer
    from barnabas.server.configs.listener_sasl import ListenerSasl
    from barnabas.server.dispatch.request import Handle, RequestContext, RequestDependencies
    from barnabas.server.security.sasl.failure_log import FailureLog
    from barnabas.server.security.sasl.login import LoginReply, OfferedMechanism


# APIs that a client may call in each state. Other frames end the connection.
_ALLOWED = {
    LoginState.INITIAL: (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE),
    LoginState.VERSIONS_KNOWN: (ApiKey.SASL_HANDSHAKE,),
    # ApiVersions and SaslHandshake get an error response before the connection closes.
    LoginState.AUTHENTICATING: (
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    ),
    LoginState.REAUTHENTICATING: (ApiKey.SASL_HANDSHAKE,),
    LoginState.MECHANISM_CHANGED: (),
    LoginState.FAILED: (),
}
# `login` of connections whose clients are authenticated until the connection closes.
_PASSED = object()
_API_KEY_BYTES = 2
# Time until the end of the login, in ms. Kafka has no such limit. By the idle time alone, a client
# could keep a connection before its login for ever, by one byte from time to time.
LOGIN_MS_MAX = 60_000.0
_LENGTH_BYTES = 4


class SaslGate:
    """Receives the frames of one listener's connections."""

    def __init__(
        self,
        settings: ListenerSasl,
        mechanisms: Mapping[str, OfferedMechanism],
        timer: Timer,
        find: Callable[[int], Entry | None],
        dependencies: RequestDependencies,
        failures: FailureLog,
    ) -> None:
        """Create the gate of one listener.

        Args:
            settings: SASL settings of the listener.
            mechanisms: the enabled mechanisms by name.
            timer: delays the ends of connections after failed logins.
            find: returns the entry of an API key in the table of served APIs.
            dependencies: dependencies of all requests of the listener.
            failures: logs failed logins.
        """
        self._settings = settings
        self._mechanisms = mechanisms
        self._clock, self._timer = dependencies.clock, timer
        self._find = find
        self._listener_name = dependencies.listener_name
        self._failures = failures
        self._dispatcher = Dispatcher(self._find_for_login, dependencies)
        self._serve = Dispatcher(find, dependencies).on_request
        self._handlers: dict[int, Handle] = {
            ApiKey.API_VERSIONS: self._handle_versions,
            ApiKey.SASL_HANDSHAKE: self._handle_handshake,
            ApiKey.SASL_AUTHENTICATE: self._handle_authenticate,
        }
        # Connections closed because their clients did not authenticate again in time.
        self.expired = 0

    def on_admitted(self, connection: Connection) -> None:
        """Prepare a new connection."""
        connection.login = Login(self._mechanisms, self._clock)
        connection.limit_frames(self._settings.frame_bytes_max)
        connection.login_due_ms = self._clock.monotonic_ms() + LOGIN_MS_MAX

    def on_request(self, connection: Connection, frame: memoryview) -> None:
        """Serve one frame. It is valid only during the call.

        Raises:
            ProtocolError: an authenticated client has sent an invalid request. The caller closes
                the connection.
        """
        login = connection.login
        if login is _PASSED:
            self._serve(connection, frame)
            return
        assert isinstance(login, Login), "each connection of a SASL listener has a login"
        if login.state is not LoginState.AUTHENTICATED:
            self._serve_login(connection, login, frame)
        elif _api_key(frame) == ApiKey.SASL_HANDSHAKE and login.maybe_begin_again():
            connection.limit_frames(self._settings.frame_bytes_max)
            self._serve_login(connection, login, frame)
        elif login.is_session_over:
            self.expired += 1
            login.fail("the session is over, and the client has not authenticated again")
            connection.abort()
        else:
            self._serve(connection, frame)

    def _serve_login(self, connection: Connection, login: Login, frame: memoryview) -> None:
        """Serve a frame of a client that has to authenticate."""
        state = login.state
        if state is LoginState.FAILED:
            return
        if state is LoginState.AUTHENTICATING and login.has_raw_frames:
            self._serve_raw(connection, login, bytes(frame))
            return
        api_key = _api_key(frame)
        if api_key not in _ALLOWED[state]:
            name = API_ROWS[api_key].name if api_key in API_ROWS else "an unknown API"
            self._fail(connection, login, f"a request of {name} while {state.value}")
            return
        try:
            self._dispatcher.on_request(connection, frame)
        except ProtocolError as error:
            self._fail(connection, login, str(error))

    def _serve_raw(self, connection: Connection, login: Login, message: bytes) -> None:
        """Serve a message of the mechanism that is a frame of its own, after a handshake v0."""
        reply = login.on_message(message)
        if reply.error is not ErrorCode.NONE:
            self._end(connection, login, connection.reserve().skip)
            return
        length = len(reply.message).to_bytes(_LENGTH_BYTES)
        connection.reserve().complete([bytearray(length + reply.message)])
        self._maybe_pass(connection, login)

    def _find_for_login(self, api_key: int) -> Entry | None:
        """Return the entry of an API with its handler during the login."""
        entry = self._find(api_key)
        handler = self._handlers.get(api_key)
        if entry is None or handler is None:
            return None
        return entry._replace(handle=handler)

    def _handle_versions(self, context: RequestContext, request: Message) -> Message | None:
        login = _login_of(context)
        if login.state is not LoginState.INITIAL:
            refusal = ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, api_keys=[])
            login.fail("a request of ApiVersions while authenticating")
            self._refuse(context, login, refusal)
            return None
        entry = self._find(ApiKey.API_VERSIONS)
        assert entry is not None, "every listener serves ApiVersions"
        response = entry.handle(context, request)
        assert isinstance(response, ApiVersionsResponse), f"the response is immediate: {response}"
        if response.error_code == ErrorCode.NONE:
            login.note_versions_sent()
        return response

    def _handle_handshake(self, context: RequestContext, request: Any) -> Message | None:
        login = _login_of(context)
        if login.state is LoginState.AUTHENTICATING:
            login.fail("a request of SaslHandshake while authenticating")
            illegal = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
            self._refuse(context, login, illegal)
            return None
        error = login.on_handshake(request.mechanism, context.version)
        response = SaslHandshakeResponse(error_code=error, mechanisms=login.offered)
        if error is ErrorCode.NONE:
            return response
        self._refuse(context, login, response)
        return None

    def _handle_authenticate(self, context: RequestContext, request: Any) -> Message | None:
        login = _login_of(context)
        reply = login.on_message(bytes(request.auth_bytes))
        response = _response(reply)
        if reply.error is not ErrorCode.NONE:
            self._refuse(context, login, response)
            return None
        self._maybe_pass(context.connection, login)
        return response

    def _maybe_pass(self, connection: Connection, login: Login) -> None:
        """Pass the requests of an authenticated client to the dispatcher from now on."""
        identity = login.identity
        if login.state is not LoginState.AUTHENTICATED or identity is None:
            return
        connection.principal = Principal(identity.name, is_token=identity.is_token)
        connection.unlimit_frames()
        connection.login_due_ms = inf
        if login.session_end_ms is None:
            connection.login = _PASSED

    def _refuse(self, context: RequestContext, login: Login, response: Message) -> None:
        """Send the response of a failed login after the delay, and close the connection."""
        self._end(context.connection, login, partial(context.respond, response))

    def _fail(self, connection: Connection, login: Login, reason: str) -> None:
        """Close the connection after the delay, without a response."""
        login.fail(reason)
        self._end(connection, login, connection.reserve().skip)

    def _end(self, connection: Connection, login: Login, finish: Callable[[], None]) -> None:
        """Stop reading requests after a failed login. Call `finish` after the delay.

        The delay slows clients that try passwords, and clients that reconnect immediately.
        """
        self._failures.note(connection, self._listener_name, login)
        connection.close()
        self._timer.call_later(self._settings.failure_delay_ms, finish)


def _login_of(context: RequestContext) -> Login:
    login = context.connection.login
    assert isinstance(login, Login), "a request of a connection that logs in"
    return login


def _api_key(frame: memoryview) -> int:
    """Return the API key of a frame; -1 for a frame without one."""
    return int.from_bytes(frame[:_API_KEY_BYTES]) if len(frame) >= _API_KEY_BYTES else -1


def _response(reply: LoginReply) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=reply.error,
        error_message=reply.error_message,
        auth_bytes=reply.message,
        session_lifetime_ms=reply.session_ms,
    )
