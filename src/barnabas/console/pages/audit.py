"""The audit log: the changes that users made or were refused, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.routing import Route

from barnabas.console.access.audit import ENTRIES_MAX
from barnabas.console.frame import frame_of
from barnabas.console.navigation import Entry
from barnabas.console.tables import Column, tabulate

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def show_audit(request: Request) -> Response:
    """Show the entries of this cluster, or of all clusters."""
    frame = frame_of(request)
    settings = frame.settings
    if settings.has_login and frame.session_of(request) is None:
        raise HTTPException(403, "log in first: the audit log has names and addresses")
    audit = frame.shared.audit
    rows = [each for each in audit.entries if not frame.name or each.get("cluster") == frame.title]
    # The page of one cluster needs no column for it.
    shows_cluster = not frame.name and bool(frame.shared.cluster_names)
    columns = [each for each in _COLUMNS if each.key != "cluster" or shows_cluster]
    return frame.page(
        request,
        "audit.html",
        table=tabulate(request, columns, rows, text=str),
        most=ENTRIES_MAX,
        file=audit.path,
    )


_COLUMNS: tuple[Column[dict[str, Any]], ...] = (
    Column("time", "Time", lambda each: each["time"], style="time"),
    Column("cluster", "Cluster", lambda each: each.get("cluster", ""), "text"),
    Column("user", "User", lambda each: each["user"], style="name"),
    Column("address", "Address", lambda each: each["address"], "name"),
    Column("action", "Action", lambda each: each["action"], style="wide"),
    Column("result", "Result", lambda each: each["result"], style="wide"),
)


NAVIGATION = [
    Entry("Security", "Audit", "/audit", is_shown=lambda settings: settings.keeps_audit),
]
ROUTES = [Route("/audit", show_audit)]
