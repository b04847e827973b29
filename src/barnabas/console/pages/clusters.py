"""The list of clusters, which is the first page of a console with several clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from starlette.exceptions import HTTPException
from starlette.routing import Route

from barnabas.console.frame import frame_of
from barnabas.console.navigation import Entry
from barnabas.console.tables import Column, tabulate

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.console.console import Console


async def show_clusters(request: Request) -> Response:
    """Show the clusters. The page asks no broker: it shows what samples and probes found."""
    frame = frame_of(request)
    rows = [_row(each) for each in request.app.state.consoles if _may_see(request, each)]
    if not rows:
        raise HTTPException(403, "your log-in is not valid for any of the clusters: log in again")
    table = tabulate(
        request,
        _COLUMNS,
        rows,
        text=lambda row: f"{row.name} {row.bootstrap} {row.state}",
        sort="name",
    )
    return frame.page(request, "clusters.html", table=table)


def _may_see(request: Request, console: Console) -> bool:
    return not console.settings.login_to_read or console.session_of(request) is not None


class ClusterRow(NamedTuple):
    """A cluster in the list; None for facts that no sample has found."""

    name: str
    # Path below which its pages are.
    prefix: str
    bootstrap: str
    is_down: bool
    # Whether a probe has ended.
    is_known: bool
    since_ms: int | None
    error: str
    brokers: int | None
    topics: int | None
    # Partitions without a leader, or with a replica that is out of sync.
    unwell: int | None
    records_in: float | None

    @property
    def state(self) -> str:
        """The state in words."""
        if self.is_down:
            return "no broker responds"
        if not self.is_known:
            return "connecting"
        if self.error:
            return "responds with errors"
        return "has problems" if self.unwell else "healthy"


_COLUMNS: tuple[Column[ClusterRow], ...] = (
    Column("name", "Cluster", lambda row: row.name),
    Column("state", "State", lambda row: row.state),
    Column("since", "Since", lambda row: row.since_ms, "moment"),
    Column("brokers", "Brokers", lambda row: row.brokers, "number"),
    Column("topics", "Topics", lambda row: row.topics, "number"),
    Column("problems", "Partitions with problems", lambda row: row.unwell, numeric=True),
    Column("records", "Records in/s", lambda row: row.records_in, "rate"),
    Column("bootstrap", "Bootstrap servers", lambda row: row.bootstrap, "name"),
)


def _row(console: Console) -> ClusterRow:
    reachability, history = console.cluster.reachability, console.history
    sample, rates = history.latest, history.rates
    return ClusterRow(
        name=console.name,
        prefix=console.prefix,
        bootstrap=console.settings.bootstrap,
        is_down=reachability.is_down,
        is_known=reachability.is_down or reachability.seen_ms is not None,
        since_ms=reachability.down_since_ms or reachability.up_since_ms,
        error=reachability.error or history.error,
        brokers=reachability.brokers,
        topics=None if sample is None else len(sample.topics),
        unwell=None if sample is None else sum(t.unwell for t in sample.topics.values()),
        records_in=None if rates is None else sum(t.records_in for t in rates.topics.values()),
    )


NAVIGATION = [
    Entry("Clusters", "Clusters", "/"),
    Entry("Audit", "Audit", "/audit", is_shown=lambda settings: settings.keeps_audit),
]
ROUTES = [Route("/", show_clusters)]
