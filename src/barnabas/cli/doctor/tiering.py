"""Diagnosis of the remote tier (KIP-405): its switch, its topics, its metadata, and its store.

A cluster tells about the configuration of brokers and topics, and about the metadata topic. The
store is examined with the properties file of a broker, on the machine of the broker: there are its
credentials, its network and its clock.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.named_brokers import named_brokers
from barnabas.cli.common.printable import counted, some
from barnabas.cli.common.units import size
from barnabas.cli.why.gather_tier import tiered_topics
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.runtime.disk import RealDisk
from barnabas.settings.key import ConfigError
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC, STORAGE, SYSTEM_ENABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.connections.metadata_cache import NodeInfo, TopicInfo
    from barnabas.client.facade import Client
    from barnabas.server.configs.configuration import Configuration
    from barnabas.storage.remote.remote_storage import RemoteStorage

_REPLICAS_MIN = 3
# Every start of a broker reads the metadata topic from its beginning.
_METADATA_BYTES_MAX = 1 << 30
_ENABLED = "remote.storage.enable"
_RETENTIONS = (("retention.ms", "local.retention.ms"), ("retention.bytes", "local.retention.bytes"))
# Value of a local retention: as the total one.
_AS_TOTAL = -2
_COPY_DISABLE = "remote.log.copy.disable"
_KEYS = (_COPY_DISABLE, *(key for pair in _RETENTIONS for key in pair))


def examine_tier(
    client: Client, nodes: list[NodeInfo], topics: Mapping[str, TopicInfo], diagnosis: Diagnosis
) -> None:
    """Report what is wrong with the remote tier of a cluster. A cluster without one is not asked.

    Args:
        client: A client of the cluster.
        nodes: The brokers that answer.
        topics: All topics.
    """
    stores = _stores(client, nodes)
    enabled = {node for node, store in stores.items() if store is not None}
    if not enabled and REMOTE_LOG_TOPIC not in topics:
        return
    tiered = tiered_topics(client, topics, _KEYS)
    report_switch(stores, tiered, diagnosis)
    if not enabled:
        return
    report_retention(tiered, diagnosis)
    if REMOTE_LOG_TOPIC in topics:
        _report_metadata(client, topics[REMOTE_LOG_TOPIC], nodes, diagnosis)


def _stores(client: Client, nodes: Iterable[NodeInfo]) -> dict[int, str | None]:
    """Return the store of each broker; None for brokers without a remote tier."""
    resources = [ConfigResource(ResourceType.BROKER, str(node.id)) for node in nodes]
    found: dict[int, str | None] = {}
    described = client.admin.describe_configs(resources, keys=(SYSTEM_ENABLE, STORAGE))
    for resource, entries in described.items():
        if isinstance(entries, ClientError):
            raise entries
        values = {each.name: each.value for each in entries}
        is_enabled = values.get(SYSTEM_ENABLE) == "true"
        found[int(resource.name)] = (values.get(STORAGE) or "") if is_enabled else None
    return found


def report_switch(
    stores: Mapping[int, str | None], tiered: Mapping[str, object], diagnosis: Diagnosis
) -> None:
    """Report brokers without the switch or with another store, and a switch without effect."""
    disabled = sorted(node for node, store in stores.items() if store is None)
    enabled = sorted(node for node, store in stores.items() if store is not None)
    if disabled and tiered:
        diagnosis.wrong(
            f"{counted(len(tiered), 'topic')} with a remote tier ({some(list(tiered))}), but "
            f"{SYSTEM_ENABLE} is false on {named_brokers(disabled)}: there, segments are neither "
            "copied nor read, and the next start fails",
            f"set {SYSTEM_ENABLE}=true and the store of the others on {named_brokers(disabled)}, "
            "and restart",
        )
    elif disabled and enabled:
        diagnosis.wrong(
            f"{SYSTEM_ENABLE} is true on {named_brokers(enabled)} and false on "
            f"{named_brokers(disabled)}: a topic with a remote tier fails where it is false",
            "give all brokers the same value, and restart those that change",
        )
    elif not tiered:
        diagnosis.note(
            f"{SYSTEM_ENABLE} is true, and no topic has a remote tier",
            f"set {_ENABLED}=true for a topic, or remove the key",
        )
    else:
        diagnosis.ok(f"{counted(len(tiered), 'topic')} with a remote tier, enabled on all brokers")
    by_store: dict[str, list[int]] = {}
    for node in enabled:
        by_store.setdefault(stores[node] or "", []).append(node)
    if len(by_store) > 1:
        words = "; ".join(f"{store} on {named_brokers(on)}" for store, on in by_store.items())
        diagnosis.wrong(
            f"the brokers use several stores: {words}. A new leader does not find the segments of "
            "the former one",
            f"give all brokers the same {STORAGE}, and restart those that change",
        )


def report_retention(tiered: Mapping[str, Mapping[str, str]], diagnosis: Diagnosis) -> None:
    """Report topics whose local retention is as long as the total one."""
    useless = [
        name
        for name, values in tiered.items()
        if values.get(_COPY_DISABLE) != "true"
        and all(_is_as_long(values, *keys) for keys in _RETENTIONS)
    ]
    if useless:
        diagnosis.note(
            f"{counted(len(useless), 'topic')} with a remote tier and no shorter local retention: "
            f"{some(useless)}; their disks hold everything that the tier holds",
            "set local.retention.ms or local.retention.bytes: "
            f"{Advice.DESCRIBE_TOPIC_CONFIGS.text(topic=useless[0])} shows the configs",
        )


def _is_as_long(values: Mapping[str, str], total_key: str, local_key: str) -> bool:
    total, local = int(values.get(total_key, "-1")), int(values.get(local_key, str(_AS_TOTAL)))
    return local in (_AS_TOTAL, total)


def _report_metadata(
    client: Client, topic: TopicInfo, nodes: Iterable[NodeInfo], diagnosis: Diagnosis
) -> None:
    """Report too few replicas of the metadata topic, and a large one: it is never compacted."""
    ids = [node.id for node in nodes]
    replicas = min((len(each.replicas) for each in topic.partitions.values()), default=0)
    wanted = min(_REPLICAS_MIN, len(ids))
    if replicas < wanted:
        diagnosis.wrong(
            f"{REMOTE_LOG_TOPIC} has {counted(replicas, 'replica')}, and there are "
            f"{counted(len(ids), 'broker')}: with its disks, all knowledge of the segments in the "
            "remote tier is lost",
            Advice.REPLICATE_TOPIC.text(
                topic=REMOTE_LOG_TOPIC,
                brokers=",".join(map(str, sorted(ids))),
                replicas=wanted,
            )
            + " shows a plan",
        )
    # Bytes of the largest replica of each partition.
    sizes: dict[int, int] = {}
    partitions = [(REMOTE_LOG_TOPIC, number) for number in topic.partitions]
    for found in client.admin.describe_log_dirs(ids, partitions, once=True).values():
        for directory in () if isinstance(found, ClientError) else found:
            for tp, replica in directory.replicas.items():
                sizes[tp.partition] = max(sizes.get(tp.partition, 0), replica.size)
    total = sum(sizes.values())
    if total > _METADATA_BYTES_MAX:
        diagnosis.note(
            f"{REMOTE_LOG_TOPIC} has {size(total)}. It keeps all events, and a broker reads them "
            "at its start",
            "use larger segments (segment.bytes), so that there are fewer events; do not delete or "
            "compact this topic",
        )


# The store, with the properties of a broker.

_PROBE_TOPIC = "barnabas-doctor"
_PROBE = b"written, read and deleted to examine the store\n"
_REQUEST_MS, _RETRY_MS = 3_000, 5_000


def examine_store(
    configuration: Configuration, cluster_id: str | None, diagnosis: Diagnosis
) -> None:
    """Write, read and delete an object of the store that a properties file names.

    Args:
        configuration: The configuration of a broker.
        cluster_id: The cluster of its data directory; None before the first start.
    """
    parsed = configuration.parsed
    if not parsed.boolean(SYSTEM_ENABLE):
        return
    # Imported only for brokers with a remote tier.
    from barnabas.cli.remote.stores import Store
    from barnabas.storage.remote.config import parse_storage_url, remote_log_config, store_options
    from barnabas.storage.remote.opening import open_remote_storage
    from barnabas.storage.remote.remote_storage import RemoteStorageError
    from barnabas.storage.remote.segment_objects import topic_directory

    url = parsed.string(STORAGE)
    if cluster_id is None:
        diagnosis.note(
            f"the store {url} is not examined before the first start: the cluster id is unknown"
        )
        return
    store = parse_storage_url(url)
    try:
        options = store_options(remote_log_config(parsed, configuration.given))
        options = replace(options, request_timeout_ms=_REQUEST_MS, retry_timeout_ms=_RETRY_MS)
        # A function has no list of clusters.
        if store.scheme != "python" and not Store(url, options).is_marked(cluster_id):
            # Opening it could create it.
            diagnosis.note(
                f"{url} has no store of cluster {cluster_id}: the broker creates one at its start",
                "if the cluster has a remote tier already, mount its file system, or name its "
                "bucket, before the start",
            )
            return
        storage = open_remote_storage(url, cluster_id, RealDisk(), options)
    except (ConfigError, RemoteStorageError) as error:
        diagnosis.wrong(f"the store {url} cannot be opened: {error}", f"correct {STORAGE}")
        return
    try:
        topic_id = uuid.uuid4().bytes
        _probe(storage, topic_id)
        if store.scheme == "file" and not store.layout:
            # A store keeps the directories of deleted segments.
            directory = Path(store.location) / cluster_id / topic_directory(_PROBE_TOPIC, topic_id)
            with suppress(OSError):
                (directory / "0").rmdir()
                directory.rmdir()
    except RemoteStorageError as error:
        # Imported here with the parts of the remote tier.
        from barnabas.replication.remote.store_health import fix_of

        diagnosis.wrong(f"the store {url} cannot be used: {error}", fix_of(error))
    else:
        diagnosis.ok(f"the store {url} can be written, read and deleted from")
    finally:
        storage.close()


def _probe(storage: RemoteStorage, topic_id: bytes) -> None:
    """Store a small segment of a topic that does not exist, read it, and delete it.

    Raises:
        RemoteStorageError: one of the calls failed.
    """
    from barnabas.storage.remote.remote_storage import (
        RemoteDamagedError,
        RemoteSegment,
        SegmentFiles,
        SegmentState,
    )

    segment = RemoteSegment(
        topic=_PROBE_TOPIC,
        topic_id=topic_id,
        partition=0,
        id=uuid.uuid4().bytes,
        start_offset=0,
        end_offset=0,
        size=len(_PROBE),
        max_timestamp=0,
        leader_epochs=((0, 0),),
        has_transactions=False,
        broker_id=0,
        event_ms=int(time.time() * 1000),
        state=SegmentState.COPY_SEGMENT_STARTED,
    )
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "probe.log"
        path.write_bytes(_PROBE)
        files = SegmentFiles(str(path), len(_PROBE), b"", b"", None, b"", b"0\n1\n0 0\n")
        try:
            custom = storage.copy_segment(segment, files)
            segment = replace(segment, custom=custom)
            if storage.read(segment, 0, len(_PROBE)) != _PROBE:
                raise RemoteDamagedError("the store returned other bytes than were written")
        finally:
            storage.delete_segment(segment)
