"""Cases of tiered topics, for a pair with tiered storage (KIP-405)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.case import Case
from differential.cases.configs import DELETE, SET, TOPIC, changing, describing
from differential.cases.fetch import fetching
from differential.cases.list_offsets import SPECIAL, at
from differential.scene import NOW_MS, Scene, batch
from differential.tiered_pair import (
    BATCHES,
    EARLIEST,
    EARLIEST_LOCAL,
    END_OFFSET,
    LATEST_TIERED,
    LOCAL_START,
    SMALL_LOCAL,
    TIERED,
    await_offset,
    created,
    delete_records,
    fill,
    filled_topic,
    is_searched,
    offset_of,
    restart,
    segments_in_metadata,
    stored_logs,
    topic_with_aborted_transactions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from differential.request import Values
    from differential.side import Side

LIST_OFFSETS, FETCH = ApiKey.LIST_OFFSETS, ApiKey.FETCH
FOR_EPOCH, CREATE = ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.CREATE_TOPICS
DESCRIBE, INCREMENTAL = ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS
ALTER = ApiKey.ALTER_CONFIGS
BROKER = 4

CASES: list[Case] = []


def case(
    api: ApiKey, versions: Iterable[int] = (), *, is_nightly: bool = False
) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Register a function as a case of an API."""

    def register(play: Callable[[Scene], None]) -> Callable[[Scene], None]:
        name = f"tiered-{play.__name__.replace('_', '-')}"
        CASES.append(Case(api, name, play, frozenset(versions), is_nightly))
        return play

    return register


# ListOffsets


@case(LIST_OFFSETS)
def special_times(scene: Scene) -> None:
    topic = filled_topic(scene)
    for timestamp in SPECIAL:
        scene.compare(at(topic, timestamp))
        scene.compare(at(topic, timestamp, isolation_level=1))


@case(LIST_OFFSETS)
def times_of_records(scene: Scene) -> None:
    topic = filled_topic(scene)
    times = [NOW_MS + number * 1000 for number in range(BATCHES)]
    for timestamp in (0, *times, 1 << 62):
        for near in (timestamp - 1, timestamp, timestamp + 1):
            scene.compare(at(topic, max(0, near)))


@case(LIST_OFFSETS)
def several_times_of_several_topics(scene: Scene) -> None:
    topic, local = filled_topic(scene), scene.topic()
    scene.produce(local, batch(b"a"))
    requested = [
        {"name": name, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}
        for name, timestamp in ((local, NOW_MS), (topic, NOW_MS + 3000), ("absent", 0), (topic, 0))
    ]
    scene.compare({"replica_id": -1, "topics": requested, "timeout_ms": 30_000})


@case(LIST_OFFSETS)
def epochs_of_lookups_by_time(scene: Scene) -> None:
    topic = filled_topic(scene)
    for epoch in (0, 1, 99):
        scene.compare(at(topic, NOW_MS, epoch=epoch))


@case(LIST_OFFSETS)
def topic_before_anything_is_copied(scene: Scene) -> None:
    topic = created(scene, TIERED)
    for timestamp in SPECIAL:
        scene.compare(at(topic, timestamp))
    scene.produce(topic, batch(b"a"))
    # Until a broker knows the segments of the topic, it refuses lookups by time.
    scene.until(lambda side: is_searched(side, topic))
    for timestamp in (*SPECIAL, NOW_MS):
        scene.compare(at(topic, timestamp))


# Fetch


@case(FETCH)
def records_from_each_offset(scene: Scene) -> None:
    topic = filled_topic(scene)
    for offset in range(-1, END_OFFSET + 2):
        scene.compare(fetching(topic, offset))


@case(FETCH)
def limits_of_bytes(scene: Scene) -> None:
    topic = filled_topic(scene)
    for limit in (-1, 0, 1, 387, 388, 389, 500, 775, 776, 777, 1000, 1 << 30):
        for offset in (0, 4, LOCAL_START - 1):
            scene.compare(fetching(topic, offset, partition_max_bytes=limit))
            scene.compare(fetching(topic, offset, max_bytes=limit))


def reading(*parts: tuple[str, int], **more: Any) -> Callable[[Side], Values]:
    """Return a Fetch of the first partition of several topics, from these offsets."""

    def values(side: Side) -> Values:
        topics = [
            {
                "topic": topic,
                "topic_id": side.topic_id(topic),
                "partitions": [{"fetch_offset": offset, "partition_max_bytes": 1 << 20}],
            }
            for topic, offset in parts
        ]
        return {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 24, "topics": topics, **more}

    return values


