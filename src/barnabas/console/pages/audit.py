"""The audit log: the changes that users made or were refused, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.routing import Route

from barnabas.console.access.audit import ENTRIES_MAX
from barnabas.console.forms import query_fields
from barnabas.console.frame import frame_of
from barnabas.console.navigation import Entry
from barnabas.console.rendering import paged

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def show_audit(request: Request) -> Response:
    """Show the entries of this cluster, or of all clusters."""
    frame, query = frame_of(request), query_fields(request)
    settings = frame.settings
    if settings.has_login and frame.session_of(request) is None:
        raise HTTPException(403, "log in first: the audit log has names and addresses")
    audit, words = frame.shared.audit, query.stripped("q").lower().split()
    rows = [
        each
        for each in audit.entries
        if (not frame.name or each.get("cluster") == frame.title)
        and all(word in str(each).lower() for word in words)
    ]
    return frame.page(
        request,
        "audit.html",
        page=paged(rows, query.number("page", 1)),
        most=ENTRIES_MAX,
        file=audit.path,
        q=query.stripped("q"),
        shows_cluster=not frame.name and bool(frame.shared.cluster_names),
    )


NAVIGATION = [
    Entry("Security", "Audit", "/audit", is_shown=lambda settings: settings.keeps_audit),
]
ROUTES = [Route("/audit", show_audit)]
