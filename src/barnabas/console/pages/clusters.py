"""The list of clusters, which is the first page of a console with several clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.routing import Route

from barnabas.console.frame import frame_of
from barnabas.console.navigation import Entry

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.console.console import Console


async def show_clusters(request: Request) -> Response:
    """Show the clusters. The page asks no broker: it shows what samples and probes found."""
    frame = frame_of(request)
    rows = [_row(each) for each in request.app.state.consoles if _may_see(request, each)]
    if not rows:
        raise HTTPException(403, "your log-in is for none of the clusters")
    return frame.page(request, "clusters.html", rows=rows)


def _may_see(request: Request, console: Console) -> bool:
    return not console.settings.login_to_read or console.session_of(request) is not None


def _row(console: Console) -> dict[str, Any]:
    reachability, history = console.cluster.reachability, console.history
    sample, rates = history.latest, history.rates
    return {
        "name": console.name,
        "prefix": console.prefix,
        "bootstrap": console.settings.bootstrap,
        "is_down": reachability.is_down,
        "is_known": reachability.is_down or reachability.seen_ms is not None,
        "since_ms": reachability.down_since_ms or reachability.up_since_ms or -1,
        "error": reachability.error or history.error,
        "brokers": reachability.brokers,
        "topics": None if sample is None else len(sample.topics),
        "unwell": None if sample is None else sum(t.unwell for t in sample.topics.values()),
        "records_in": None if rates is None else sum(t.records_in for t in rates.topics.values()),
    }


NAVIGATION = [
    Entry("Clusters", "Clusters", "/"),
    Entry("Audit", "Audit", "/audit", is_shown=lambda settings: settings.keeps_audit),
]
ROUTES = [Route("/", show_clusters)]
