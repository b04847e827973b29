"""`barnabas top`: show the current load of a cluster."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import (
    EXIT_FAILED,
    client_options,
    connected,
    echo_json,
    metrics_option,
    problem,
    queries_option,
)
from barnabas.cli.common.units import NumberRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.cli.top.sample import Sampler

EXAMPLES = """\b
Examples:
  barnabas top
  barnabas top --metrics 127.0.0.1:9308 --interval 1
  barnabas top --queries 127.0.0.1:9309
  barnabas top --once --json
  barnabas top -b broker.example:9092 --internal --groups 100

\b
Record rates and lag come from the Kafka protocol. Outgoing bytes, requests, connections,
principals, purgatories, CPU and memory come from the metrics listeners given by --metrics.
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
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Show the rates of topics, the lag of groups and the load of brokers."""
    from barnabas.cli.top.metrics import MetricsError
    from barnabas.cli.top.sample import Sampler

    if as_json and not once:
        raise click.UsageError("--json requires --once")
    if not once and not sys.stdout.isatty():
        raise click.UsageError("not a terminal: give --once, and --json for scripts")
    with connected(bootstrap, properties, _DEFAULTS) as client:
        sampler = Sampler(client, metrics, queries, internal=internal, groups=groups_max)
        try:
            if once:
                _show_once(sampler, interval, as_json=as_json)
            else:
                _show_live(sampler, interval)
        except MetricsError as error:
            problem(str(error))
            sys.exit(EXIT_FAILED)


def _show_once(sampler: Sampler, interval: float, *, as_json: bool) -> None:
    from barnabas.cli.common.tables import console
    from barnabas.cli.top.rates import rates_between
    from barnabas.cli.top.screen import render

    before = sampler.take()
    time.sleep(interval)
    rates = rates_between(before, sampler.take())
    if as_json:
        echo_json(rates.as_json())
    else:
        console().print(render(rates, None, interval))


def _show_live(sampler: Sampler, interval: float) -> None:
    from rich.live import Live

    from barnabas.cli.common.keys import quit_by_key
    from barnabas.cli.common.tables import console
    from barnabas.cli.top.metrics import MetricsError
    from barnabas.cli.top.rates import rates_between
    from barnabas.cli.top.screen import render
    from barnabas.client.errors import ClientError

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
