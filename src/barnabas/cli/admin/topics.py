"""`barnabas topics`: list, describe, create, alter, purge and delete topics, infer their schema."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.admin.configs import key_suggestion, shown_value, suggested_keys
from barnabas.cli.common.named_topics import partitions_of, topic_argument, topic_arguments
from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    config_values,
    connected,
    echo_json,
    fail,
    moment_ms,
    problem,
    warning,
)
from barnabas.cli.common.printable import counted, echo
from barnabas.cli.common.tables import bad, dim, echo_line, echo_table, header_option, strong, warn
from barnabas.cli.common.terminal import confirm, yes_option
from barnabas.client.errors import ClientError, UnknownTopicError
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.admin.configs import ConfigEntry
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.errors import BrokerError
    from barnabas.client.facade import Client

EXAMPLES = """\b
Examples:
  barnabas topics list
  barnabas topics create flights --partitions 6 --config retention.ms=7d
  barnabas topics describe flights
  barnabas topics alter flights --partitions 12 --delete-config retention.ms
  barnabas topics purge flights --before-time 2026-01-31T12:00
  barnabas topics schema flights
  barnabas topics delete flights
"""


@click.group(epilog=EXAMPLES)
def topics() -> None:
    """List, describe and change topics."""


@topics.command("list", epilog="\b\nExamples:\n  barnabas topics list 'flights.*' --long\n")
@click.argument("pattern", required=False)
@click.option("--internal", is_flag=True, help="Include internal topics.")
@click.option(
    "-l", "--long", "is_long", is_flag=True, help="Show the numbers of partitions and replicas."
)
@header_option
@client_options
def list_topics(pattern: str | None, internal: bool, is_long: bool, options: ClientOptions) -> None:
    """List topics; with PATTERN, a regular expression, only those whose whole name matches."""
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise click.UsageError(f"{pattern} is not a regular expression: {error}") from None
    with connected(options) as client:
        names = client.topics(pattern, internal=internal)
        if not (is_long or options.as_json):
            for name in names:
                echo(name)
            return
        found = client.describe_topics(names)
        if options.as_json:
            echo_json([_topic_json(found[name]) for name in names])
            return
        rows = [
            (name, len(found[name].partitions), _replication_factor(found[name])) for name in names
        ]
        echo_table(("topic", "partitions", "replicas"), rows)


@topics.command("describe", epilog="\b\nExamples:\n  barnabas topics describe flights --json\n")
@topic_arguments("names")
@click.option("--all-configs", is_flag=True, help="Show default configs too.")
@header_option
@client_options
def describe_topics(names: Sequence[str], all_configs: bool, options: ClientOptions) -> None:
    """Show the partitions, leaders, offsets and configs of topics."""
    with connected(options) as client:
        found, unknown = _known_topics(client, names)
        names = list(found)
        # A partition without a leader has no offsets, but it is still shown.
        partitions = [
            TopicPartition(name, number) for name in names for number in found[name].available
        ]
        starts = client.list_offsets(dict.fromkeys(partitions, "earliest"))
        ends = client.list_offsets(dict.fromkeys(partitions, "latest"))
        configs = client.describe_topic_configs(names)
        tiered = [tp for tp in starts if _has_tier(configs[tp.topic])]
        local = client.list_offsets(dict.fromkeys(tiered, "earliest-local"))
        copied = client.list_offsets(dict.fromkeys(tiered, "latest-tiered"))
        offsets = {
            tp: _Offsets(
                starts[tp].offset,
                ends[tp].offset,
                local[tp].offset if tp in local else None,
                copied[tp].offset if tp in copied and copied[tp].offset >= 0 else None,
            )
            for tp in starts
        }
        for name in names:
            kept = [c for c in configs[name] if all_configs or c.source == "topic"]
            if options.as_json:
                described = _topic_json(found[name])
                for partition in described["partitions"]:
                    tp = TopicPartition(name, partition["partition"])
                    found_offsets = offsets.get(tp, _Offsets())
                    partition.update(start_offset=found_offsets.start, end_offset=found_offsets.end)
                    if _has_tier(configs[name]):
                        partition.update(
                            local_start_offset=found_offsets.local_start,
                            last_remote_offset=found_offsets.last_remote,
                        )
                described["configs"] = {c.name: c.value for c in kept}
                echo_json(described)
            else:
                _echo_topic(found[name], offsets, kept, has_tier=_has_tier(configs[name]))
    for error in unknown:
        problem(str(error))
    if unknown:
        sys.exit(EXIT_FAILED)


class _Offsets(NamedTuple):
    """The offsets of a partition; None for those that are unknown."""

    start: int | None = None
    end: int | None = None
    # With a remote tier: the first offset on the disk of the leader, and the last one in the tier.
    local_start: int | None = None
    last_remote: int | None = None


def _has_tier(configs: Sequence[ConfigEntry]) -> bool:
    return any(each.name == "remote.storage.enable" and each.value == "true" for each in configs)


def _known_topics(
    client: Client, names: Sequence[str]
) -> tuple[dict[str, TopicInfo], list[UnknownTopicError]]:
    """Return the topics that exist by name, and an error for each of the others."""
    try:
        return client.describe_topics(names, may_be_new=False), []
    except UnknownTopicError as error:
        if len(names) == 1:
            return {}, [error]
    parts = [_known_topics(client, [name]) for name in dict.fromkeys(names)]
    found = {name: topic for topics, _ in parts for name, topic in topics.items()}
    return found, [error for _, errors in parts for error in errors]


def _echo_topic(
    topic: TopicInfo,
    offsets: Mapping[TopicPartition, _Offsets],
    configs: Sequence[ConfigEntry],
    *,
    has_tier: bool,
) -> None:
    from barnabas.protocol.primitives import uuid_to_string

    echo_line(
        strong(topic.name),
        f": {counted(len(topic.partitions), 'partition')}, "
        f"{counted(_replication_factor(topic), 'replica')}, ",
        dim(f"id {uuid_to_string(topic.topic_id)}"),
    )
    for config in configs:
        echo_line(f"  {config.name}={shown_value(config)} ", dim(f"({config.source})"))
    rows: list[tuple[object, ...]] = []
    for number, partition in sorted(topic.partitions.items()):
        start, end, *remote = offsets.get(TopicPartition(topic.name, number), _Offsets())
        leader = partition.leader if partition.leader >= 0 else bad("none")
        replicas = ",".join(map(str, partition.replicas))
        isr: object = ",".join(map(str, partition.isr))
        if len(partition.isr) < len(partition.replicas):
            isr = warn(isr)
        rows.append((number, leader, replicas, isr, start, end, *(remote if has_tier else ())))
    columns = ("partition", "leader", "replicas", "isr", "start", "end")
    echo_table(columns + (("on disk from", "in tier to") if has_tier else ()), rows)


def _topic_json(topic: TopicInfo) -> dict[str, Any]:
    from barnabas.protocol.primitives import uuid_to_string

    return {
        "topic": topic.name,
        "id": uuid_to_string(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": number,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "offline_replicas": list(partition.offline_replicas),
            }
            for number, partition in sorted(topic.partitions.items())
        ],
    }


def _replication_factor(topic: TopicInfo) -> int:
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


_config_option = click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A config of the topic, with units such as 7d or 1GiB. May be repeated.",
)


@topics.command(
    "create",
    epilog="\b\nExamples:\n  barnabas topics create flights --partitions 6 --if-not-exists\n",
)
@topic_arguments("names")
@click.option("-p", "--partitions", type=click.IntRange(1), help="[default: the broker's]")
@click.option("-r", "--replication-factor", type=click.IntRange(1), help="[default: the broker's]")
@_config_option
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists.")
@client_options
def create_topics(
    names: Sequence[str],
    partitions: int | None,
    replication_factor: int | None,
    configs: Sequence[str],
    if_not_exists: bool,
    options: ClientOptions,
) -> None:
    """Create topics and wait until they can be used."""
    from barnabas.client.admin.topics import NewTopic

    pairs = config_values(configs, "--config")
    new = [NewTopic(name, partitions or -1, replication_factor or -1, pairs) for name in names]
    with connected(options) as client:
        results = client.create_topics(new, raise_errors=False)
        allowed = ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else None
        _report(results, "created", allowed, as_json=options.as_json, config_keys=list(pairs))


@topics.command("delete", epilog="\b\nExamples:\n  barnabas topics delete flights --yes\n")
@topic_arguments("names")
@yes_option
@click.option("--if-exists", is_flag=True, help="Succeed if a topic does not exist.")
@client_options
def delete_topics(names: Sequence[str], if_exists: bool, options: ClientOptions) -> None:
    """Delete topics and all their records. Asks for confirmation on a terminal."""
    confirm(f"Delete {', '.join(names)} with all records?")
    with connected(options) as client:
        results = client.delete_topics(names, raise_errors=False)
        allowed = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else None
        _report(results, "deleted", allowed, as_json=options.as_json)


@topics.command(
    "alter", epilog="\b\nExamples:\n  barnabas topics alter flights --config retention.ms=3600000\n"
)
@topic_argument("name")
@click.option(
    "-p", "--partitions", type=click.IntRange(1), help="Raise the number of partitions to this."
)
@_config_option
@click.option(
    "--delete-config",
    "deleted",
    multiple=True,
    metavar="KEY",
    help="Remove a config, so that its default applies. May be repeated.",
)
@client_options
def alter_topic(
    name: str,
    partitions: int | None,
    configs: Sequence[str],
    deleted: Sequence[str],
    options: ClientOptions,
) -> None:
    """Raise the number of partitions, set configs or remove them."""
    changes: dict[str, str | None] = dict(config_values(configs, "--config"))
    changes.update(dict.fromkeys(deleted))
    if not changes and partitions is None:
        raise click.UsageError("nothing to change: give --partitions, --config or --delete-config")
    results: dict[str, BrokerError | None] = {name: None}
    with connected(options) as client:
        # Detect a wrong name first: the change itself is retried, because the topic may be new.
        client.describe_topics([name], may_be_new=False)
        if changes:
            with suggested_keys("topic", changes):
                client.alter_topic_configs(name, changes)
        if partitions is not None:
            results = client.create_partitions({name: partitions}, raise_errors=False)
        _report(results, "altered", None, as_json=options.as_json)


def _report(
    results: Mapping[str, BrokerError | None],
    done: str,
    allowed: ErrorCode | None,
    *,
    as_json: bool,
    config_keys: Sequence[str] = (),
) -> None:
    """Print the result for each topic; exit with status 1 on any error except `allowed`.

    Args:
        results: An error or None for each topic.
        done: What happened to the topics, in one word.
        allowed: An error that counts as success; None if every error is a failure.
        as_json: Whether to print JSON.
        config_keys: The configs of the request; similar keys are named if a broker refuses them.
    """
    failed = False
    for name, error in results.items():
        tolerated = error is not None and error.error_code == allowed
        if as_json:
            code = error.error_code.name if error is not None else None
            message = error.detail if error is not None else None
            echo_json({"topic": name, "error": code, "message": message})
        elif error is None:
            echo(f"{done} {name}")
        elif not tolerated:
            is_config = error.error_code == ErrorCode.INVALID_CONFIG
            problem(f"{error}{key_suggestion('topic', config_keys) if is_config else ''}")
        failed = failed or (error is not None and not tolerated)
    if failed:
        sys.exit(EXIT_FAILED)


PURGE_EXAMPLES = """\b
Examples:
  barnabas topics purge flights --all --yes
  barnabas topics purge flights:0,2 --before-offset 5000
  barnabas topics purge flights --before-time 2026-01-31T12:00
