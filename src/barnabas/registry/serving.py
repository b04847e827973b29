"""The process of a registry: its parts, its ASGI application, and its server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from barnabas.client.aio.admin import Admin
from barnabas.client.aio.session import AsyncSession
from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.registry.errors import RegistryError, store_failed
from barnabas.registry.examination import SchemaExaminer
from barnabas.registry.leader.election import RegistryIdentity, RegistryMember
from barnabas.registry.leader.fenced_writer import FencedWriter
from barnabas.registry.leader.leadership import Leadership
from barnabas.registry.operations import Registry
from barnabas.registry.rest.forwarding import LeaderForwarder
from barnabas.registry.rest.http_call import (
    MEDIA_TYPES,
    Call,
    accepted_type,
    check_content_type,
    check_origin,
    error_response,
    json_response,
    split_path,
)
from barnabas.registry.rest.routes import Identity, Routes, text_of
from barnabas.registry.security.access import NoLogin, OpenAccess
from barnabas.registry.security.login import BrokerLogin, LoginRules
from barnabas.registry.security.rights import AclAccess
from barnabas.registry.shares import RESPONSE_BYTES_COUNTED, BodyMemory, client_address
from barnabas.registry.state import RegistryState
from barnabas.registry.topic import TopicError, TopicReader, prepare_topic
from barnabas.runtime.clock import LoopTimer, SystemClock
from barnabas.runtime.loop import new_loop
from barnabas.runtime.process import ParentWatch, host_name
from barnabas.runtime.rng import SystemRng
from barnabas.runtime.sockets import is_wildcard
from barnabas.runtime.web_server import AnnouncingServer, ConnectionLimits, server_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import Message, Receive, Scope, Send

    from barnabas.registry.config import RegistrySettings
    from barnabas.registry.security.access import Access, Login

_log = logging.getLogger(__name__)

_LOAD_S = 600.0
_LEAVE_S = 3.0
# Larger responses are sent in parts of this size, within this time (s).
_PART_BYTES = 1 << 16
_SEND_S = 60.0
# Serializers keep their connections open.
_CONNECTIONS = ConnectionLimits(connections=1000, idle_s=75)
# Timeouts of the group; a dead leader is replaced after the session timeout.
_GROUP = {
    "session_timeout_ms": 10_000,
    "heartbeat_interval_ms": 3_000,
    "max_poll_interval_ms": 30_000,
}


class RegistryApplication:
    """The ASGI application: from a request to a handler, and from its value to the response."""

    def __init__(self) -> None:
        # None while the process starts and ends.
        self.routes: Routes | None = None
        self.login: Login = NoLogin()
        self._bodies = BodyMemory()
        # Apart from the requests: slow readers do not prevent changes.
        self._responses = BodyMemory()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or the start and end of the server."""
        if scope["type"] == "lifespan":
            await _acknowledge(receive, send)
        elif scope["type"] == "http":
            response = await self._respond(Request(scope, receive))
            if scope["method"] == "HEAD":
                response = _without_body(response)
            if len(response.body) > _PART_BYTES:
                await self._send_large(response, scope, receive, send)
            else:
                await response(scope, receive, send)

    async def _send_large(
        self, response: Response, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send a response as fast as the client reads; a client that takes too long is left."""
        client = scope["client"]
        with self._responses.request("" if client is None else client[0]) as memory:
            try:
                memory.take(min(len(response.body), RESPONSE_BYTES_COUNTED))
            except RegistryError as error:
                await error_response(error, MEDIA_TYPES[0])(scope, receive, send)
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SEND_S):
                    await _send_parts(response, send)

    async def _respond(self, request: Request) -> Response:
        media_type = MEDIA_TYPES[0]
        try:
            media_type = accepted_type(request.headers.get("accept"))
            return await self._handle(request, media_type)
        except RegistryError as error:
            return error_response(error, media_type)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:  # noqa: BLE001 - a fault in one request must not end the others
            _log.exception("a request failed: path=%s", request.scope["path"])
            return error_response(RegistryError(500, "Internal Server Error"), media_type)

    async def _handle(self, request: Request, media_type: str) -> Response:
        routes = self.routes
        if routes is None:
            raise store_failed("the registry starts or stops")
        check_origin(request.headers)
        parts, context = split_path(request.scope["raw_path"])
        route = routes.find(parts, context)
        check_content_type(request.method, request.headers.get("content-type"))
        host = "" if request.client is None else request.client.host
        client_address.set(host)
        caller = await self.login.caller(request.headers.get("authorization"), host)
        with self._bodies.request(host) as memory:
            value = await routes.handle(Call(request, route, caller, memory))
        if isinstance(value, Response):
            return value
        text = text_of(value)
        if text is not None:
            return Response(text, media_type=media_type)
        return json_response(value, media_type)


async def _acknowledge(receive: Receive, send: Send) -> None:
    """Tell the server that start and end succeeded: the parts start and end elsewhere."""
    while True:
        message: Message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _send_parts(response: Response, send: Send) -> None:
    """Send a response in parts: the server waits with each one for the client."""
    start = {"status": response.status_code, "headers": response.raw_headers}
    await send({"type": "http.response.start", **start})
    body = memoryview(response.body)
    for begin in range(0, len(body), _PART_BYTES):
        part = bytes(body[begin : begin + _PART_BYTES])
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _without_body(response: Response) -> Response:
    """Return the response to HEAD: the headers of GET, and no body."""
    headers = dict(response.headers)
    return Response(status_code=response.status_code, headers=headers)


class RegistryProcess:
    """The parts of a running registry.

    Args:
        settings: The settings.
        application: Gets the routes when the topic was read.
    """

    def __init__(self, settings: RegistrySettings, application: RegistryApplication) -> None:
        self._settings = settings
        self._application = application
        self._state = RegistryState(settings.level)
        self._stack = contextlib.AsyncExitStack()

    async def prepare(self) -> str:
        """Create the topic if necessary; return the id of the cluster.

        Raises:
            TopicError: The topic cannot be the registry's.
            ClientError: The brokers were not reached, or refuse a request.
        """
        settings = self._settings
        async with Admin(settings.bootstrap, **settings.client) as admin:
            await prepare_topic(admin, settings.topic, settings.replication_factor)
            return (await admin.describe_cluster()).cluster_id

    async def start(self, cluster_id: str, address: tuple[str, str, int]) -> None:
        """Read the topic, join the group, and serve requests.

        Args:
            cluster_id: The id of the cluster.
            address: Scheme, host and port of the REST interface, as other processes use them.

        Raises:
            ClientError: The topic cannot be read.
            TimeoutError: The topic was not read in time.
        """
        settings = self._settings
        loop = asyncio.get_running_loop()
        examiner = SchemaExaminer(loop)
        self._stack.callback(examiner.close)
        reader = TopicReader(settings.bootstrap, settings.client, settings.topic, self._state)
        self._stack.push_async_callback(reader.close)
        reader.start()
        session = self._open_session()
        self._stack.push_async_callback(session.close)
        tp = TopicPartition(settings.topic, 0)
        transactional_id = f"{settings.group_id}-{settings.topic}"
        leadership = Leadership(FencedWriter(session, tp, transactional_id), reader)
        self._stack.callback(leadership.close)
        scheme, host, port = address
        identity = RegistryIdentity(host, port, settings.leader_eligibility, scheme)
        member = RegistryMember(session, identity, leadership)
        leadership.has_session = lambda: member.has_session
        self._stack.push_async_callback(self._leave, member)
        await reader.read_to_end(_LOAD_S)
        member.start()
        registry = Registry(self._state, leadership, examiner)
        forwarder = LeaderForwarder(
            leadership, reader, settings.peer_tls, is_secure=settings.tls is not None
        )
        names = Identity(cluster_id, settings.group_id)
        access: Access = OpenAccess()
        if settings.has_login:
            self._application.login = self._broker_login()
            access = self._acl_access()
        self._application.routes = Routes(registry, forwarder, access, names)
        await examiner.warm_up()
        # A registry is ready when it can be written. Without a leader, it still answers reads.
        with contextlib.suppress(RegistryError):
            await leadership.leader()

    def _broker_login(self) -> BrokerLogin:
        settings = self._settings
        rules = LoginRules(settings.mechanism, settings.sub_claim)
        return BrokerLogin(settings.bootstrap, settings.client, rules, SystemClock(), SystemRng())

    def _acl_access(self) -> AclAccess:
        settings = self._settings
        admin = Admin(settings.bootstrap, **settings.client)
        self._stack.push_async_callback(admin.close)
        return AclAccess(
            admin,
            settings.super_users,
            SystemClock(),
            allows_by_default=settings.allows_by_default,
        )

    def _open_session(self) -> AsyncSession:
        settings = self._settings
        keys = {**_GROUP, **settings.client, "group_id": settings.group_id}
        config = ClientConfig.parse({"bootstrap_servers": settings.bootstrap, **keys})
        return AsyncSession(config, "registry", self._on_end_of_loop)

    async def _on_end_of_loop(self) -> None:
        """Do nothing: the block of `running_registry` ends before the loop."""

    @staticmethod
    async def _leave(member: RegistryMember) -> None:
        left = asyncio.Event()
        member.leave(left.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                await left.wait()

    async def close(self) -> None:
        """Leave the group and close all connections."""
        self._application.routes = None
        await self._stack.aclose()


@contextlib.asynccontextmanager
async def running_registry(
    settings: RegistrySettings, on_end: Callable[[], None]
) -> AsyncIterator[str]:
    """Serve a registry during an `async with` block; the value is its URL.

    Args:
        settings: The settings.
        on_end: Called at SIGINT and SIGTERM.

    Raises:
        TopicError, ClientError, TimeoutError: The registry cannot start.
        OSError: The address is in use.
    """
    application = RegistryApplication()
    process = RegistryProcess(settings, application)
    cluster_id = await process.prepare()
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    config = server_config(application, settings.host, settings.port, settings.tls, _CONNECTIONS)
    server = AnnouncingServer(config, ready.set_result, on_end)
    serving = asyncio.get_running_loop().create_task(_serve_http(server))
    try:
        either: set[asyncio.Future[Any]] = {serving, ready}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            raise OSError(
                f"the address {settings.host}:{settings.port} cannot be used: stop the program "
                "that uses it, or give another one"
            )
        url = ready.result()
        await process.start(cluster_id, _address(url, settings.advertised))
        yield url
    finally:
        await process.close()
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)


async def _serve_http(server: AnnouncingServer) -> None:
    """Serve until the end; also return if the address cannot be used, which uvicorn logs."""
    with contextlib.suppress(SystemExit):
        await server.serve()


def _address(url: str, advertised: str) -> tuple[str, str, int]:
    """Return scheme, host and port for other processes of the registry.

    An address that stands for all of a machine's is replaced by the name of the machine.
    """
    scheme, _, rest = url.rstrip("/").partition("://")
    host, _, port = rest.rpartition(":")
    if is_wildcard(host.strip("[]")):
        host = host_name()
    if advertised:
        name, colon, own_port = advertised.rpartition(":")
        is_with_port = bool(colon) and own_port.isdecimal()
        host, port = (name, own_port) if is_with_port else (advertised, port)
    return scheme, host.strip("[]"), int(port)


def serve(settings: RegistrySettings, on_ready: Callable[[str], None]) -> str:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: The settings.
        on_ready: Called with the URL when requests are answered.

    Returns:
        Why the registry could not start; empty after a normal end.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_serve(settings, on_ready))


async def _serve(settings: RegistrySettings, on_ready: Callable[[str], None]) -> str:
    ended = asyncio.Event()
    if settings.exit_with is not None:
        timer = LoopTimer(asyncio.get_running_loop())
        ParentWatch(timer, settings.exit_with, ended.set).start()

    async def run() -> None:
        async with running_registry(settings, ended.set) as url:
            on_ready(url)
            await asyncio.Event().wait()

    loop = asyncio.get_running_loop()
    running, ending = loop.create_task(run()), loop.create_task(ended.wait())
    # The end may come while the registry starts, and waits for brokers that ended, too.
    await asyncio.wait({running, ending}, return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    ending.cancel()
    (reason,) = await asyncio.gather(running, return_exceptions=True)
    if isinstance(reason, TopicError | ClientError | OSError | TimeoutError):
        return str(reason) or type(reason).__name__
    if isinstance(reason, Exception):
        raise reason
    return ""
