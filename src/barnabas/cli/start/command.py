"""`barnabas start` as a click command, for help and usage errors; `start_broker` does the work."""

from __future__ import annotations

import sys
from typing import Any

import click

from barnabas.cli.start.start_broker import start_broker
from barnabas.cli.start.start_options import StartOptions

EXAMPLES = """\b
Examples:
  barnabas start
  barnabas start --listen 127.0.0.1:0 --data-dir /var/lib/barnabas
  barnabas start server.properties --set num.partitions=3
  barnabas start --metrics 127.0.0.1:9308 --log-format json
  barnabas start --temporary --port 0 --topic orders:3 --ready-file broker.address
  barnabas start --set log.retention.hours=24 --set auto.create.topics.enable=false
  barnabas start node-1.properties --set cluster.id=CLUSTER_ID

\b
Exit status: 0 after a stop by SIGTERM or SIGINT, 1 when the broker cannot start or run,
2 for wrong usage.
"""


@click.command(epilog=EXAMPLES)
@click.argument("properties_file", required=False, metavar="[SERVER.PROPERTIES]")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where to accept clients; port 0 takes any "
    "free port. Default: the file's listeners, else 127.0.0.1:9092.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Short for --listen 127.0.0.1:PORT.",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Where to keep everything; made and formatted "
    "when empty. Default: the file's log.dirs, else ./barnabas-data.",
)
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a Kafka broker key, over the file's value. May be repeated.",
)
@click.option(
    "--temporary",
    is_flag=True,
    help="For tests: keep everything in a new temporary directory, which goes with the broker; "
    "groups form without their initial delay (group.initial.rebalance.delay.ms=0).",
)
@click.option(
    "--topic",
    "topics",
    metavar="NAME[:PARTITIONS]",
    multiple=True,
    help="Create this topic before the broker is ready, unless it exists. May be repeated.",
)
@click.option(
    "--ready-file",
    metavar="FILE",
    help="Write HOST:PORT into this file once the broker is ready; it is removed at the end.",
)
@click.option(
    "--exit-with",
    type=click.IntRange(1),
    metavar="PID",
    help="End when this process ends, even by SIGKILL. Best the process that starts the broker.",
)
@click.option(
    "--remove-orphaned",
    metavar="DIR",
    hidden=True,
    help="Remove this directory if the process of --exit-with has ended first.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Where to answer /metrics (Prometheus), /healthz and /readyz. Default: nowhere.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="How the log is written. Default: text.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Lowest level of log lines. Default: warning.",
)
def start(**given: Any) -> None:
    """Run one node until SIGTERM or SIGINT: a broker that is its own controller, unless the file
    says that it is one of a cluster.

    Prints one line "ready HOST:PORT" on standard output once it answers, and a second one
    "metrics HOST:PORT" with --metrics; the log goes to standard error. Keys and defaults are
    those of Apache Kafka.
    """
    sys.exit(start_broker(StartOptions(**given)))
