"""Certificates of three brokers are rotated, and expire, under load; the checker judges."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.campaign import Options, stressed
from chaos.certificate_faults import expire, refusal, rotate
from chaos.checker import check
from chaos.cluster_view import await_that
from chaos.judgment import compare_replicas, unexpected_errors
from chaos.stress import HEAL_TIMEOUT_S, Stress

# On a busy machine too, nodes lose each other by their certificates only.
LONG_TIMEOUTS = (
    ("broker.session.timeout.ms", "60000"),
    ("controller.quorum.election.timeout.ms", "10000"),
    ("controller.quorum.fetch.timeout.ms", "60000"),
    ("replica.lag.time.max.ms", "60000"),
)
OPTIONS = Options(seconds=0, seed=1, relays=False, rate=100, settings=LONG_TIMEOUTS, tls=True)
# librdkafka's names for a connection that broke, or could not be made.
LOST = ("_TRANSPORT", "_SSL", "_ALL_BROKERS_DOWN")
EXPIRED = "the certificate of this side has expired"


def judge(stress: Stress) -> None:
    history = stress.load.finish()
    assert stress.load.failures() == 0, stress.load.errors.counts
    verdict = check(history)
    assert verdict.is_clean, verdict
    assert compare_replicas(stress.cluster, stress.partitions) == []
    assert unexpected_errors(stress.cluster) == []


def acknowledged(stress: Stress) -> None:
    """Records that are sent from now on arrive in all partitions."""
    stress.load.mark()
    await_that(stress.load.waiting, lambda found: not found, HEAL_TIMEOUT_S, "acknowledgements")


def leads(stress: Stress) -> list[tuple[int, int]]:
    found, _ = stress.state()
    return [(view.leader, view.leader_epoch) for view in found.values()]


@pytest.mark.conformance
def test_no_connection_is_lost_while_certificates_are_rotated(tmp_path: Path) -> None:
    with stressed(OPTIONS, tmp_path) as stress:
        before = leads(stress)
        for _ in range(2):
            rotate(stress)
            acknowledged(stress)
        errors = stress.load.errors.counts
        assert not [each for each in errors if any(name in each for name in LOST)], errors
        assert leads(stress) == before
        judge(stress)


@pytest.mark.nightly
@pytest.mark.conformance
def test_a_certificate_that_expires_costs_new_connections_only(tmp_path: Path) -> None:
    with stressed(OPTIONS, tmp_path) as stress:
        before = leads(stress)
        expire(stress)
        acknowledged(stress)
        assert leads(stress) == before, "open connections go on, those between nodes too"
        assert any(EXPIRED in node.log() for node in stress.cluster.nodes.values())
        stress.heal()
        assert stress.tls is not None
        for node in stress.cluster.brokers:
            for address in node.options.listeners.values():
                assert refusal(stress.tls, address) == ""
        stress.await_full_isr()
        judge(stress)
