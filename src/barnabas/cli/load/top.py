"""`barnabas top`: show the current load of a cluster, live or once."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
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
from barnabas.cli.common.tables import console
from barnabas.cli.common.terminal import QUIT_KEY, quit_by_key
from barnabas.cli.common.units import Seconds
from barnabas.cli.load.top_screen import SORTS, Screen, render
from barnabas.client.errors import ClientError
from barnabas.runtime.sockets import is_wildcard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.cli.load.rates import Sampler
    from barnabas.client.facade import Client

EXAMPLES = """\b
Examples:
  barnabas top
  barnabas top --metrics 127.0.0.1:9308 --interval 1 --sort lag
  barnabas top --queries 127.0.0.1:9309
  barnabas top --once --json
  barnabas top -b broker.example:9092 --internal --groups 100

\b
Record rates and the lag of groups, in records and seconds, come from the Kafka protocol, so any
Kafka cluster has them. Latency by API, clients, outgoing bytes, connections, principals,
purgatories, CPU and memory come from the metrics listeners of Barnabas: those given by --metrics,
or else those that the brokers name in metrics.listener. Streaming queries of Spark come from the
drivers given by --queries.

\b
Keys: q and Ctrl-C end the display; b, r, l and n sort by bytes, rate, lag or name. With l, APIs
are sorted by latency.
"""
# A short timeout, because DescribeQuorum is not answered while the quorum has no leader.
_DEFAULTS = {"request.timeout.ms": "3000"}


@click.command(epilog=EXAMPLES)
@click.option(
    "-i",
    "--interval",
    type=Seconds(0.2),
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
@click.option(
    "--sort",
    type=click.Choice(list(SORTS.values())),
    default="bytes",
    show_default=True,
    help="Order of the rows; APIs are sorted by latency instead of lag.",
)
@click.option("--once", is_flag=True, help="Show one interval and end.")
@client_options
def top(
    interval: float,
    metrics: Sequence[str],
    queries: Sequence[str],
    internal: bool,
    groups_max: int,
    sort: str,
    once: bool,
    options: ClientOptions,
) -> None:
    """Show the load of topics, groups, APIs, clients and brokers."""
    from barnabas.cli.load.lag_age import LagAges
    from barnabas.cli.load.metrics import MetricsError
    from barnabas.cli.load.rates import Sampler

    if options.as_json and not once:
        raise click.UsageError("--json requires --once")
    if not once and not sys.stdout.isatty():
        raise click.UsageError("not a terminal: give --once, and --json for scripts")
    with connected(options, _DEFAULTS) as client:
        sampler = Sampler(
            client,
            metrics or _named_listeners(client),
            queries,
            internal=internal,
            groups=groups_max,
            ages=LagAges(client),
        )
        try:
            if once:
                _show_once(sampler, Screen(interval, sort), as_json=options.as_json)
            else:
                _show_live(sampler, Screen(interval, sort, is_live=True))
        except MetricsError as error:
            fail(str(error))


def _named_listeners(client: Client) -> list[str]:
    """Return the metrics listeners that brokers name in their configuration and that answer."""
    from barnabas.cli.load.metrics import MetricsError, scrape

    found: list[str] = []
    # The client may lack the right to read configs.
    with suppress(ClientError):
        for broker in client.describe_cluster().brokers:
            configs = {each.name: each.value for each in client.describe_broker_configs(broker.id)}
            host, _, port = (configs.get("metrics.listener") or "").rpartition(":")
            if not host or port == "0":
                continue
            address = f"{broker.host if is_wildcard(host.strip('[]')) else host}:{port}"
            # The brokers of a node of several processes name the same listener. A listener may
            # serve another network only.
            with suppress(MetricsError):
                if address in found:
                    continue
                scrape(address)
                found.append(address)
    return found


def _show_once(sampler: Sampler, screen: Screen, *, as_json: bool) -> None:
    from barnabas.cli.load.rates import rates_between

    before = sampler.take()
    time.sleep(screen.interval)
    rates = rates_between(before, sampler.take())
    if as_json:
        echo_json(rates.as_json())
    else:
        console().print(render(rates, None, screen))


def _show_live(sampler: Sampler, screen: Screen) -> None:
    from rich.live import Live

    from barnabas.cli.load.metrics import MetricsError
    from barnabas.cli.load.rates import rates_between

    terminal = console()
    before, rates, error_text = sampler.take(), None, None
    due = time.monotonic() + screen.interval
    with (
        quit_by_key() as keyboard,
        Live(
            render(None, None, screen.sized(terminal.height)),
            console=terminal,
            screen=True,
            auto_refresh=False,
        ) as live,
    ):
        while True:
            key = keyboard.pause(max(0.0, due - time.monotonic()), "".join(SORTS))
            if key == QUIT_KEY:
                return
            if key:
                screen = screen.sorted_by(SORTS[key])
            else:
                due = time.monotonic() + screen.interval
                try:
                    after = sampler.take()
                    rates, before, error_text = rates_between(before, after), after, None
                except (ClientError, MetricsError) as error:
                    error_text = f"no answer; these values are from the last answer: {error}"
            live.update(render(rates, error_text, screen.sized(terminal.height)), refresh=True)
