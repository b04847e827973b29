"""`barnabas remote restore`: make a topic again from the segments of a lost cluster (KIP-405)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    config_values,
    connected,
    echo_json,
    fail,
    warning,
)
from barnabas.cli.common.printable import counted, echo, some
from barnabas.cli.common.progress import BYTES, progress
from barnabas.cli.common.tables import echo_line, echo_table, header_option
from barnabas.cli.common.units import size
from barnabas.cli.remote.damaged_segments import damaged_segments, lost_beginnings, lost_ends
from barnabas.cli.remote.restore_plan import PartitionPlan, RestorePlanError, StartOffsets
from barnabas.cli.remote.stores import (
    StoreArguments,
    errors_reported,
    required_store,
    store_arguments,
)
from barnabas.client.errors import UnknownTopicError
from barnabas.protocol.primitives import uuid_to_string
from barnabas.storage.config import (
    REMOTE_STORAGE_ENABLE,
    RESTORE,
    RESTORE_COPYING,
    RESTORE_NONE,
)
from barnabas.storage.remote_keys import STORAGE, SYSTEM_ENABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.cli.remote.restoring import Restoration, RestoredTopic
    from barnabas.cli.remote.stores import OpenStore
    from barnabas.client.facade import Client
    from barnabas.storage.files.leader_epoch_cache import EpochEntry
    from barnabas.storage.remote.remote_storage import (
        RemoteSegment,
        RemoteStorage,
        TopicDescription,
    )

EXAMPLES = """\b
Examples:
  barnabas remote restore file:///mnt/tier --topic flights --bootstrap 127.0.0.1:9092
  barnabas remote restore s3://bucket/kafka --topic flights --as flights-2025 --cluster OLD-ID
  barnabas remote restore file:///mnt/tier --topic flights --from 3:120000

\b
The store has the segments of a lost cluster. The command creates the topic in the cluster at
--bootstrap, copies the segments to its part of the store, and lets the brokers adopt them. Offsets,
timestamps, headers and transactions are as before. Records that were not in the store are lost, and
so are committed offsets of groups: `barnabas groups reset` sets them.

