"""The display of `top`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.printable import counted, printable
from barnabas.cli.common.tables import bad, dim, good, table, warn
from barnabas.cli.common.units import amount, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from barnabas.cli.top.rates import Rates, TopicRates

__all__ = ["render"]

_TOPICS_MAX = 15
_GROUPS_MAX = 10
_PRINCIPALS_MAX = 10
_QUERIES_MAX = 10
# A query of more topics shows their number.
_TOPICS_NAMED_MAX = 2
_STATES = {"Stable": good, "Empty": dim, "Dead": bad}


def render(
    rates: Rates | None, error_text: str | None, interval: float, *, live: bool = False
) -> RenderableType:
    """Return the whole screen: a heading, and a table for each kind of thing."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [_head(rates, interval, live=live)]
    if error_text is not None:
        parts.insert(0, Text(printable(error_text), style="bold red"))
    if rates is not None:
        for columns, rows in (
            _processes(rates),
            _topics(rates),
            _groups(rates),
            _principals(rates),
            _queries(rates),
        ):
            if rows:
                parts += [Text(""), table(columns, rows)]
    return Group(*parts)


def _head(rates: Rates | None, interval: float, *, live: bool) -> RenderableType:
    from rich.text import Text

    if rates is None:
        return Text("looking…", style="dim")
    head = Text.assemble(
        ("barnabas top", "bold"),
        f"  {counted(rates.brokers, 'broker')}  {counted(len(rates.topics), 'topic')}"
        f"  {counted(rates.group_count, 'group')}",
        (f"   every {interval:g} s", "dim"),
        ("   q ends\n" if live else "\n", "dim"),
        "in ",
        (f"{amount(rates.records_in)} records/s", "bold cyan"),
        f"  {size(rates.total(lambda topic: topic.bytes_in))}/s",
    )
    out = rates.total(lambda topic: topic.bytes_out)
    if out is not None:
        head.append(f"   out {size(out)}/s")
    return head


def _processes(rates: Rates) -> tuple[Sequence[str], list[tuple[object, ...]]]:
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
    return columns, rows


def _topics(rates: Rates) -> tuple[Sequence[str], list[tuple[object, ...]]]:
    def busiest(item: tuple[str, TopicRates]) -> tuple[float, str]:
        return -item[1].records_in - (item[1].bytes_out or 0.0), item[0]

    columns = ("topic", "parts", "rec/s in", "bytes/s in", "bytes/s out", "size", "state")
    rows: list[tuple[object, ...]] = []
    ranked = sorted(rates.topics.items(), key=busiest)
    for name, topic in ranked[:_TOPICS_MAX]:
        state = bad(f"{topic.unwell} unwell") if topic.unwell else good("well")
        rows.append(
            (
                name,
                topic.partitions,
                amount(topic.records_in),
                size(topic.bytes_in),
                size(topic.bytes_out),
                size(topic.log_bytes),
                state,
            )
        )
    if len(ranked) > _TOPICS_MAX:
        rows.append((dim(f"… {len(ranked) - _TOPICS_MAX} more"), *[""] * 6))
    return columns, rows


def _groups(rates: Rates) -> tuple[Sequence[str], list[tuple[object, ...]]]:
    columns = ("group", "state", "members", "lag", "lag/s")
    rows: list[tuple[object, ...]] = []
    ranked = sorted(rates.groups.items(), key=lambda item: (-item[1].lag, item[0]))
    for name, group in ranked[:_GROUPS_MAX]:
        growth = rates.lag_growth.get(name, 0.0)
        trend: object = dim("0")
        if growth:
            sign = "+" if growth > 0 else "-"
            trend = (warn if growth > 0 else good)(f"{sign}{amount(abs(growth))}")
        lag = warn(amount(group.lag)) if group.lag else good("0")
        rows.append((name, _STATES.get(group.state, warn)(group.state), group.members, lag, trend))
    if rates.group_count > len(rows):
        rows.append((dim(f"… {rates.group_count - len(rows)} more"), *[""] * 4))
    return columns, rows


def _principals(rates: Rates) -> tuple[Sequence[str], list[tuple[object, ...]]]:
    columns = ("principal", "connections", "listeners", "throttled")
    rows: list[tuple[object, ...]] = []
    ranked = sorted(
        rates.principals.items(),
        key=lambda item: (-(item[1].throttle_ms or 0.0), -item[1].connections, item[0]),
    )
    for name, principal in ranked[:_PRINCIPALS_MAX]:
        throttle_ms = principal.throttle_ms
        rows.append(
            (
                name,
                principal.connections,
                " ".join(sorted(principal.listeners)),
                dim(None) if throttle_ms is None else warn(f"{amount(throttle_ms)} ms"),
            )
        )
    if len(ranked) > _PRINCIPALS_MAX:
        rows.append((dim(f"… {len(ranked) - _PRINCIPALS_MAX} more"), *[""] * 3))
    return columns, rows


def _queries(rates: Rates) -> tuple[Sequence[str], list[tuple[object, ...]]]:
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
