"""Partitions without a leader or in-sync replicas, unfinished reassignments, and throttles."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.connections.metadata_cache import PartitionInfo, TopicInfo
    from barnabas.client.facade import Client

__all__ = ["examine_moves", "examine_partitions"]

_SHOWN = 5
# Pause before the second look at what an advice would change (s).
_CONFIRM_S = 1.0
_OFFSETS = "__consumer_offsets"
_MIN_ISR = "min.insync.replicas"
_FOLLOWER_RATE = "follower.replication.throttled.rate"
_LEADER_RATE = "leader.replication.throttled.rate"
_UNLIMITED = 2**63 - 1


def examine_partitions(
    client: Client, topics: Mapping[str, TopicInfo], down: Collection[int], diagnosis: Diagnosis
) -> None:
    """Report the leaders and replicas of all partitions.

    Args:
        client: A client of the cluster.
        topics: The topics from the metadata.
        down: Ids of brokers that are known to be down, as the cause of missing replicas.
        diagnosis: Receives the findings.
    """
    every = [(f"{name}-{p.partition}", p) for name, t in topics.items() for p in _of(t)]
    offline = [name for name, p in every if p.leader < 0]
    under = [(name, p) for name, p in every if p.leader >= 0 and len(p.isr) < len(p.replicas)]
    if offline:
        holders = {node for _, p in every if p.leader < 0 for node in p.replicas}
        diagnosis.wrong(
            f"{_count(offline)} no leader: {_some(offline)}",
            f"start the brokers that have replicas of them: {_ids(holders & set(down) or holders)}",
        )
    if under:
        _report_under_replicated(under, down, diagnosis)
    _examine_min_isr(client, topics, down, diagnosis)
    away = [
        name
        for name, p in every
        if p.leader >= 0 and p.replicas and p.leader != p.replicas[0] and p.replicas[0] in p.isr
    ]
    if away:
        diagnosis.note(
            f"{len(away)} partition(s) are not led by their preferred replica: {_some(away)}",
            Advice.ELECT.text(),
        )
    if not offline and not under:
        partitions = "1 partition" if len(every) == 1 else f"{len(every)} partitions"
        names = "1 topic" if len(topics) == 1 else f"{len(topics)} topics"
        diagnosis.ok(f"{partitions} of {names}, all with a leader and in sync")


def _of(topic: TopicInfo) -> Iterable[PartitionInfo]:
    return topic.partitions.values()


def _report_under_replicated(
    under: list[tuple[str, PartitionInfo]], down: Collection[int], diagnosis: Diagnosis
) -> None:
    missing = {node for _, p in under for node in p.replicas if node not in p.isr}
    names = [name for name, _ in under]
    internal = any(name.startswith(f"{_OFFSETS}-") for name in names)
    offsets = f"; one of them belongs to {_OFFSETS}, to which groups commit" if internal else ""
    what = f"{len(under)} partition(s) have replicas that are not in sync: {_some(names)}{offsets}"
    if missing <= set(down):
        remedy = f"start {_brokers(missing)}: their replicas then catch up automatically"
    else:
        lagging = missing - set(down)
        topic, _, partition = names[0].rpartition("-")
        remedy = (
            f"the replicas on {_brokers(lagging)} lag, although the broker answers: "
            f"{Advice.WHY_PARTITION.text(topic=topic, partition=partition)}"
        )
    diagnosis.wrong(what, remedy)


def _examine_min_isr(
    client: Client, topics: Mapping[str, TopicInfo], down: Collection[int], diagnosis: Diagnosis
) -> None:
    """Report partitions that refuse acks=all, and separately topics that can never accept it."""
    minima = _minima(client, topics, diagnosis)
    narrow = [name for name, least in minima.items() if _replicas(topics[name], least) < least]
    if narrow:
        # A topic may be new, or get replicas at this moment: ask again before a change is advised.
        time.sleep(_CONFIRM_S)
        topics = {**topics, **client.describe_topics(narrow)}
        minima |= _minima(client, narrow, diagnosis)
    refusing: list[str] = []
    needed: set[int] = set()
    for name, minimum in minima.items():
        replicas = _replicas(topics[name], minimum)
        if replicas < minimum:
            diagnosis.wrong(
                f"{name} rejects writes with acks=all: {_MIN_ISR}={minimum} is "
                f"more than its {replicas} replica{'' if replicas == 1 else 's'}",
                f"{Advice.SET_MIN_ISR.text(topic=name, replicas=replicas)}; or add replicas by a "
                "reassignment",
            )
            continue
        partitions = _of(topics[name])
        for p in partitions:
            if p.leader >= 0 and len(p.isr) < minimum:
                refusing.append(f"{name}-{p.partition}")
                needed |= set(p.replicas) - set(p.isr)
    if refusing:
        diagnosis.wrong(
            f"{len(refusing)} partition(s) reject writes with acks=all, because fewer "
            f"than {_MIN_ISR} replicas are in sync: {_some(refusing)}",
            f"start {_brokers(needed & set(down))}; do not lower {_MIN_ISR}"
            if needed & set(down)
            else f"bring the replicas on {_brokers(needed)} back in sync; do not lower {_MIN_ISR}",
        )


def _minima(client: Client, names: Iterable[str], diagnosis: Diagnosis) -> dict[str, int]:
    """Return min.insync.replicas of topics."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    described = client.admin.describe_configs(resources, keys=[_MIN_ISR]) if resources else {}
    errors = [each for each in described.values() if isinstance(each, ClientError)]
    if errors:
        diagnosis.unexamined(f"{_MIN_ISR} of {len(errors)} topic(s): {errors[0]}")
    return {
        resource.name: next((int(e.value or 1) for e in entries if e.name == _MIN_ISR), 1)
        for resource, entries in described.items()
        if not isinstance(entries, ClientError)
    }


