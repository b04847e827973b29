"""`barnabas top`: show the current load of a cluster, live or once."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import (
    ClientOptions,
    client_options,
    connected,
    echo_json,
    fail,
    metrics_option,
    queries_option,
)
from barnabas.cli.common.printable import counted, printable
from barnabas.cli.common.tables import bad, console, dim, good, table, warn
from barnabas.cli.common.terminal import quit_by_key
from barnabas.cli.common.units import NumberRange, amount, size
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from barnabas.cli.load.rates import Rates, Sampler, TopicRates

EXAMPLES = """\b
Examples:
  barnabas top
  barnabas top --metrics 127.0.0.1:9308 --interval 1
  barnabas top --queries 127.0.0.1:9309
  barnabas top --once --json
  barnabas top -b broker.example:9092 --internal --groups 100

\b
Record rates and lag come from the Kafka protocol. Outgoing bytes, requests, connections,
principals, purgatories, CPU and memory come from the metrics listeners given by --metrics, and so
do the rates of clients. Brokers measure only clients with a quota (barnabas quotas).
Streaming queries of Spark come from the drivers given by --queries. The key q and Ctrl-C end the
display.
"""
# A short timeout, because DescribeQuorum is not answered while the quorum has no leader.
_DEFAULTS = {"request.timeout.ms": "3000"}


@click.command(epilog=EXAMPLES)
@click.option(
    "-i",
    "--interval",
    type=NumberRange(0.2),
    default=2.0,
    show_default=True,
    help="Seconds between two samples.",
)
@metrics_option
@queries_option
@click.option("--internal", is_flag=True, help="Include internal topics.")
@click.option(
    "--groups",
    "groups_max",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Examine at most N groups.",
)
@click.option("--once", is_flag=True, help="Show one interval and end.")
@client_options
def top(
    interval: float,
    metrics: Sequence[str],
    queries: Sequence[str],
    internal: bool,
    groups_max: int,
    once: bool,
    options: ClientOptions,
) -> None:
    """Show the rates of topics, the lag of groups and the load of brokers."""
    from barnabas.cli.load.metrics import MetricsError
    from barnabas.cli.load.rates import Sampler

    if options.as_json and not once:
        raise click.UsageError("--json requires --once")
    if not once and not sys.stdout.isatty():
        raise click.UsageError("not a terminal: give --once, and --json for scripts")
    with connected(options, _DEFAULTS) as client:
        sampler = Sampler(client, metrics, queries, internal=internal, groups=groups_max)
        try:
            if once:
                _show_once(sampler, interval, as_json=options.as_json)
            else:
                _show_live(sampler, interval)
        except MetricsError as error:
            fail(str(error))


def _show_once(sampler: Sampler, interval: float, *, as_json: bool) -> None:
    from barnabas.cli.load.rates import rates_between

    before = sampler.take()
    time.sleep(interval)
    rates = rates_between(before, sampler.take())
    if as_json:
        echo_json(rates.as_json())
    else:
        console().print(render(rates, None, interval))


def _show_live(sampler: Sampler, interval: float) -> None:
    from rich.live import Live

    from barnabas.cli.load.metrics import MetricsError
    from barnabas.cli.load.rates import rates_between

    before, rates = sampler.take(), None
    with (
        quit_by_key() as keyboard,
        Live(
            render(None, None, interval), console=console(), screen=True, auto_refresh=False
        ) as live,
    ):
        while not keyboard.pause(interval):
            error_text = None
            try:
                after = sampler.take()
                rates, before = rates_between(before, after), after
            except (ClientError, MetricsError) as error:
                error_text = f"no answer; these values are from the last answer: {error}"
            live.update(render(rates, error_text, interval, live=True), refresh=True)


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
            _clients(rates),
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


def _clients(rates: Rates) -> tuple[Sequence[str], list[tuple[object, ...]]]:
    columns = ("client id", "user", "bytes/s in", "bytes/s out", "throttled")
    rows: list[tuple[object, ...]] = []
    ranked = sorted(
        rates.clients.items(), key=lambda item: (-item[1].bytes_in - item[1].bytes_out, item[0])
    )
    for name, client in ranked[:_PRINCIPALS_MAX]:
        throttled = warn(f"{amount(client.throttle_ms)} ms") if client.throttle_ms else dim(None)
        cells = (name.client_id or dim(None), name.user or dim(None))
        rows.append((*cells, size(client.bytes_in), size(client.bytes_out), throttled))
    if len(ranked) > _PRINCIPALS_MAX:
        rows.append((dim(f"… {len(ranked) - _PRINCIPALS_MAX} more"), *[""] * 4))
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
