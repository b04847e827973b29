"""The metadata quorum: its leader, the voters that answer, and the clocks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.quorum_state import NO_LEADER, quorum_state
from barnabas.cli.doctor.probe import BROKERS, Probes
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.server.configs.endpoints import parse_voter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.cli.common.quorum_state import QuorumState
    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.cli.doctor.probe import Address
    from barnabas.client.admin.cluster import ClusterDescription
    from barnabas.client.facade import Client

__all__ = ["examine_quorum", "report_lost_quorum"]

_VOTERS = "controller.quorum.voters"
_SKEW_MS_MAX = 2_000


def examine_quorum(client: Client, diagnosis: Diagnosis, *, is_again: bool = False) -> QuorumState:
    """Request the quorum state from its leader, and compare the leader's clock with ours.

    Args:
        client: A client of the cluster.
        diagnosis: Receives the findings.
        is_again: Whether a first comparison has found a difference, which this one confirms.
    """
    before = time.time() * 1000
    state = quorum_state(client)
    after = time.time() * 1000
    if state.description is None:
        return state
    leader = next(
        (v for v in state.description.voters if v.node_id == state.description.leader_id), None
    )
    # The leader reports its own catch-up time as the current time of its clock.
    if leader is None or leader.last_caught_up_timestamp < 0:
        return state
    skew = leader.last_caught_up_timestamp - (before + after) / 2
    if abs(skew) > _SKEW_MS_MAX + (after - before) / 2:
        if not is_again:
            return examine_quorum(client, diagnosis, is_again=True)
        direction = "ahead of" if skew > 0 else "behind"
        diagnosis.wrong(
            f"controller {leader.node_id}'s clock is {abs(skew) / 1000:.0f} s {direction} ours",
            "set both clocks by NTP (timedatectl set-ntp true): the difference affects "
            "timestamps, retention and offset lookups by time",
        )
    else:
        diagnosis.ok(f"the clocks differ by at most {abs(skew):.0f} ms")
    return state


def report_lost_quorum(
    client: Client, cluster: ClusterDescription, probes: Probes, diagnosis: Diagnosis
) -> None:
    """Report first that the quorum has no leader, and which voters do not answer.

    Args:
        client: A client that reaches a broker.
        cluster: The brokers in the response of that broker.
        probes: The probes of their addresses.
        diagnosis: Receives the finding.
    """
    # Report it before the voters respond, which may take too long.
    diagnosis.wrong_first(
        NO_LEADER, "start a majority of the controllers; do not delete their data"
    )
    found = {
        node.id: probes.reply((node.host, node.port)).peer
        for node in (*cluster.brokers, *cluster.fenced)
    }
    voters = _voters(client, [node for node, peer in found.items() if peer in BROKERS])
    lost: list[int] = []
    needed = len(voters) // 2 + 1
    if voters:
        answers = Probes(voters.values())
        lost = [node for node, at in voters.items() if answers.reply(at).peer not in BROKERS]
        words = f"{len(voters) - len(lost)} of {len(voters)} voters answer, {needed} are required"
        where = ", ".join(f"{node} ({voters[node][0]})" for node in lost)
    else:
        words = "its voters are unknown"
        where = ", ".join(str(n) for n, peer in sorted(found.items()) if peer not in BROKERS)
    if voters and len(voters) - len(lost) >= needed:
        remedy = (
            "an election may be in progress: repeat this command; otherwise, see the logs of the "
            "voters"
        )
    else:
        starting = f"start nodes {where}" if where else "start a majority of the controllers"
        remedy = f"{starting}: on each host, {Advice.START_NODE.text()}; do not delete their data"
    diagnosis.wrong_first(f"{NO_LEADER}; {words}", remedy)


def _voters(client: Client, answering: Iterable[int]) -> dict[int, Address]:
    """Return the addresses of the voters from a broker's configuration; empty if unknown."""
    for node in answering:
        resource = ConfigResource(ResourceType.BROKER, str(node))
        try:
            entries = client.admin.describe_configs([resource])[resource]
        except ClientError:
            continue
        for entry in () if isinstance(entries, ClientError) else entries:
            if entry.name == _VOTERS and entry.value:
                voters = (parse_voter(part.strip()) for part in entry.value.split(","))
                return dict(voter for voter in voters if voter is not None)
    return {}
