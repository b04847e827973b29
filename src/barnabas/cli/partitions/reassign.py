"""`barnabas partitions reassign`: move replicas to other brokers, monitored and throttled.

Sources of replica assignments: arguments, a file in the format of Kafka's tool, the cluster.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.machine_lines import machines_of
from barnabas.cli.common.named_brokers import broker_ids
from barnabas.cli.common.named_topics import topic_arguments
from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    connected,
    echo_json,
    fail,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import header_option
from barnabas.cli.common.units import Size
from barnabas.cli.partitions.moving import (
    cancel_moves,
    echo_moves,
    echo_status,
    run_moves,
)
from barnabas.cli.partitions.planning import PlanError, moves, plan_assignment
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.facade import Client

# A short timeout, so that a broker that hangs is abandoned soon; the requests are repeatable.
DEFAULTS = {"request.timeout.ms": "5000"}

EXAMPLES = """\b
Examples:
  barnabas partitions reassign --replicas orders:0=1,2,3          show the plan
  barnabas partitions reassign --replicas orders:0=1,2,3 --execute
  barnabas partitions reassign orders --brokers 1,2,4 --execute --throttle 50MB
  barnabas partitions reassign --brokers 1,2,3 --replication-factor 3 --json > plan.json
  barnabas partitions reassign --file plan.json --execute --no-wait
  barnabas partitions reassign --status
  barnabas partitions reassign --cancel

