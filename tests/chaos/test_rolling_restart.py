"""All brokers restart one after another under load, and no send fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.campaign import Options, stressed
from chaos.checker import check
from chaos.judgment import compare_replicas, unexpected_errors
from scenario.stage import runs_on_kafka


# `test_rolling_upgrade` restarts all brokers twice.
@pytest.mark.nightly
@pytest.mark.conformance
def test_no_send_fails_while_all_brokers_are_restarted_one_by_one(tmp_path: Path) -> None:
    options = Options(seconds=0, seed=1, kafka=runs_on_kafka(), relays=False)
    with stressed(options, tmp_path) as stress:
        for node in stress.cluster.nodes.values():
            stress.may_end.add(node.node_id)
            node.restart()
            stress.may_end.clear()
            stress.await_full_isr()
            stress.check_alive()
        before, _ = stress.state()
        stress.balance()
        history = stress.load.finish()
        assert stress.load.failures() == 0, stress.load.errors.counts
        verdict = check(history)
        assert verdict.is_clean, verdict
        assert compare_replicas(stress.cluster, stress.partitions) == []
        assert unexpected_errors(stress.cluster) == []
        # Every partition has changed its leader: the restarts were felt.
        assert all(view.leader_epoch > 0 for view in before.values())
        print(f"{stress.load.records()} records; {dict(stress.load.errors.counts)}")
