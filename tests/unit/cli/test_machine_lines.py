"""Lines about machines that run several brokers."""

from __future__ import annotations

import re
import time

from barnabas.cli.common.machine_lines import shared_machines
from barnabas.client.admin.cluster import (
    ClusterDescription,
    QuorumDescription,
    QuorumReplica,
    VoterEndpoint,
)
from barnabas.client.connections.metadata_cache import NodeInfo


def quorum(**hosts: str) -> QuorumDescription:
    """Return a quorum with voters 1, 2, … on hosts."""
    ids = range(1, len(hosts) + 1)
    return QuorumDescription(
        1,
        1,
        0,
        tuple(QuorumReplica(each, 0, 0, 0) for each in ids),
        (),
        {
            each: (VoterEndpoint("CONTROLLER", host, 9093),)
            for each, host in zip(ids, hosts.values(), strict=True)
        },
    )


def lines(
    brokers: list[NodeInfo],
    found: QuorumDescription | None,
    *,
    fenced: tuple[NodeInfo, ...] = (),
    down: tuple[int, ...] = (),
) -> list[str]:
    cluster = ClusterDescription("c", 1, tuple(brokers), fenced)
    return [machine.line() for machine in shared_machines(cluster, found, down)]


def test_each_machine_has_a_line_with_its_brokers_and_controllers() -> None:
    brokers = [NodeInfo(201, "HOST2", 9092), NodeInfo(102, "host1", 9094)]
    brokers += [NodeInfo(101, "host1", 9092), NodeInfo(202, "host2", 9094)]
    assert lines(brokers, quorum(a="host1", b="host2", c="host3")) == [
        "machine host1: brokers 101, 102 · controller 1 · 2 of 2 brokers serve",
        "machine host2: brokers 201, 202 · controller 2 · 2 of 2 brokers serve",
        "machine host3: controller 3",
    ]


def test_a_controller_on_an_unknown_machine_is_left_out() -> None:
    brokers = [NodeInfo(101, "host1", 9092), NodeInfo(102, "host1", 9093)]
    assert lines(brokers, None) == ["machine host1: brokers 101, 102 · 2 of 2 brokers serve"]


def test_brokers_on_machines_of_their_own_have_no_lines() -> None:
    brokers = [NodeInfo(1, "host1", 9092), NodeInfo(2, "host2", 9092)]
    assert lines(brokers, quorum(a="host1")) == []
    assert lines(brokers[:1], quorum(a="host1"), fenced=(brokers[1],)) == []


def test_a_fenced_broker_and_its_last_fetch_are_named() -> None:
    observer = QuorumReplica(102, 0, 400_000, 0)
    leader = QuorumReplica(1, 0, 1_000_000, 1_000_000)
    found = QuorumDescription(1, 1, 0, (leader,), (observer,), {})
    fenced = (NodeInfo(102, "host1", 9093),)
    [line] = lines([NodeInfo(101, "host1", 9092)], found, fenced=fenced)
    pattern = r".* · 1 of 2 brokers serves · broker 102 is down since [\d:]{8} \(10 min\)"
    assert re.fullmatch(pattern, line), line


def test_a_broker_that_does_not_answer_is_down_before_the_controller_fences_it() -> None:
    brokers = [NodeInfo(101, "host1", 9092), NodeInfo(102, "host1", 9093)]
    assert lines(brokers, None, down=(102,)) == [
        "machine host1: brokers 101, 102 · 1 of 2 brokers serves · broker 102 is down"
    ]


def test_the_json_has_the_facts_of_the_line() -> None:
    observer = QuorumReplica(102, 0, 400_000, 0)
    leader = QuorumReplica(1, 0, 1_000_000, 1_000_000)
    found = QuorumDescription(1, 1, 0, (leader,), (observer,), {})
    nodes = tuple(NodeInfo(each, "host1", 9000 + each) for each in (101, 102, 103))
    cluster = ClusterDescription("c", 1, nodes[:1], nodes[1:])
    before = time.time() * 1000
    [machine] = shared_machines(cluster, found)
    shown = machine.as_json()
    after = time.time() * 1000
    known, unknown = shown.pop("down")
    assert before - 600_001 <= known["since_ms"] <= after - 599_999
    assert (known["broker"], unknown) == (102, {"broker": 103, "since_ms": None})
    assert shown == {
        "machine": "host1",
        "brokers": [101, 102, 103],
        "controllers": [],
        "serving": [101],
    }
