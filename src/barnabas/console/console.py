"""The parts of a running console of one cluster, which its pages and changes use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from starlette.responses import HTMLResponse

from barnabas.console.access.broker_users import Brokers
from barnabas.console.access.users import Role, acting_user
from barnabas.console.cluster_access import ClusterAccess
from barnabas.console.cluster_history import History
from barnabas.console.connect.rest import ConnectCluster
from barnabas.console.forms import query_fields
from barnabas.console.frame import Frame, Shared, frame_of
from barnabas.console.history.topic_facts import TopicFacts
from barnabas.console.last_pages import LastPage, LastPages
from barnabas.console.messages.formats import Decoders, Formats
from barnabas.console.messages.masking import Masks
from barnabas.console.messages.record_view import RecordView
from barnabas.console.messages.schema_decoding import SchemaDecoder
from barnabas.console.navigation import LINKS_PAGE
from barnabas.console.search.expressions import ExpressionFilter
from barnabas.console.search.jobs import SearchJobs
from barnabas.console.search.streams import Streams
from barnabas.console.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from starlette.requests import Request

    from barnabas.console.forms import Fields
    from barnabas.console.navigation import Entry
    from barnabas.console.settings import ConsoleSettings

_SEARCHES_MAX = 2
_EXAMINATIONS_MAX = 2
_HASH_KEY_BYTES = 32
# How soon a page that shows an outage is loaded again (s).
RELOAD_S = 10
# Requests to registries and Connect clusters at once; others wait.
_SERVICE_CALLS_MAX = 4

T = TypeVar("T")


class Outage(NamedTuple):
    """Brokers that do not respond, for the banner of all pages."""

    # Since when (ms, wall clock); None if that is not known yet.
    since_ms: int | None
    error: str
    # When the contents of the page were read (ms, wall clock); None if there are none.
    made_ms: int | None


class Console(Frame):
    """The pages of one cluster, with their clients, samples and limits.

    Args:
        shared: What all clusters of the console share.
        settings: The settings of the cluster.
        name: The name of the cluster; "" if it is the only one.
    """

    def __init__(self, shared: Shared, settings: ConsoleSettings, name: str = "") -> None:
        super().__init__(shared, settings, name)
        registry = settings.registry
        schemas = None if registry is None else SchemaDecoder(registry, self.clock)
        self.decoders = Decoders(schemas, settings.formats)
        self.masks = Masks(settings.masks, shared.rng.token(_HASH_KEY_BYTES))
        self.streams = Streams()
        # Costly requests at once; others wait.
        self.searching = asyncio.Semaphore(_SEARCHES_MAX)
        self.examining = asyncio.Semaphore(_EXAMINATIONS_MAX)
        self._service_threads = Threads(_SERVICE_CALLS_MAX)
        # Connect clusters by name.
        self.connect = {
            each.name: ConnectCluster(each, settings.timeout) for each in settings.connect
        }
        self.cluster = ClusterAccess(settings, self.clock, shared.announce.notice)
        self.history = History(self.cluster, settings)
        self.topic_facts = TopicFacts(self.clock)
        self.expressions = ExpressionFilter()
        self.jobs = SearchJobs(
            self.clock, shared.rng, settings.search, self.cluster.consumer, self.expressions
        )
        self.brokers = Brokers(name, settings.bootstrap, settings.client)
        self._last_pages = LastPages()

    @property
    def shown_entries(self) -> Sequence[Entry]:
        """The entries of the navigation, without links on brokers that have none."""
        if self.cluster.links.may_have:
            return self.entries
        return [each for each in self.entries if each.path != LINKS_PAGE]

    async def run(self) -> None:
        """Take samples and ask whether the brokers respond, until the task is canceled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.cluster.probe_forever())
            tasks.create_task(self.history.run())

    async def close(self) -> None:
        """Keep the samples, and close the clients, after `run` has ended."""
        await self.jobs.close()
        self.expressions.close()
        await self.history.close()
        await self.cluster.close()
        await asyncio.to_thread(self._service_threads.close)
        await asyncio.to_thread(self.decoders.close)

    async def call_service(self, load: Callable[[], T]) -> T:
        """Run a function that sends requests to a registry or a Connect cluster, in a thread."""
        return await self._service_threads.run(load)

    def record_view(self, request: Request) -> RecordView:
        """Return how the records of this request are shown: decoded by choice, and masked."""
        query = query_fields(request)
        reveal = self._reveals(request, query)
        return RecordView(self.decoders, self.masks, Formats.of(query), reveal=reveal)

    def _reveals(self, request: Request, query: Fields) -> bool:
        return query.has("reveal") and self.role_of(request) >= Role.ADMIN

    def audit_revealing(self, request: Request) -> None:
        """Add a request to the audit log if it may show what a mask hides.

        Raises:
            AuditError: The entry cannot be written.
        """
        query = query_fields(request)
        if self._reveals(request, query) and self.masks.of(query.stripped("topic")).can_reveal:
            actor = self.actor(request, self.session_of(request))
            fields = query.all_but()
            self.shared.audit.add(actor, self.title, self.path(request), fields, "revealed")

    def page(
        self, request: Request, template: str, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Return a page, and keep its contents for times when no broker responds.

        Args:
            template: Name of the template.
            status: Status of the response.
            values: Values for the template.
        """
        response = super().page(request, template, status, **values)
        if request.method == "GET" and status == 200 and not self.cluster.reachability.error:
            made = LastPage(template, values, len(response.body), self.clock.wall_ms())
            self._last_pages.keep(self._key(request), made)
        return response

    def surroundings(self, request: Request) -> dict[str, Any]:
        """Return the values that all templates use."""
        reachability = self.cluster.reachability
        outage = None
        if reachability.is_down:
            outage = Outage(reachability.down_since_ms, reachability.error, None)
        return {
            **super().surroundings(request),
            "interval": self.history.interval,
            "sample_error": "" if outage else self.history.error or self.history.file_error,
            "outage": outage,
        }

    def last_page(self, request: Request, error: str) -> HTMLResponse | None:
        """Return the page as it was when brokers responded; None if it was not shown then.

        Args:
            request: The request, whose brokers do not respond.
            error: The error.
        """
        kept = self._last_pages.find(self._key(request)) if request.method == "GET" else None
        if kept is None:
            return None
        outage = Outage(self.cluster.reachability.down_since_ms, error, kept.made_ms)
        # A form could not be sent to the brokers.
        now = {
            "outage": outage,
            "reload_s": RELOAD_S,
            "can_change": False,
            "can_administer": False,
        }
        values = {**self.surroundings(request), **kept.values, **now}
        return HTMLResponse(self._renderer.render(kept.template, values))

    def _key(self, request: Request) -> Hashable:
        # What a page shows depends on the rights of the user at the cluster, and on the role.
        role = self.role_of(request)
        return acting_user.get(), role, request.url.path, request.url.query

    def fragment(self, template: str, **values: Any) -> str:
        """Return a part of a page as HTML."""
        return self._renderer.render(template, values)


def console_of(request: Request) -> Console:
    """Return the console of the cluster of a request."""
    found = frame_of(request)
    assert isinstance(found, Console)
    return found
