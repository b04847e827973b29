"""What surrounds all pages: links with the prefix of a cluster, navigation, log-in and notices.

A console of one cluster has one frame, at "/". With several clusters, the frame of each is below
`/NAME`, and the frame at "/" has the list of clusters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import HTMLResponse, RedirectResponse

from barnabas.console.access.audit import Actor, AuditLog
from barnabas.console.access.proxy import TrustedProxy
from barnabas.console.access.rate_limits import RateLimit
from barnabas.console.access.sessions import Session, Sessions
from barnabas.console.access.users import Role
from barnabas.console.forms import NO_DRAFT
from barnabas.console.navigation import navigation
from barnabas.console.rendering import Renderer, assets
from barnabas.runtime.clock import SystemClock
from barnabas.runtime.rng import SystemRng

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

    from barnabas.console.navigation import Entry
    from barnabas.console.settings import ConsoleSettings
    from barnabas.runtime.clock import Clock


class Announcements(NamedTuple):
    """Functions that tell the terminal of the console what happens."""

    # Called with each new one-time password.
    password: Callable[[str], None]
    # Called with a text when the brokers of a cluster begin or stop to respond.
    notice: Callable[[str], None] = lambda _text: None


class Shared:
    """What all clusters of a console share: sessions, roles, limits and the audit log.

    Args:
        settings: What the command line gives.
        announce: What the console tells its terminal.
        open_audit: Opens the audit log.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        announce: Announcements,
        open_audit: Callable[[str | None, Clock], AuditLog] = AuditLog,
    ) -> None:
        self.settings = settings
        login = settings.login
        self.clock = SystemClock()
        self.rng = SystemRng()
        self.sessions = Sessions(self.clock, self.rng, login.password, announce.password)
        self.announce = announce
        self.proxy = TrustedProxy(
            login.user_header, login.groups_header, login.trusted_proxies, login.roles
        )
        self.audit = open_audit(settings.audit_log, self.clock)
        self.limit = RateLimit(settings.costly_per_minute, self.clock)
        self.assets = assets()
        # The names of the clusters; empty if there is only one.
        self.cluster_names = [each.name for each in settings.clusters]
        # Path and title of the first page of each cluster, after that of the list.
        self.switches = [
            ("/", "All clusters"),
            *((f"/{each}/", each) for each in self.cluster_names),
        ]

    def session_of(self, request: Request, cluster: str) -> Session | None:
        """Return the session of a browser on a cluster; None if it is not logged in there.

        Args:
            request: The request.
            cluster: The name of the cluster; "" for the pages of no cluster.
        """
        if "session" in request.scope:
            # The process of records gets the session with each request.
            found: Session | None = request.scope["session"]
            return found
        user = self.proxy.user(request)
        if user is not None:
            return self.sessions.of_proxy(user)
        session = self.sessions.of_browser(request.cookies.get(self.sessions.cookie))
        if session is None or session.user.cluster not in (None, cluster):
            return None
        return session


class Frame:
    """The frame of the pages below one prefix.

    Args:
        shared: What all clusters of the console share.
        settings: The settings of the cluster of these pages.
        name: The name of the cluster; "" if the pages are at "/".
    """

    def __init__(self, shared: Shared, settings: ConsoleSettings, name: str = "") -> None:
        self.shared = shared
        self.settings = settings
        self.name = name
        # The path below which the pages are, such as "/east"; "" if they are at "/".
        self.prefix = f"/{name}" if name else ""
        self.clock = shared.clock
        self.sessions = shared.sessions
        self.assets = shared.assets
        # The links at the top of the pages, from the modules of pages.
        self.entries: list[Entry] = []
        self._renderer = Renderer(shared.assets, self.prefix)

    @property
    def title(self) -> str:
        """What users call the cluster."""
        return self.name or self.settings.bootstrap

    def session_of(self, request: Request) -> Session | None:
        """Return the session of the browser; None if it is not logged in."""
        return self.shared.session_of(request, self.name)

    def role_of(self, request: Request) -> Role:
        """Return what the user of the browser may do here."""
        session = self.session_of(request)
        return Role.VIEWER if session is None or not self.settings.allow_changes else session.role

    def actor(self, request: Request, session: Session | None) -> Actor:
        """Return the user that sent a request, for the audit log."""
        address = self.shared.proxy.address(request)
        if session is None:
            return Actor("", "", "", address)
        return Actor(session.user.name, session.user.source, session.role.title, address)

    def path(self, request: Request) -> str:
        """Return the path of a request without the prefix of the cluster."""
        return request.url.path.removeprefix(self.prefix) or "/"

    def redirect(self, page: str) -> RedirectResponse:
        """Return a redirect to a page, after a form.

        Args:
            page: Path and query, without the prefix of the cluster.
        """
        return RedirectResponse(self.prefix + page, 303)

    def page(
        self, request: Request, template: str, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Return a page.

        Args:
            template: Name of the template.
            status: Status of the response.
            values: Values for the template.
        """
        text = self._renderer.render(template, {**self.surroundings(request), **values})
        return HTMLResponse(text, status)

    @property
    def shown_entries(self) -> Sequence[Entry]:
        """The entries of the navigation. A cluster may be without some of them."""
        return self.entries

    def surroundings(self, request: Request) -> dict[str, Any]:
        """Return the values that all templates use."""
        session = self.session_of(request)
        is_opened = takes_notices(request)
        role, path = self.role_of(request), self.path(request)
        return {
            "path": path,
            "here": path + (f"?{request.url.query}" if request.url.query else ""),
            "navigation": navigation(self.shown_entries, path, self.settings),
            "bootstrap": self.settings.bootstrap,
            "cluster_name": self.name,
            "cluster_names": self.shared.cluster_names,
            "switches": self.shared.switches,
            "allow_changes": self.settings.allow_changes,
            "has_login": self.settings.has_login,
            "session": session,
            "role": role,
            "can_change": role >= Role.OPERATOR,
            "can_administer": role >= Role.ADMIN,
            "csrf": session.csrf if session is not None else "",
            "notices": session.take_notices() if session is not None and is_opened else [],
            "draft": session.take_draft() if session is not None and is_opened else NO_DRAFT,
            "interval": None,
            # Seconds after which the browser loads the page again.
            "reload_s": None,
            "sample_error": "",
            "outage": None,
            # Advice of problem.html.
            "right": "",
        }


def takes_notices(request: Request) -> bool:
    """Return whether the page of a request shows the notices of its session.

    A script that refreshes a page must not take the notices of another tab.
    """
    return request.headers.get("sec-fetch-mode", "navigate") == "navigate"


def frame_of(request: Request) -> Frame:
    """Return the frame of the page that handles a request."""
    found = request.app.state.frame
    assert isinstance(found, Frame)
    return found