"""


@topics.command("purge", epilog=PURGE_EXAMPLES)
@topic_arguments("specs", "TOPIC[:PARTITION,...]...")
@click.option("--all", "is_all", is_flag=True, help="Delete all records.")
@click.option(
    "--before-offset", type=click.IntRange(0), metavar="N", help="Delete records below this offset."
)
@click.option(
    "--before-time",
    metavar="ISO|MS",
    help="Delete records before the first one at or after this time.",
)
@yes_option
@header_option
@client_options
def purge_topics(
    specs: Sequence[str],
    is_all: bool,
    before_offset: int | None,
    before_time: str | None,
    options: ClientOptions,
) -> None:
    """Delete the oldest records of partitions permanently. Asks for confirmation on a terminal."""
    if (is_all, before_offset is not None, before_time is not None).count(True) != 1:
        raise click.UsageError("give one of --all, --before-offset and --before-time")
    moment = moment_ms(before_time, "--before-time") if before_time is not None else None
    confirm(f"Delete records of {', '.join(specs)}?")
    with connected(options) as client:
        wanted = partitions_of(client, specs)
        limit = -1 if before_offset is None else before_offset
        offsets = dict.fromkeys(wanted, limit) if moment is None else _at(client, wanted, moment)
        _show(client.admin.delete_records(offsets, raise_errors=False), as_json=options.as_json)


def _at(client: Client, wanted: Sequence[TopicPartition], moment: int) -> dict[TopicPartition, int]:
    """Return the first offset at or after a time; -1 (all records) if there is no such offset."""
    found = client.list_offsets(dict.fromkeys(wanted, moment))
    return {tp: each.offset for tp, each in found.items()}


def _show(found: dict[TopicPartition, int | ClientError], *, as_json: bool) -> None:
    rows = []
    for tp, start in sorted(found.items(), key=lambda item: item[0]):
        error = start if isinstance(start, ClientError) else None
        if as_json:
            echo_json(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "start_offset": None if error else start,
                    "error": str(error) if error else None,
                }
            )
        elif error is not None:
            problem(str(error))
        else:
            rows.append((tp.topic, tp.partition, start))
    if rows:
        echo_table(("topic", "partition", "starts at"), rows)
    if any(isinstance(start, ClientError) for start in found.values()):
        sys.exit(EXIT_FAILED)


SCHEMA_EXAMPLES = """\b
Examples:
  barnabas topics schema orders
  barnabas topics schema orders --sample 100000 --times
"""


@topics.command("schema", epilog=SCHEMA_EXAMPLES)
@topic_argument("topic")
@click.option(
    "--sample",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Read about this many of the newest records.",
)
@click.option("--times", is_flag=True, help="Make dates and times of text in the form of ISO 8601.")
@client_options
def schema_of_topic(topic: str, sample: int, times: bool, options: ClientOptions) -> None:
    """Print the columns of a topic's JSON values, for the option valueSchema of Spark's source."""
    from barnabas.spark.topics.json_inference import InferenceError, infer_topic

    with connected(options) as client:
        try:
            found = infer_topic(client, topic, sample, with_times=times)
        except InferenceError as error:
            fail(str(error))
    if options.as_json:
        echo_json(
            {
                "ddl": found.ddl(),
                "columns": [{"name": name, "type": kind} for name, kind in found.columns],
                "objects": found.objects,
                "others": found.others,
                "widened": list(found.widened),
            }
        )
        return
    echo(found.ddl())
    for sentence in found.widened:
        warning(sentence)
    if found.others:
        warning(
            f"{found.others} of {found.objects + found.others} sampled values are not JSON "
            f"objects; the options valueErrors and deadLetterTopic of Spark's source say what "
            f"becomes of them"
        )
