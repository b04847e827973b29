"""`barnabas start` as a click command, for help and usage errors; `start_broker` does the work."""

from __future__ import annotations

import sys
from typing import Any

import click

from barnabas.cli.nodes.start_broker import start_broker
from barnabas.cli.nodes.start_options import StartOptions

EXAMPLES = """\b
Examples:
  barnabas start
  barnabas start --listen 127.0.0.1:0 --data-dir /var/lib/barnabas
  barnabas start server.properties --set num.partitions=3
  barnabas start --metrics 127.0.0.1:9308 --log-format json
  barnabas start --registry 127.0.0.1:8081
  barnabas start --temporary --port 0 --topic orders:3 --ready-file broker.address
  barnabas start --set log.retention.hours=24 --set auto.create.topics.enable=false
  barnabas start node-1.properties --set cluster.id=CLUSTER_ID
  barnabas start server.properties --brokers auto

\b
Exit status: 0 after a stop by SIGTERM or SIGINT, 1 if the broker cannot start or run, 2 for wrong
usage.
"""


@click.command(epilog=EXAMPLES)
@click.argument("properties_file", required=False, metavar="[SERVER.PROPERTIES]")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address for clients; port 0 takes any free port. Default: the file's listeners, "
    "else 127.0.0.1:9092.",
)
@click.option("--port", type=click.IntRange(0, 65535), help="Short for --listen 127.0.0.1:PORT.")
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Data directory; it is created and formatted if necessary. Default: the file's "
    "log.dirs, else ./barnabas-data.",
)
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Set a Kafka broker key; it overrides the file's value. May be repeated.",
)
@click.option(
    "--temporary",
    is_flag=True,
    help="For tests: use a temporary data directory, which is deleted at the end; groups "
    "form without their initial delay (group.initial.rebalance.delay.ms=0).",
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
    help="Write HOST:PORT to this file when the broker is ready; it is removed at the end.",
)
@click.option(
    "--exit-with",
    type=click.IntRange(1),
    metavar="PID",
    help="End when this process ends, even by SIGKILL; usually the parent process of the broker.",
)
@click.option(
    "--remove-orphaned",
    metavar="DIR",
    hidden=True,
    help="Remove this directory if the process of --exit-with ends before the broker.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Address for /metrics (Prometheus), /healthz and /readyz. Default: none.",
)
@click.option(
    "--registry",
    metavar="HOST:PORT",
    help="Address of a schema registry, which runs in a process of its own. Default: none.",
)
@click.option(
    "--brokers",
    metavar="auto|N",
    help="Run one broker process on each usable core, or N of them, and a controller process. "
    "Default: one process.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), help="Format of the log. Default: text."
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Lowest level of logged messages. Default: warning.",
)
def start(**given: Any) -> None:
    """Run one node until SIGTERM or SIGINT.

    By default, the node is a broker and the only controller of its cluster. Prints the line
    "ready HOST:PORT" on standard output when the node answers, and with --metrics the line
    "metrics HOST:PORT". With --registry, the line "registry URL" follows when the registry
    answers. The log goes to standard error. Keys and defaults are those of Apache Kafka. With
    --brokers, the node has several processes, and "ready" is followed by the addresses of all
    brokers. - in place of the file reads the keys from standard input.
    """
    sys.exit(start_broker(StartOptions(**given)))