@case(FETCH)
def a_local_and_a_remote_partition(scene: Scene) -> None:
    topic, local = filled_topic(scene), scene.topic()
    scene.produce(local, batch(b"a" * 100))
    for parts in (((topic, 0), (local, 0)), ((local, 0), (topic, 0))):
        scene.compare(reading(*parts))
        for limit in (1, 200, 500, 1000):
            scene.compare(reading(*parts, max_bytes=limit))
        scene.compare(reading(*parts, max_wait_ms=200, min_bytes=1 << 20))
    for offset in (1, 2, 99):
        scene.compare(reading((topic, 0), (local, offset)))


@case(FETCH)
def two_remote_partitions(scene: Scene) -> None:
    topic, other = filled_topic(scene), topic_with_aborted_transactions(scene)
    for limit in (200, 1200, 1 << 20, (1 << 20) + 500, 1 << 24):
        scene.compare(reading((topic, 0), (other, 0), max_bytes=limit))
        scene.compare(reading((other, 3), (topic, 7), max_bytes=limit))


@case(FETCH)
def a_remote_partition_beside_refused_ones(scene: Scene) -> None:
    topic = filled_topic(scene)
    remote = {"fetch_offset": 0, "partition_max_bytes": 1 << 20}
    for more in (
        {"partition": 7},
        {"partition": 0, "current_leader_epoch": 9},
        {"partition": 0, "fetch_offset": 99},
    ):

        def values(side: Side, more: Values = more) -> Values:
            partitions = [remote, {**remote, **more}]
            named = {"topic": topic, "topic_id": side.topic_id(topic), "partitions": partitions}
            return {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 24, "topics": [named]}

        scene.compare(values)


@case(FETCH, range(7, 19))
def sessions(scene: Scene) -> None:
    topic, local = filled_topic(scene), scene.topic()
    scene.produce(local, batch(b"a"))
    made = scene.compare(reading((topic, 0), (local, 1), session_epoch=0))
    scene.remember("session", *(response.session_id for response in made))

    def following(epoch: int, *parts: tuple[str, int]) -> Callable[[Side], Values]:
        return lambda side: reading(*parts, session_id=side["session"], session_epoch=epoch)(side)

    scene.compare(following(1))
    scene.compare(following(2, (topic, 4)))
    scene.compare(following(3, (topic, END_OFFSET)))
    scene.compare(following(4))
    scene.compare(following(5, (topic, LOCAL_START - 2)))


@case(FETCH)
def aborted_transactions(scene: Scene) -> None:
    topic = topic_with_aborted_transactions(scene)
    log_end = offset_of(scene.pair.kafka, topic, -1)
    for offset in range(log_end + 1):
        scene.compare(fetching(topic, offset, isolation_level=1))
    # Limits that cut no batch: the producer ids of the comparison are those of whole batches.
    scene.label = "limited"
    for limit in (1, 74, 148):
        scene.compare(fetching(topic, 0, isolation_level=1, partition_max_bytes=limit))
    scene.label = "uncommitted"
    scene.compare(fetching(topic, 0))


