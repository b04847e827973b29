"""The screen of `barnabas top`: a heading, a table for each kind of thing, and the keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from barnabas.cli.common.printable import counted, printable
from barnabas.cli.common.tables import bad, dim, good, table, warn
from barnabas.cli.common.units import amount, short_time, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType
    from rich.text import Text

    from barnabas.cli.load.rates import ApiRates, ClientRates, GroupSample, Rates, TopicRates
    from barnabas.server.listeners.client_traffic import ClientKey

    Columns = tuple[Sequence[str], list[tuple[object, ...]]]

# Orders of the rows by their key.
SORTS = {"b": "bytes", "r": "rate", "l": "lag", "n": "name"}
# Lines of a table besides its rows: an empty one, the heading, and the number of further rows.
_TABLE_LINES = 3
_HEAD_AND_KEYS_LINES = 4
_NO_METRICS = (
    "no metrics listener: latency, clients, bytes out and the load of brokers are missing, because "
    "the Kafka protocol does not have them (--metrics)"
)


@dataclass(frozen=True, slots=True)
class Screen:
    """How the rates are shown."""

    # Seconds between two samples.
    interval: float
    # One of the values of SORTS.
    sort: str = "bytes"
    is_live: bool = False
    # Lines of the terminal of a live display; None for as many lines as needed.
    height: int | None = None
    # Number of tables that share the height.
    tables: int = 1
    # Number of lines about machines above the tables.
    machine_lines: int = 0

    def sorted_by(self, sort: str) -> Screen:
        """Return the screen with another order."""
        return replace(self, sort=sort)

    def sized(self, height: int) -> Screen:
        """Return the screen for a terminal of this height."""
        return replace(self, height=height)

    def rows(self, most: int) -> int:
        """Return the number of rows of a table, at most `most`."""
        if self.height is None:
            return most
        each = (self.height - _HEAD_AND_KEYS_LINES - self.machine_lines) // max(1, self.tables)
        return max(2, min(most, each - _TABLE_LINES))


_APIS_MAX = 8
_CLIENTS_MAX = 8
_MACHINES_MAX = 8
_TOPICS_MAX = 15
_GROUPS_MAX = 10
_PRINCIPALS_MAX = 10
_QUERIES_MAX = 10
# A query of more topics shows their number.
_TOPICS_NAMED_MAX = 2
_STATES = {"Stable": good, "Empty": dim, "Dead": bad}


def render(rates: Rates | None, error_text: str | None, screen: Screen) -> RenderableType:
    """Return the whole screen."""
    from rich.console import Group
    from rich.layout import Layout
    from rich.text import Text

    parts: list[RenderableType] = [_head(rates, screen)]
    if error_text is not None:
        parts.insert(0, Text(printable(error_text), style="bold red"))
    if rates is not None:
        machines = _machines(rates, is_live=screen.is_live)
        parts += machines
        tables = sum(map(bool, rates.kinds()))
        screen = replace(screen, tables=tables, machine_lines=len(machines))
        for make in (_apis, _clients, _topics, _groups, _processes, _principals):
            _add_table(parts, make(rates, screen))
        _add_table(parts, _queries(rates))
        if not rates.processes and not rates.silent:
            parts += [Text(""), Text(_NO_METRICS, style="dim")]
    body = Group(*parts)
    if not screen.is_live:
        return body
    layout = Layout()
    layout.split_column(Layout(body, name="body"), Layout(_keys(screen), name="keys", size=1))
    return layout


def _add_table(parts: list[RenderableType], made: Columns) -> None:
    from rich.text import Text

    columns, rows = made
    if rows:
        parts += [Text(""), table(columns, rows)]


def _keys(screen: Screen) -> RenderableType:
    from rich.text import Text

    footer = Text.assemble(("q", "bold"), (" quit   sort by", "dim"))
    for key, name in SORTS.items():
        style = "reverse" if name == screen.sort else "dim"
        shown = "lag, latency" if name == "lag" else name
        footer.append("  ").append(f"{key} {shown}", style=style)
    return footer


def _head(rates: Rates | None, screen: Screen) -> RenderableType:
    from rich.text import Text

    if rates is None:
        return Text("looking…", style="dim")
    hosts = sum(1 for machine in rates.machines if machine.brokers)
    on_machines = f" on {counted(hosts, 'machine')}" if hosts else ""
    head = Text.assemble(
        ("barnabas top", "bold"),
        f"  {counted(rates.brokers, 'broker')}{on_machines}  {counted(len(rates.topics), 'topic')}"
        f"  {counted(rates.group_count, 'group')}",
        (f"   every {screen.interval:g} s\n", "dim"),
        "in ",
        (f"{amount(rates.records_in)} records/s", "bold cyan"),
        f"  {size(rates.total(lambda topic: topic.bytes_in))}/s",
    )
    out = rates.total(lambda topic: topic.bytes_out)
    if out is not None:
        head.append(f"   out {size(out)}/s")
    return head


def _machines(rates: Rates, *, is_live: bool) -> list[Text]:
    """Return a line for each machine; those with a broker that is down come first.

    A live display cuts lines that are longer than the terminal is wide.
    """
    from rich.text import Text

    ranked = sorted(rates.machines, key=lambda machine: not machine.down)
    lines = [
        Text(
            printable(machine.line()),
            style="yellow" if machine.down else "",
            no_wrap=is_live,
            overflow="ellipsis",
        )
        for machine in ranked[:_MACHINES_MAX]
    ]
    if len(ranked) > _MACHINES_MAX:
        lines.append(Text(f"… {len(ranked) - _MACHINES_MAX} more machines", style="dim"))
    return lines


def _apis(rates: Rates, screen: Screen) -> Columns:
    """Return the APIs; a Fetch waits for data, so its times say little."""

    def rank(item: tuple[str, ApiRates]) -> tuple[float, str]:
        name, api = item
        by = {"name": 0.0, "lag": api.p99_ms or 0.0}
        return -by.get(screen.sort, api.requests), name

    rows: list[tuple[object, ...]] = [
        (name, amount(api.requests), short_time(api.p50_ms), short_time(api.p99_ms))
        for name, api in sorted(rates.apis.items(), key=rank)
    ]
    return ("api", "req/s", "p50", "p99"), _first(rows, screen.rows(_APIS_MAX))


def _clients(rates: Rates, screen: Screen) -> Columns:
    def rank(item: tuple[ClientKey, ClientRates]) -> tuple[float, str]:
        key, client = item
        by = {"name": 0.0, "rate": client.requests}
        return -by.get(screen.sort, client.bytes_in + client.bytes_out), key.client_id

    rows: list[tuple[object, ...]] = [
        (
            key.client_id or dim("(none)"),
            key.principal,
            amount(client.requests),
            size(client.bytes_in),
            size(client.bytes_out),
        )
        for key, client in sorted(rates.clients.items(), key=rank)
    ]
    columns = ("client", "principal", "req/s", "bytes/s sent", "bytes/s read")
    return columns, _first(rows, screen.rows(_CLIENTS_MAX))


def _first(rows: list[tuple[object, ...]], most: int) -> list[tuple[object, ...]]:
    """Return the first rows, and a row with the number of the others."""
    if len(rows) <= most:
        return rows
    return [*rows[:most], (dim(f"… {len(rows) - most} more"), *[""] * (len(rows[0]) - 1))]


def _processes(rates: Rates, _screen: Screen) -> Columns:
    columns = ("broker", "req/s", "cpu", "memory", "connections", "files", "waiting")
    rows: list[tuple[object, ...]] = []
    for address, process in rates.processes.items():
        waiting = " ".join(f"{k.lower()} {n}" for k, n in process.purgatories.items() if n)
        cpu = None if process.cpu is None else f"{process.cpu * 100:.0f} %"
        busy = process.cpu is not None and process.cpu > 0.9
        rows.append(
            (
                address,
                amount(process.requests),
                warn(cpu) if busy else cpu,
                size(process.resident_bytes),
                process.connections,
                process.open_files,
                waiting or dim(None),
            )
        )
    rows += [(address, bad("no answer"), *[dim(None)] * 5) for address in rates.silent]
    return columns, rows


def _topics(rates: Rates, screen: Screen) -> Columns:
    def rank(item: tuple[str, TopicRates]) -> tuple[float, float, str]:
        name, topic = item
        if screen.sort == "name":
            return 0.0, 0.0, name
        bytes_both = (topic.bytes_in or 0.0) + (topic.bytes_out or 0.0)
        return 0.0 if screen.sort == "rate" else -bytes_both, -topic.records_in, name

    columns = ("topic", "parts", "rec/s in", "bytes/s in", "bytes/s out", "size", "state")
    rows: list[tuple[object, ...]] = [
        (
            name,
            topic.partitions,
            amount(topic.records_in),
            size(topic.bytes_in),
            size(topic.bytes_out),
            size(topic.log_bytes),
            bad(f"{topic.unwell} unwell") if topic.unwell else good("well"),
        )
        for name, topic in sorted(rates.topics.items(), key=rank)
    ]
    return columns, _first(rows, screen.rows(_TOPICS_MAX))


def _groups(rates: Rates, screen: Screen) -> Columns:
    def rank(item: tuple[str, GroupSample]) -> tuple[float, float, str]:
        name, group = item
        if screen.sort == "name":
            return 0.0, 0.0, name
        return -(group.lag_seconds or 0.0) if screen.sort == "lag" else 0.0, -group.lag, name

    columns = ("group", "state", "members", "lag", "lag/s", "behind")
    rows: list[tuple[object, ...]] = []
    ranked = sorted(rates.groups.items(), key=rank)
    for name, group in ranked[: screen.rows(_GROUPS_MAX)]:
        growth = rates.lag_growth.get(name, 0.0)
        trend: object = dim("0")
        if growth:
            sign = "+" if growth > 0 else "-"
            trend = (warn if growth > 0 else good)(f"{sign}{amount(abs(growth))}")
        lag = warn(amount(group.lag)) if group.lag else good("0")
        behind = dim(None) if group.lag_seconds is None else _behind(group.lag_seconds)
        state = _STATES.get(group.state, warn)(group.state)
        rows.append((name, state, group.members, lag, trend, behind))
    if rates.group_count > len(rows):
        rows.append((dim(f"… {rates.group_count - len(rows)} more"), *[""] * 5))
    return columns, rows


def _behind(seconds: float) -> object:
    return warn(short_time(seconds * 1000)) if seconds else good("0 s")


def _principals(rates: Rates, screen: Screen) -> Columns:
    columns = ("principal", "connections", "listeners", "throttled")
    ranked = sorted(
        rates.principals.items(),
        key=lambda item: (-(item[1].throttle_ms or 0.0), -item[1].connections, item[0]),
    )
    rows: list[tuple[object, ...]] = [
        (
            name,
            each.connections,
            " ".join(sorted(each.listeners)),
            dim(None) if each.throttle_ms is None else warn(short_time(each.throttle_ms)),
        )
        for name, each in ranked
    ]
    return columns, _first(rows, screen.rows(_PRINCIPALS_MAX))


def _queries(rates: Rates) -> Columns:
    columns = ("query", "state", "rows/s", "batch", "lag", "state rows", "failures")
    rows: list[tuple[object, ...]] = []
    for address, queries in rates.queries.items():
        if queries is None:
            rows.append((address, dim("no answer"), *[dim(None)] * 5))
            continue
        # Those that run come first.
        ranked = sorted(queries.items(), key=lambda item: (not item[1].is_running, item[0]))
        for name, each in ranked[:_QUERIES_MAX]:
            rows.append(
                (
                    name,
                    good("running") if each.is_running else dim("ended"),
                    amount(each.rows_per_second),
                    None if each.batch_seconds is None else f"{each.batch_seconds:.1f} s",
                    _lag_of_topics(each.lag),
                    amount(each.state_rows),
                    bad(each.failures) if each.failures else each.failures,
                )
            )
        if len(ranked) > _QUERIES_MAX:
            rows.append((dim(f"… {len(ranked) - _QUERIES_MAX} more"), *[""] * 6))
    return columns, rows


def _lag_of_topics(lag: Mapping[str, int]) -> object:
    """Return the topics that a query reads, with its lag behind each or behind all of them."""
    if not lag:
        return dim(None)
    behind = sum(lag.values())
    text = (
        ", ".join(f"{topic} {amount(each)}" for topic, each in lag.items())
        if len(lag) <= _TOPICS_NAMED_MAX
        else f"{len(lag)} topics {amount(behind)}"
    )
    return warn(text) if behind else good(text)
