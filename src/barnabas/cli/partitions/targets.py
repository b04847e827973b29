"""Sources of replica assignments: arguments, a file in the format of Kafka's tool, the cluster."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.facade import Client

__all__ = ["current_replicas", "plan_json", "read_file", "read_specs"]

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
