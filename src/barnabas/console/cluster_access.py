"""Clients of one cluster for the pages, and what is known about whether its brokers respond.

The functions that explain a cluster (`cli/why`, `cli/admin`, `cli/partitions`) take a blocking
client, which one thread uses at a time. A page runs them in a thread, so that the event loop stays
free. Each cluster has threads of its own: one whose brokers do not respond delays no other.

A probe asks the brokers all the time. While they do not respond, pages do not wait for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas import aio
from barnabas.cli.common.printable import counted
from barnabas.cli.links.status import may_have_links
from barnabas.client.aio.broker_login import without_login
from barnabas.client.errors import AuthenticationError, BrokerError, ClientError
from barnabas.client.facade import Client
from barnabas.console.access.users import ActingUser, acting_user
from barnabas.console.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.console.settings import ConsoleSettings
    from barnabas.runtime.clock import Clock

_log = logging.getLogger(__name__)

T = TypeVar("T")
# Requests to the cluster at once; others wait.
_CLIENTS_MAX = 4
# The threads of those requests, and of requests whose page no longer waits for them.
_THREADS = 2 * _CLIENTS_MAX
# Users with idle clients of their own.
_USERS_MAX = 8
# Keys of a group member in a properties file do not apply to the console's readers.
_GROUP_KEYS = ("group.id", "group.instance.id", "group.protocol", "group.remote.assignor")
_FETCH_BYTES = 4 * 1024 * 1024
_PARTITION_BYTES = 1024 * 1024
# How long the brokers have to respond to a probe.
_PROBE_MS = 2_000
_PROBE_CONFIG = {
    "request.timeout.ms": str(_PROBE_MS),
    "default.api.timeout.ms": str(_PROBE_MS),
    "socket.connection.setup.timeout.ms": str(_PROBE_MS),
}
# The time between two probes, also while the brokers do not respond.
_PROBE_INTERVAL_S = 3.0
_RETRY_S = 0.5
# So many probes in a row must fail before pages stop waiting. A busy machine may delay one.
_FAILURES = 2


class ClusterDownError(ClientError):
    """No broker of the cluster responds, which the probe knows already."""

    retriable = True


class Reachability:
    """Whether the brokers of a cluster respond, and since when.

    Args:
        bootstrap: The addresses that are tried.
        clock: Tells since when.
        on_notice: Called with a text when the brokers begin or stop to respond.
    """

    def __init__(
        self, bootstrap: str, clock: Clock, on_notice: Callable[[str], None] = lambda _text: None
    ) -> None:
        self._on_notice = on_notice
        self._bootstrap = bootstrap
        self._clock = clock
        self._failures = 0
        # Brokers at the last successful probe; None before it.
        self.brokers: int | None = None
        # When the brokers stopped responding, or when the console began to try (ms, wall clock);
        # None while they respond and before the first probe ends.
        self.down_since_ms: int | None = None
        # When the brokers began to respond (ms, wall clock); None while they do not.
        self.up_since_ms: int | None = None
        # The last successful probe (ms, wall clock); None before it.
        self.seen_ms: int | None = None
        # The error of the last probe; "" after a success.
        self.error = ""
        self._began_ms = clock.wall_ms()
        # Requests that are waiting for brokers; each is woken when these are known to be down.
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def is_down(self) -> bool:
        """Whether no broker responds."""
        return self.down_since_ms is not None

    def succeed(self, brokers: int) -> None:
        """Record a probe that a broker answered."""
        now_ms = self._clock.wall_ms()
        self._failures = 0
        self.brokers, self.error, self.seen_ms = brokers, "", now_ms
        self.down_since_ms = None
        if self.up_since_ms is None:
            self.up_since_ms = now_ms
            self._on_notice(f"reached {self._bootstrap} ({counted(brokers, 'broker')})")

    def fail(self, error: str) -> None:
        """Record a probe that no broker answered."""
        self._failures += 1
        self.error = error
        if self.brokers is None or self._failures >= _FAILURES:
            self.up_since_ms = None
            if self.down_since_ms is None:
                self.down_since_ms = self._began_ms if self.seen_ms is None else self.seen_ms
                when = "yet" if self.seen_ms is None else "any more"
                self._on_notice(f"no broker reached {when} at {self._bootstrap}: trying on")
            for each in self._waiting:
                if not each.done():
                    each.set_exception(self.down_error())

    def down_error(self) -> ClusterDownError:
        """Return the error of a request to a cluster that is known to be down."""
        return ClusterDownError(f"no broker responds at {self._bootstrap}: {self.error}")

    async def unless_down(self, running: asyncio.Future[T]) -> T:
        """Wait for a request, but no longer than the brokers are believed to respond.

        Raises:
            ClusterDownError: No broker responds. The request goes on without its result.
        """
        if self.is_down:
            raise self.down_error()
        alarm: asyncio.Future[None] = running.get_loop().create_future()
        self._waiting.add(alarm)
        try:
            await asyncio.wait((running, alarm), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                alarm.result()
            return running.result()
        finally:
            self._waiting.discard(alarm)
            alarm.cancel()
            for each in (running, alarm):
                each.add_done_callback(_ignore)


def _ignore(done: asyncio.Future[Any]) -> None:
    """Take the exception, which asyncio would otherwise report as never retrieved."""
    if not done.cancelled():
        done.exception()


class IdleClients:
    """Open clients between two requests. Its methods run on the event loop, unless they say so."""

    def __init__(self) -> None:
        # At most `_CLIENTS_MAX` for each user; the user of the latest request last.
        self._by_user: OrderedDict[ActingUser | None, list[Client]] = OrderedDict()
        # Clients that threads have given back.
        self._returned: list[tuple[ActingUser | None, Client]] = []

    def take(self, user: ActingUser | None) -> tuple[Client | None, list[Client]]:
        """Return an idle client of a user, or None; and clients of other users to close."""
        while self._returned:
            owner, client = self._returned.pop()
            self._by_user.setdefault(owner, []).append(client)
        mine = self._by_user.setdefault(user, [])
        self._by_user.move_to_end(user)
        surplus: list[Client] = []
        while len(self._by_user) > _USERS_MAX:
            surplus += self._by_user.popitem(last=False)[1]
        return (mine.pop() if mine else None), surplus

    def give_back(self, user: ActingUser | None, client: Client) -> None:
        """Keep a client for the next request. A thread may call this."""
        self._returned.append((user, client))

    def close(self) -> None:
        """Close all clients, in a thread when no other one uses this object."""
        self.take(None)
        for clients in self._by_user.values():
            _close(clients)
        self._by_user.clear()


class LinkSupport:
    """Whether the brokers of a cluster may have links, which each connection asks once."""

    def __init__(self) -> None:
        # False until a broker says that it may have links.
        self.may_have = False
        # Whether a broker has responded since the last connection began.
        self._is_known = False

    def begin(self) -> None:
        """Ask again, because a new connection may lead to other brokers."""
        self._is_known = False

    def learn(self, ask: Callable[[], bool | None]) -> None:
        """Ask unless the answer is known.

        Args:
            ask: Returns the answer, or None if the brokers do not give it; then the next call asks
                again.
        """
        if self._is_known:
            return
        found = ask()
        if found is not None:
            self.may_have, self._is_known = found, True


class ClusterAccess:
    """Clients of one cluster for the requests of a console."""

    def __init__(
        self,
        settings: ConsoleSettings,
        clock: Clock,
        on_notice: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._bootstrap = settings.bootstrap
        self._config = dict(settings.client)
        self._limit_ms = settings.timeout * 1000
        self.reachability = Reachability(settings.bootstrap, clock, on_notice)
        self._slots = asyncio.Semaphore(_CLIENTS_MAX)
        self._threads = Threads(_THREADS)
        # The probe has a thread of its own, because requests without a response occupy others.
        self._probe_thread = Threads(1)
        self._idle = IdleClients()
        # The client of the last probe, unless no broker responded.
        self._probing: list[Client] = []
        # What the probes have learned.
        self.links = LinkSupport()
        self._is_closed = False

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers."""
        return self._bootstrap

    @property
    def config(self) -> dict[str, str]:
        """The configuration of the clients of this request, without the bootstrap servers."""
        return self._config_of(acting_user.get())

    def _config_of(self, user: ActingUser | None) -> dict[str, str]:
        if user is None:
            return dict(self._config)
        return {**without_login(self._config), **dict(user.client)}

    async def call(
        self,
        load: Callable[[Client], T],
        limit_ms: float | None = None,
        *,
        needs_brokers: bool = True,
    ) -> T:
        """Run `load` with a client in a thread, and return its result.

        Args:
            load: The function.
            limit_ms: Limit for all its calls together; None for that of a page.
            needs_brokers: Whether to fail at once while no broker responds.

        Raises:
            ClusterDownError: No broker responds, or they stopped responding.
            ClientError: `load` raised it.
            TimeoutError: The calls of `load` took longer than the limit together.
        """
        user = acting_user.get()
        limit = limit_ms or self._limit_ms

        def run(idle: tuple[Client | None, list[Client]]) -> T:
            kept, surplus = idle
            _close(surplus)
            client = kept or Client(self._bootstrap, **self._config_of(user))
            client.limit_total(limit)
            is_usable = False
            try:
                result = load(client)
                is_usable = True
                return result
            finally:
                # After an error the next request starts with new connections.
                if is_usable and not self._is_closed:
                    self._idle.give_back(user, client)
                else:
                    client.close()

        if needs_brokers:
            self._check_up()
        async with self._slots:
            if needs_brokers:
                self._check_up()
            idle = self._idle.take(user)
            running = self._threads.run(lambda: run(idle))
            return await (self.reachability.unless_down(running) if needs_brokers else running)

    async def call_once(
        self, load: Callable[[Client], T], config: Mapping[str, str], limit_ms: float
    ) -> T:
        """Run `load` with a new client that has other settings and another limit."""
        own = {**self.config, **config}

        def run() -> T:
            with Client(self._bootstrap, **own) as client:
                client.limit_total(limit_ms)
                return load(client)

        self._check_up()
        async with self._slots:
            self._check_up()
            return await self.reachability.unless_down(self._threads.run(run))

    def _check_up(self) -> None:
        if self.reachability.is_down:
            raise self.reachability.down_error()

    async def probe_forever(self) -> None:
        """Ask whether the brokers respond, until the task is canceled."""
        while True:
            await self.probe()
            is_well = not self.reachability.error
            await asyncio.sleep(_PROBE_INTERVAL_S if is_well else _RETRY_S)

    async def probe(self) -> None:
        """Ask once whether the brokers respond."""
        kept = self._probing

        def ask() -> int:
            if not kept:
                kept.append(Client(self._bootstrap, **{**self._config, **_PROBE_CONFIG}))
                self.links.begin()
            try:
                found = kept[0].describe_cluster().brokers
                self.links.learn(lambda: may_have_links(kept[0], found))
                return len(found)
            except ClientError:
                kept.pop().close()
                raise

        try:
            self.reachability.succeed(await self._probe_thread.run(ask))
        except (AuthenticationError, BrokerError) as error:
            # A broker responds, and pages get this error at once.
            self.reachability.succeed(0)
            self.reachability.error = str(error)
        except ClientError as error:
            self.reachability.fail(str(error))
        except Exception:  # noqa: BLE001 - logged with its traceback
            # A fault here must not end the probes. Pages find out themselves what is wrong.
            _log.exception("Probe failed")

    def consumer(self, **config: Any) -> aio.Consumer:
        """Return a consumer without a group, which reads small fetches and commits nothing."""
        own = {key: value for key, value in self.config.items() if key not in _GROUP_KEYS}
        limits = {
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": str(_FETCH_BYTES),
            "max.partition.fetch.bytes": str(_PARTITION_BYTES),
        }
        self._check_up()
        return aio.Consumer(bootstrap_servers=self._bootstrap, **{**own, **limits, **config})

    async def close(self) -> None:
        """Close the idle clients; those in use are closed after their call."""
        self._is_closed = True
        # A blocking client runs its own event loop, which this thread cannot while it runs one.
        await asyncio.to_thread(self._close_idle)

    def _close_idle(self) -> None:
        self._probe_thread.close()
        self._threads.close()
        _close(self._probing)
        self._idle.close()


def _close(clients: Iterable[Client]) -> None:
    for client in clients:
        client.close()
