"""Each system call of an append fails in turn: no record is lost or duplicate."""

from __future__ import annotations

import errno

import pytest

from barnabas.sim.disk import DiskFault
from barnabas.storage.errors import KafkaStorageError
from selection import nightly_rows_unless
from unit.storage.append_faults import (
    PLANS,
    Append,
    FollowerSide,
    JointSide,
    LeaderSide,
    Side,
    calls_of_victim,
    faults_for,
    run_with,
)
from unit.storage.storage_fixtures import DIRECTORY, Bench


@pytest.mark.parametrize(
    ("name", "side"),
    nightly_rows_unless(
        # These appends have the most system calls.
        lambda row: (
            row[0] not in {"one that rolls", "one that writes the index"} or row[1] is JointSide
        ),
        [(name, side) for name in PLANS for side in (LeaderSide, FollowerSide, JointSide)],
    ),
)
def test_a_failed_system_call_of_an_append_loses_or_duplicates_no_record(
    name: str, side: type[Side]
) -> None:
    plan = PLANS[name]
    calls = calls_of_victim(side(plan))
    assert any(operation == "write" for operation, _ in calls), calls
    for failing in faults_for(calls):
        operation, path = calls[failing.number]
        what = f"{operation} of {path} fails with {errno.errorcode[failing.error]} ({failing})"
        for ending in ("go on", "kill", "stop"):
            run_with(side(plan), failing, ending, f"{what}, then {ending}")


def test_a_full_disk_at_the_epoch_checkpoint_takes_the_log_offline() -> None:
    bench = Bench()
    bench.append(Append(0).records())
    bench.disk.faults.append(
        DiskFault(f"{DIRECTORY}/leader-epoch-checkpoint", ("write",), errno.ENOSPC)
    )
    for _ in range(2):
        with pytest.raises(KafkaStorageError):
            bench.append(Append(1).records(), epoch=4)
    assert len(bench.failures) == 1
    bench.disk.faults.clear()
    bench.kill_and_reopen()
    # The file of epochs is written before the batch: the append that failed left no batch.
    assert not bench.append(Append(1).records(), epoch=4).duplicate
    assert bench.append(Append(1).records(), epoch=4).duplicate
    assert bench.log.log_end_offset == 2
