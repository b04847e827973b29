"""Many random runs: `python -m simulation.quorum_seeds FIRST COUNT`, from `tests`.

Prints each failing seed with its error, and at the end the counts of all events.
"""

from __future__ import annotations

import sys
from collections import Counter

from barnabas.raft.driver.raft_driver import RaftDriver
from simulation.quorum_storms import FAILURES, VOTER_CHANGES

STORMS = {**FAILURES, **VOTER_CHANGES}


def main(first: int, count: int) -> int:
    seen: Counter[str] = Counter()
    install = RaftDriver._install
    truncate = RaftDriver._truncate

    def counted_install(driver: RaftDriver, snapshot_id: object) -> None:
        seen["snapshots installed"] += 1
        install(driver, snapshot_id)  # type: ignore[arg-type]

    def counted_truncate(driver: RaftDriver, offset: int) -> None:
        seen["truncations"] += offset < driver.log.log_end_offset
        truncate(driver, offset)

    RaftDriver._install = counted_install  # type: ignore[method-assign]
    RaftDriver._truncate = counted_truncate  # type: ignore[method-assign]
    failed = 0
    for number, seed in enumerate(range(first, first + count)):
        if number and number % 50 == 0:
            print(f"{number} seeds, {failed} failed", flush=True)
        for name, run in STORMS.items():
            try:
                hosts = run(seed)
            except Exception as error:  # noqa: BLE001 - every failure is reported with its seed
                failed += 1
                print(f"{name} {seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                continue
            seen["storms"] += 1
            seen["leaders"] += len(hosts.history.leaders)
            seen["committed"] += len(hosts.history.committed)
            seen["virtual seconds"] += int(hosts.world.scheduler.now_ms / 1000)
    print(f"{failed} failed; " + ", ".join(f"{value} {name}" for name, value in seen.items()))
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