def _replicas(topic: TopicInfo, default: int) -> int:
    """Return the smallest number of replicas of a partition."""
    return min((len(p.replicas) for p in _of(topic)), default=default)


def examine_moves(client: Client, nodes: Iterable[int], diagnosis: Diagnosis) -> None:
    """Report unfinished reassignments, and throttles that slow replication down."""
    moving = client.admin.list_reassignments()
    if moving:
        diagnosis.note(
            f"{len(moving)} reassignment(s) are not finished: {_some([str(tp) for tp in moving])}",
            f"{Advice.LIST_REASSIGNMENTS.text()} shows their progress; "
            f"{Advice.CANCEL_REASSIGNMENTS.text()} reverts them",
        )
    throttles = _throttles(client, nodes, diagnosis)
    if throttles and not moving:
        # A reassignment that has just finished removes its throttles itself.
        time.sleep(_CONFIRM_S)
        throttles &= _throttles(client, {node for node, _, _ in throttles}, diagnosis)
    for node, name, rate in sorted(throttles):
        remedy = Advice.UNSET_BROKER_CONFIG.text(broker=node, key=name)
        diagnosis.note(
            f"broker {node} is throttled: {name}={rate} bytes/s",
            f"wait for the reassignment, then {remedy}" if moving else remedy,
        )


def _throttles(
    client: Client, nodes: Iterable[int], diagnosis: Diagnosis
) -> set[tuple[int, str, str]]:
    """Return the throttles of brokers: the broker, the key and its value."""
    resources = [ConfigResource(ResourceType.BROKER, str(node)) for node in nodes]
    described = client.admin.describe_configs(resources) if resources else {}
    found = set()
    for resource, entries in described.items():
        if isinstance(entries, ClientError):
            diagnosis.unexamined(f"throttles of broker {resource.name}: {entries}")
            continue
        found |= {
            (int(resource.name), e.name, e.value)
            for e in entries
            if e.name in (_FOLLOWER_RATE, _LEADER_RATE) and e.value and int(e.value) < _UNLIMITED
        }
    return found


def _count(names: list[str]) -> str:
    return f"{len(names)} partition(s) have"


def _brokers(ids: Collection[int]) -> str:
    return f"broker{'' if len(ids) == 1 else 's'} {_ids(ids)}"


def _ids(ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ids)))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