@case(FOR_EPOCH)
def ends_of_epochs(scene: Scene) -> None:
    topic = filled_topic(scene)
    for epoch in (-1, 0, 1):
        partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
        scene.compare({"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition]}]})


# Configs

_LOCAL = {"retention.ms": "100", "retention.bytes": "100"}
# Configs of new topics, each with remote.storage.enable.
CONFIGS: tuple[dict[str, str], ...] = (
    {},
    {"remote.storage.enable": "TRUE"},
    {"remote.storage.enable": "maybe"},
    {"remote.storage.enable": ""},
    {"cleanup.policy": "compact"},
    {"cleanup.policy": "compact,delete"},
    {"cleanup.policy": ""},
    {"cleanup.policy": "delete"},
    {**_LOCAL, "local.retention.ms": "101"},
    {**_LOCAL, "local.retention.ms": "100"},
    {**_LOCAL, "local.retention.ms": "-1"},
    {**_LOCAL, "local.retention.ms": "-2"},
    {**_LOCAL, "local.retention.bytes": "101"},
    {**_LOCAL, "local.retention.bytes": "100"},
    {**_LOCAL, "local.retention.bytes": "-1"},
    {**_LOCAL, "local.retention.bytes": "101", "local.retention.ms": "101"},
    {**_LOCAL, "local.retention.bytes": "101", "cleanup.policy": "compact"},
    {"retention.ms": "-1", "local.retention.ms": "-1"},
    {"retention.ms": "-1", "local.retention.ms": "100"},
    {"local.retention.bytes": "-1"},
    {"local.retention.bytes": "5"},
    {"local.retention.ms": "-3"},
    {"local.retention.bytes": "-3"},
    {"local.retention.ms": "x"},
    {"remote.copy.lag.ms": "-2"},
    {"remote.copy.lag.bytes": "-2"},
    {"remote.copy.lag.ms": "100", "local.retention.ms": "50"},
    {"remote.copy.lag.ms": "50", "local.retention.ms": "50"},
    {"remote.copy.lag.ms": "-1", "local.retention.ms": "50"},
    {"remote.copy.lag.ms": "101", **_LOCAL},
    {"remote.copy.lag.bytes": "100", "local.retention.bytes": "50"},
    {"remote.copy.lag.bytes": "101", **_LOCAL},
    {"remote.copy.lag.bytes": "100"},
    {"remote.copy.lag.bytes": "101", "remote.copy.lag.ms": "101", **_LOCAL},
    {"remote.log.copy.disable": "true"},
    {"remote.log.copy.disable": "true", "local.retention.ms": "-2"},
    {"remote.log.copy.disable": "true", "local.retention.ms": "50"},
    {"remote.log.copy.disable": "true", "local.retention.bytes": "50"},
    {"remote.log.copy.disable": "true", "local.retention.ms": "100", **_LOCAL},
    {"remote.log.copy.disable": "true", "local.retention.ms": "50", "remote.copy.lag.ms": "70"},
    {"remote.log.delete.on.disable": "true"},
    {"internal.segment.bytes": "1"},
    {"remote.log.disable.policy": "retain"},
)


@case(CREATE, {7})
def checked_configs_of_new_topics(scene: Scene) -> None:
    create_topics(scene, validate=True)


@case(CREATE, {7}, is_nightly=True)
def configs_of_new_topics(scene: Scene) -> None:
    create_topics(scene, validate=False)


def create_topics(scene: Scene, *, validate: bool) -> None:
    """Compare the creation of topics with all configs, tiered and not."""
    for configs in CONFIGS:
        for enabled in ("true", "false"):
            given = {"remote.storage.enable": enabled, **configs}
            scene.label = str(given)
            settings = [{"name": key, "value": text} for key, text in given.items()]
            new = {"name": scene.name(), "num_partitions": 1, "replication_factor": 1}
            topics = [{**new, "configs": settings}]
            scene.compare({"topics": topics, "timeout_ms": 10_000, "validate_only": validate})


KEYS = (
    "remote.storage.enable",
    "local.retention.ms",
    "local.retention.bytes",
    "remote.copy.lag.ms",
    "remote.copy.lag.bytes",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "internal.segment.bytes",
)


@case(DESCRIBE)
def configs_of_a_topic(scene: Scene) -> None:
    topic = filled_topic(scene)
    scene.compare(describing(TOPIC, topic, *KEYS))
    scene.compare(describing(TOPIC, topic, *KEYS, include_synonyms=True))
    scene.compare(describing(TOPIC, scene.topic(), *KEYS, include_synonyms=True))


BROKER_KEYS = (
    "remote.log.storage.system.enable",
    "remote.log.metadata.manager.listener.name",
    "remote.log.metadata.custom.metadata.max.bytes",
    "remote.log.index.file.cache.total.size.bytes",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.task.interval.ms",
    "remote.log.reader.threads",
    "remote.log.reader.max.pending.tasks",
    "log.local.retention.ms",
    "log.local.retention.bytes",
    "log.remote.copy.lag.ms",
    "log.remote.copy.lag.bytes",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.log.manager.copy.quota.window.num",
    "remote.log.manager.fetch.quota.window.size.seconds",
    "remote.fetch.max.wait.ms",
    "remote.list.offsets.request.timeout.ms",
    "follower.fetch.last.tiered.offset.enable",
)


@case(DESCRIBE)
def configs_of_a_broker(scene: Scene) -> None:
    scene.compare(describing(BROKER, "1", *BROKER_KEYS))
    scene.compare(describing(BROKER, "1", *BROKER_KEYS, include_synonyms=True))


@case(INCREMENTAL)
def changes_of_a_topic(scene: Scene) -> None:
    topic = created(scene, {"remote.storage.enable": "true"})
    for changes in (
        [("cleanup.policy", SET, "compact")],
        [("cleanup.policy", SET, "")],
        [("cleanup.policy", SET, "compact")],
        [("remote.storage.enable", SET, "false")],
        [("remote.storage.enable", DELETE, None)],
        [("remote.log.copy.disable", SET, "true")],
        [("local.retention.ms", SET, "5")],
        [("remote.log.copy.disable", SET, "false"), ("local.retention.ms", SET, "5")],
        [("remote.copy.lag.ms", SET, "6")],
        [("retention.ms", SET, "4")],
        [("remote.storage.enable", SET, "true"), ("cleanup.policy", SET, "compact")],
    ):
        for validate in (True, False):
            scene.label = f"{changes} {validate}"
            scene.compare(changing(TOPIC, topic, *changes, validate_only=validate))


@case(INCREMENTAL)
def changes_of_a_local_topic(scene: Scene) -> None:
    topic = scene.topic(cleanup_policy="compact")
    scene.compare(changing(TOPIC, topic, ("local.retention.ms", SET, "5")))
    scene.compare(changing(TOPIC, topic, ("remote.storage.enable", SET, "true")))
    both = (("remote.storage.enable", SET, "true"), ("cleanup.policy", SET, "delete"))
    scene.compare(changing(TOPIC, topic, *both, validate_only=True))


@case(ALTER)
def the_last_config_of_a_tiered_topic(scene: Scene) -> None:
    topic = created(scene, {"remote.storage.enable": "true"})
    configs = [{"name": "retention.ms", "value": "1000"}]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
    scene.compare({"resources": [resource], "validate_only": False})


# Sequences


def compare_log(scene: Scene, topic: str) -> None:
    """Compare the special offsets, and what is read from some offsets."""
    for timestamp in (-1, -2, -4, -5, -6, 0, NOW_MS + 3000):
        scene.compare(at(topic, timestamp), LIST_OFFSETS, 11)
    for offset in (0, 5, 7, 12, 18, LOCAL_START, END_OFFSET):
        scene.compare(fetching(topic, offset), FETCH, 17)


def local_topic(scene: Scene) -> str:
    """Return a topic of this scene whose offsets below `LOCAL_START` are only in the tier."""
    topic = created(scene, SMALL_LOCAL)
    fill(scene, topic)
    await_offset(scene, topic, EARLIEST_LOCAL, LOCAL_START)
    return topic


@case(FETCH, {17})
def deletion_of_records(scene: Scene) -> None:
    topic = local_topic(scene)
    for offset in (4, 7, LOCAL_START - 1, LOCAL_START + 1, 99, -1):
        delete_records(scene, topic, offset)
        compare_log(scene, topic)


@case(FETCH, {17})
def total_retention_by_size(scene: Scene) -> None:
    topic = local_topic(scene)
    scene.do(INCREMENTAL, 1, changing(TOPIC, topic, ("retention.bytes", SET, "2000")))
    await_offset(scene, topic, EARLIEST, 12)
    compare_log(scene, topic)


@case(FETCH, {17})
def total_retention_by_time(scene: Scene) -> None:
    topic = local_topic(scene)
    changes = (("retention.ms", SET, "1000"), ("local.retention.ms", SET, "1000"))
    scene.do(INCREMENTAL, 1, changing(TOPIC, topic, *changes))
    await_offset(scene, topic, EARLIEST, END_OFFSET)
    await_offset(scene, topic, LATEST_TIERED, END_OFFSET - 1)
    compare_log(scene, topic)


@case(FETCH, {17})
def local_retention_by_time(scene: Scene) -> None:
    topic = created(scene, {**TIERED, "local.retention.ms": "1000"})
    fill(scene, topic)
    # The active segment is rolled, because it could not be copied otherwise.
    await_offset(scene, topic, LATEST_TIERED, END_OFFSET - 1)
    await_offset(scene, topic, EARLIEST_LOCAL, END_OFFSET)
    compare_log(scene, topic)
    scene.produce(topic, batch(b"a" * 100))
    await_offset(scene, topic, EARLIEST_LOCAL, END_OFFSET + 1)
    compare_log(scene, topic)


@case(FETCH, {17})
def copies_that_are_disabled(scene: Scene) -> None:
    topic = created(scene, TIERED)
    fill(scene, topic)
    await_offset(scene, topic, LATEST_TIERED, LOCAL_START - 1)
    scene.do(INCREMENTAL, 1, changing(TOPIC, topic, ("remote.log.copy.disable", SET, "true")))
    scene.settle()
    fill(scene, topic)
    compare_log(scene, topic)
    scene.do(INCREMENTAL, 1, changing(TOPIC, topic, ("remote.log.copy.disable", SET, "false")))
    await_offset(scene, topic, LATEST_TIERED, END_OFFSET + LOCAL_START - 1)
    compare_log(scene, topic)


@case(FETCH, {17})
def copies_that_lag_behind(scene: Scene) -> None:
    lag = {"remote.copy.lag.bytes": "1500", "remote.copy.lag.ms": "-1"}
    topic = created(scene, {**TIERED, **lag})
    fill(scene, topic)
    await_offset(scene, topic, LATEST_TIERED, 17)
    compare_log(scene, topic)


@case(FETCH, {17})
def topic_without_cleanup_policy(scene: Scene) -> None:
    topic = created(scene, {**SMALL_LOCAL, "cleanup.policy": ""})
    fill(scene, topic)
    await_offset(scene, topic, EARLIEST_LOCAL, LOCAL_START)
    compare_log(scene, topic)


@case(FETCH, {17})
def events_of_segments(scene: Scene) -> None:
    """Both write the same events of copies, expirations, and the deletion of the topic."""
    topic = local_topic(scene)
    compare_events(scene, topic)
    delete_records(scene, topic, 13)
    scene.until(
        lambda side: sum(line.endswith("3]") for line in segments_in_metadata(side, topic)) == 2
    )
    compare_events(scene, topic)
    deleted = {"topics": [{"name": topic}], "timeout_ms": 10_000}
    scene.compare(deleted, ApiKey.DELETE_TOPICS, 6)
    scene.until(lambda side: all(line.endswith("3]") for line in segments_in_metadata(side, topic)))
    compare_events(scene, topic)


@case(FETCH, {17})
def events_of_segments_with_transactions(scene: Scene) -> None:
    compare_events(scene, topic_with_aborted_transactions(scene))


def compare_events(scene: Scene, topic: str) -> None:
    """Compare the segments of a topic in the metadata topic, and the states of their events."""
    kafka, barnabas = (
        dict(enumerate(segments_in_metadata(side, topic))) for side in scene.pair.sides()
    )
    scene.note(
        {f"segment {number}": line for number, line in kafka.items()},
        {f"segment {number}": line for number, line in barnabas.items()},
    )


@case(FETCH, {17}, is_nightly=True)
def log_after_a_restart(scene: Scene) -> None:
    topic = local_topic(scene)
    delete_records(scene, topic, 7)
    restart(scene, topic)
    for timestamp in (-1, EARLIEST, EARLIEST_LOCAL):
        scene.compare(at(topic, timestamp), LIST_OFFSETS, 11)
    await_offset(scene, topic, LATEST_TIERED, LOCAL_START - 1)
    scene.until(lambda side: is_searched(side, topic))
    compare_log(scene, topic)
    fill(scene, topic)
    await_offset(scene, topic, EARLIEST_LOCAL, END_OFFSET + LOCAL_START)
    compare_log(scene, topic)
    compare_events(scene, topic)


# Faults of the store


@case(FETCH, {17})
def an_object_that_is_missing(scene: Scene) -> None:
    topic = local_topic(scene)
    for logs in stored_logs(scene, topic):
        logs[1].unlink()
    compare_log(scene, topic)


@case(FETCH, {17}, is_nightly=True)
def a_read_that_takes_too_long(scene: Scene) -> None:
    topic = local_topic(scene)
    first = [logs[0] for logs in stored_logs(scene, topic)]
    for path in first:
        path.rename(f"{path}.away")
        # Opening it blocks until there is a writer.
        os.mkfifo(path)
    scene.compare(fetching(topic, 0))
    scene.compare(fetching(topic, 0, session_epoch=0))
    scene.compare(reading((topic, 0), (topic_with_aborted_transactions(scene), 0)))
    for path in first:
        Path(f"{path}.away").rename(path)
    scene.compare(fetching(topic, 7))