\b
If the command is interrupted, repeat it: it goes on where it was. It needs the rights to create the
topic and change its configs, to write to __remote_log_metadata, and to alter the cluster.
"""

# Digits of the largest number that an offset or a config can have.
_INT64_DIGITS = 19


class RestoreArguments(NamedTuple):
    """What the user wants to be restored."""

    topic: str
    new_name: str
    topic_id: str | None
    starts: StartOffsets
    configs: dict[str, str]
    replication_factor: int
    target_url: str | None


class _Source(NamedTuple):
    """A topic of the lost cluster as the store has it."""

    name: str
    topic_id: bytes
    # None if the store has no description of it.
    description: TopicDescription | None
    # Whole segments by partition.
    segments: dict[int, list[RemoteSegment]]
    # The start offsets of the damaged ones by partition.
    damaged: dict[int, list[int]]


def _start_offsets(_ctx: click.Context, _param: click.Parameter, texts: Sequence[str]) -> Any:
    found: dict[int | None, int] = {}
    for text in texts:
        partition, colon, offset = text.rpartition(":")
        is_number = offset.isdecimal() and (not colon or partition.isdecimal())
        if not is_number or max(len(offset), len(partition)) > _INT64_DIGITS:
            raise click.BadParameter(f"{text}: write OFFSET or PARTITION:OFFSET")
        found[int(partition) if colon else None] = int(offset)
    return StartOffsets(found)


@click.command("restore", epilog=EXAMPLES)
@store_arguments
@click.option("-t", "--topic", required=True, metavar="TOPIC", help="The topic in the store.")
@click.option("--as", "new_name", metavar="NAME", help="Name of the new topic.  [default: TOPIC]")
@click.option(
    "--topic-id", metavar="ID", help="Which topic, if the store has several ones of this name."
)
@click.option(
    "--from",
    "starts",
    multiple=True,
    callback=_start_offsets,
    metavar="[PARTITION:]OFFSET",
    help="Begin with the segment that has this offset, for example after a gap.",
)
@click.option(
    "--topic-config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A config of the new topic, besides or instead of those in the store.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    metavar="COUNT",
    help="Replicas of each partition.  [default: as in the store]",
)
@click.option(
    "--to",
    "target_url",
    metavar="URL",
    help="The store of the new cluster as this machine sees it.  [default: URL]",
)
@header_option
@client_options
def restore(
    store: StoreArguments,
    topic: str,
    new_name: str | None,
    topic_id: str | None,
    starts: StartOffsets,
    configs: Sequence[str],
    replication_factor: int | None,
    target_url: str | None,
    options: ClientOptions,
) -> None:
    """Make a topic again from the store of a cluster that lost its disks."""
    arguments = RestoreArguments(
        topic,
        new_name or topic,
        topic_id,
        starts,
        config_values(configs, "--topic-config"),
        replication_factor or -1,
        target_url,
    )
    with errors_reported(EXIT_FAILED), connected(options) as client:
        _restore(client, store, arguments, as_json=options.as_json)


def _restore(
    client: Client, store: StoreArguments, wanted: RestoreArguments, *, as_json: bool
) -> None:
    from barnabas.cli.remote.restoring import Restoration, RestoreError

    new_cluster = client.describe_cluster().cluster_id or ""
    source_store, target_store = _stores(client, store, wanted.target_url, new_cluster)
    existing = _existing_topic(client, wanted.new_name)
    source = _source(source_store, wanted, existing)
    plans = _plans(source, source_store.storage, wanted.starts)
    _warn_of_retention(source, wanted, plans)
    topic = existing or _create(client, source, wanted)
    work = Restoration(client, (source_store.storage, target_store.storage), topic, plans)
    try:
        with progress(BYTES, lambda: sum(each.size for each in plans)) as advance:
            aborted = work.run(advance)
    except RestoreError as error:
        fail(str(error))
    _show(source, source_store, topic, plans, (work, aborted), as_json=as_json)


# Before anything changes.


def _stores(
    client: Client, store: StoreArguments, target_url: str | None, new_cluster: str
) -> tuple[OpenStore, OpenStore]:
    """Open the store of the lost cluster, and that of the new one."""
    named = required_store(store)
    node = client.describe_cluster().brokers[0].id
    keys = {each.name: each.value for each in client.describe_broker_configs(node)}
    if keys.get(SYSTEM_ENABLE) != "true":
        fail(
            f"the brokers have no remote tier: set {SYSTEM_ENABLE}=true and {STORAGE}, and "
            "restart them; docs/tiered-storage.md tells more"
        )
    used = keys.get(STORAGE) or ""
    if target_url is None and used.rstrip("/") != named.url.rstrip("/"):
        fail(
            f"the brokers keep their segments in {used}, not in {named.url}: "
            f"give --to with the URL of the former as this machine sees it, such as --to {used}"
        )
    cluster = store.cluster
    if cluster is None:
        others = [each for each in named.clusters() if each != new_cluster]
        # Without others, the cluster was formatted again with its former id.
        cluster = others[0] if len(others) == 1 else None if others else new_cluster
    target = named._replace(url=target_url or named.url)
    return named.open(cluster), target.open(new_cluster)


def _existing_topic(client: Client, name: str) -> RestoredTopic | None:
    """Return the topic of an interrupted restore; None if there is no topic of this name."""
    from barnabas.cli.remote.restoring import RestoredTopic

    try:
        found = client.describe_topics([name], may_be_new=False)[name]
    except UnknownTopicError:
        return None
    configs = {each.name: each.value for each in client.describe_topic_configs([name])[name]}
    phase = configs.get(RESTORE) or RESTORE_NONE
    if phase == RESTORE_NONE:
        fail(f"the cluster has a topic {name} already: give another name by --as, or delete it")
    return RestoredTopic(name, found.topic_id, phase)


def _source(store: OpenStore, wanted: RestoreArguments, existing: RestoredTopic | None) -> _Source:
    """Find the topic in the store. The one that is being made does not count."""
    own_id = None if existing is None else existing.topic_id
    segments: dict[bytes, dict[int, list[RemoteSegment]]] = {}
    whole: set[str] = set()
    for found in store.storage.list_segments(wanted.topic):
        segment = found.segment
        if found.is_whole and segment.topic_id != own_id:
            whole.add(found.name)
            of_topic = segments.setdefault(segment.topic_id, {})
            of_topic.setdefault(segment.partition, []).append(segment)
    ids = {uuid_to_string(each): each for each in segments}
    if not ids:
        fail(f"{store.url} has no segments of a topic {wanted.topic} of cluster {store.cluster_id}")
    if wanted.topic_id is None and len(ids) > 1:
        fail(f"the store has several topics {wanted.topic}: give --topic-id {some(sorted(ids))}")
    chosen = wanted.topic_id or next(iter(ids))
    if chosen not in ids:
        fail(f"the store has no topic {wanted.topic} with the id {chosen}: {some(sorted(ids))}")
    topic_id = ids[chosen]
    described = (each for each in store.storage.list_topics() if each.topic_id == topic_id)
    description = next(described, None)
    if description is None:
        warning(
            f"the store has no description of {wanted.topic} (topic.json): its configs are the "
            "defaults of the brokers, and the last partition with segments is its last one"
        )
    damaged = damaged_segments(store.storage, wanted.topic, topic_id, whole)
    return _Source(wanted.topic, topic_id, description, segments[topic_id], damaged)


def _plans(source: _Source, storage: RemoteStorage, starts: StartOffsets) -> list[PartitionPlan]:
    from barnabas.cli.remote.restore_plan import plan_partition
    from barnabas.replication.remote.segment_end import read_state

    def epochs_of(segment: RemoteSegment) -> list[EpochEntry]:
        return read_state(storage, segment).epochs

    plans, problems = [], []
    for partition, segments in sorted(source.segments.items()):
        try:
            first = starts.of(partition)
            plans.append(plan_partition(partition, segments, epochs_of, first))
        except RestorePlanError as error:
            problems.append(str(error))
    if not problems:
        problems = lost_beginnings(source.damaged, plans, starts)
    if problems:
        fail("; ".join(problems))
    for each in lost_ends(source.damaged, plans):
        warning(each)
    return plans


def _partition_count(source: _Source) -> int:
    last = max(source.segments) + 1
    return last if source.description is None else max(last, source.description.partitions)


def _configs(source: _Source, wanted: RestoreArguments) -> dict[str, str]:
    stored = {} if source.description is None else source.description.configs
    configs = {**stored, **wanted.configs, REMOTE_STORAGE_ENABLE: "true"}
    configs.pop(RESTORE, None)
    return configs


def _warn_of_retention(
    source: _Source, wanted: RestoreArguments, plans: Sequence[PartitionPlan]
) -> None:
    text = _configs(source, wanted).get("retention.ms", "")
    if not text.isdecimal() or len(text) > _INT64_DIGITS:
        return
    until_ms = time.time() * 1000 - int(text)
    old = sum(each.max_timestamp < until_ms for plan in plans for each in plan.segments)
    if old:
        warning(
            f"{counted(old, 'segment')} are older than retention.ms={text} of the topic, and will "
            "be deleted soon after: --topic-config retention.ms=-1 keeps them"
        )


def _create(client: Client, source: _Source, wanted: RestoreArguments) -> RestoredTopic:
    from barnabas.cli.remote.restoring import RestoredTopic

    factor = wanted.replication_factor
    if factor < 0 and source.description is not None:
        factor = source.description.replication_factor
    configs = {**_configs(source, wanted), RESTORE: RESTORE_COPYING}
    client.create_topic(wanted.new_name, _partition_count(source), factor, configs)
    found = client.describe_topics([wanted.new_name])[wanted.new_name]
    return RestoredTopic(wanted.new_name, found.topic_id, RESTORE_COPYING)


# The result.


def _show(
    source: _Source,
    store: OpenStore,
    topic: RestoredTopic,
    plans: Sequence[PartitionPlan],
    outcome: tuple[Restoration, int],
    *,
    as_json: bool,
) -> None:
    work, aborted = outcome
    segments = sum(len(each.segments) for each in plans)
    total = sum(each.size for each in plans)
    with_records = {each.partition for each in plans}
    empty = [each for each in range(_partition_count(source)) if each not in with_records]
    if as_json:
        echo_json(
            {
                "topic": topic.name,
                "topic_id": uuid_to_string(topic.topic_id),
                "from_cluster_id": store.cluster_id,
                "from_topic_id": uuid_to_string(source.topic_id),
                "segments": segments,
                "bytes": total,
                "copied": work.copied,
                "copied_before": work.found,
                "aborted_transactions": aborted,
                "empty_partitions": empty,
                "partitions": [_partition_json(each) for each in plans],
            }
        )
        return
    rows = [
        (each.partition, len(each.segments), size(each.size), each.log_start_offset,
         each.log_end_offset, each.left_out)
        for each in plans
    ]  # fmt: skip
    echo_table(("partition", "segments", "size", "first", "end", "left out"), rows)
    echo(f"restored {topic.name}: {counted(segments, 'segment')}, {size(total)}")
    if empty:
        echo_line(f"without segments in the store, so empty: partitions {some(empty, 20)}")
    if aborted:
        echo_line(f"aborted {counted(aborted, 'transaction')} whose end was not in the store")


def _partition_json(plan: PartitionPlan) -> Mapping[str, int]:
    return {
        "partition": plan.partition,
        "segments": len(plan.segments),
        "bytes": plan.size,
        "log_start_offset": plan.log_start_offset,
        "log_end_offset": plan.log_end_offset,
        "left_out": plan.left_out,
    }