\b
--brokers computes a plan that uses these brokers evenly, moves as few replicas as possible, and
spreads replicas over racks and machines. Without TOPIC, it covers all topics, including internal
ones. --json prints the plan in the format of --file and of Kafka's tool. --throttle limits the
replication rate of the moving replicas until all have moved.
"""


@click.command("reassign", epilog=EXAMPLES)
@topic_arguments("topics", required=False)
@click.option(
    "-r",
    "--replicas",
    "specs",
    multiple=True,
    metavar="TOPIC:PARTITION=ID,...",
    help="Replicas of a partition, preferred leader first. May be repeated.",
)
@click.option(
    "-f", "--file", "path", metavar="FILE", help="A plan in JSON; - reads standard input."
)
@click.option("--brokers", metavar="ID,...", help="Compute a plan for these brokers.")
@click.option(
    "--replication-factor", type=click.IntRange(1), help="With --brokers.  [default: unchanged]"
)
@click.option("--execute", is_flag=True, help="Execute the plan instead of only showing it.")
@click.option(
    "--wait/--no-wait", default=True, help="Wait until all replicas have moved.  [default: wait]"
)
@click.option(
    "--throttle", type=Size(1), metavar="SIZE", help="Bytes per second and broker, such as 50MB."
)
@click.option("--status", is_flag=True, help="Show the active reassignments and their progress.")
@click.option("--cancel", is_flag=True, help="Cancel the active reassignments, remove throttles.")
@header_option
@client_options
def reassign_partitions(
    topics: Sequence[str],
    specs: Sequence[str],
    path: str | None,
    brokers: str | None,
    replication_factor: int | None,
    execute: bool,
    wait: bool,
    throttle: int | None,
    status: bool,
    cancel: bool,
    options: ClientOptions,
) -> None:
    """Move replicas to other brokers. Without --execute, only show the plan.

    While the command waits, Ctrl-C ends it but not the reassignments. --cancel then removes the
    throttles, also after the last one has finished.
    """
    ways = [bool(specs), path is not None, brokers is not None, status, cancel]
    if sum(ways) != 1:
        raise click.UsageError("give one of --replicas, --file, --brokers, --status, --cancel")
    if replication_factor is not None and brokers is None:
        raise click.UsageError("--replication-factor requires --brokers")
    if topics and (specs or path is not None):
        raise click.UsageError("TOPIC is only for --brokers, --status and --cancel")
    with connected(options, DEFAULTS) as client:
        if status:
            echo_status(client, topics, as_json=options.as_json)
            return
        if cancel:
            cancel_moves(client, topics, as_json=options.as_json)
            return
        current, wanted = _targets(client, topics, specs, path, brokers, replication_factor)
        planned = moves(current, wanted)
        if not execute:
            if options.as_json:
                echo_json(plan_json(wanted))
            else:
                echo_moves(planned)
                if planned:
                    echo("nothing was changed: use --execute to apply the plan", err=True)
            return
        if not run_moves(client, planned, throttle, wait=wait, as_json=options.as_json):
            sys.exit(EXIT_FAILED)


def _targets(
    client: Client,
    topics: Sequence[str],
    specs: Sequence[str],
    path: str | None,
    brokers: str | None,
    replication_factor: int | None,
) -> tuple[dict[TopicPartition, list[int]], dict[TopicPartition, list[int]]]:
    """Return the current and the wanted replicas."""
    if brokers is None:
        wanted = read_specs(specs) if specs else read_file(path or "-")
        current = current_replicas(client, {tp.topic for tp in wanted})
        for tp in wanted:
            if tp not in current:
                raise click.UsageError(f"{tp.topic} has no partition {tp.partition}")
        return {tp: current[tp] for tp in wanted}, wanted
    known = {node.id: node for node in client.describe_cluster().brokers}
    used = {broker: known[broker].rack for broker in broker_ids(brokers, known, "--brokers")}
    current = current_replicas(client, topics)
    try:
        planned = plan_assignment(current, used, replication_factor, machines_of(known.values()))
    except PlanError as error:
        fail(str(error))
    return current, planned


_SPEC = re.compile(r"(?P<topic>[\w.-]+):(?P<partition>\d+)=(?P<replicas>\d+(?:,\d+)*)", re.ASCII)


def read_specs(specs: Sequence[str]) -> dict[TopicPartition, list[int]]:
    """Parse assignments of the form TOPIC:PARTITION=ID,...

    Raises:
        click.UsageError: An argument has another form.
    """
    wanted: dict[TopicPartition, list[int]] = {}
    for spec in specs:
        found = _SPEC.fullmatch(spec)
        if found is None:
            raise click.UsageError(f"--replicas {spec}: write TOPIC:PARTITION=1,2,3")
        tp = TopicPartition(found["topic"], int(found["partition"]))
        _add(wanted, tp, [int(word) for word in found["replicas"].split(",")])
    return wanted


def read_file(path: str) -> dict[TopicPartition, list[int]]:
    """Read a reassignment file in the format of Kafka's tool.

    Raises:
        click.UsageError: The file cannot be read, or has another format.
    """
    try:
        with click.open_file(path) as file:
            plan = json.load(file)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{path}: {error}") from None
    wanted: dict[TopicPartition, list[int]] = {}
    try:
        if plan.get("version", 1) != 1:
            raise click.UsageError(
                f"{path}: unknown version {plan['version']}, only 1 is supported"
            )
        for entry in plan["partitions"]:
            if any(directory != "any" for directory in entry.get("log_dirs", [])):
                raise click.UsageError(f"{path}: only the value any is supported in log_dirs")
            tp = TopicPartition(str(entry["topic"]), int(entry["partition"]))
            _add(wanted, tp, [int(replica) for replica in entry["replicas"]])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        hint = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
        raise click.UsageError(f"{path}: {error!r}; expected: {hint}") from None
    return wanted


def _add(wanted: dict[TopicPartition, list[int]], tp: TopicPartition, replicas: list[int]) -> None:
    if tp in wanted:
        raise click.UsageError(f"{tp} occurs twice")
    if len(set(replicas)) != len(replicas):
        raise click.UsageError(f"{tp}: a broker occurs twice in {replicas}")
    wanted[tp] = replicas


def plan_json(wanted: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """Return a plan in the format of the reassignment file."""
    return {
        "version": 1,
        "partitions": [
            {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
            for tp, replicas in wanted.items()
        ],
    }


def current_replicas(client: Client, topics: Iterable[str]) -> dict[TopicPartition, list[int]]:
    """Return the replicas of topics; without names, of all topics.

    For a partition that is being reassigned, these are the target replicas.

    Raises:
        ClientError: A topic does not exist.
    """
    names = sorted(topics)
    if names:
        client.describe_topics(names, may_be_new=False)
    moving = client.admin.list_reassignments()
    found: dict[TopicPartition, list[int]] = {}
    for name, topic in client.admin.describe_topic_partitions(names).items():
        if isinstance(topic, ClientError):
            raise topic
        for number, state in sorted(topic.partitions.items()):
            tp = TopicPartition(name, number)
            found[tp] = list(moving[tp].target if tp in moving else state.replicas)
    return found
