"""The load of two linked clusters: it stops in one cluster and goes on in the other.

The loads of all phases write to one topic, with different numbers of producers. Their operations
together are one history, and the checker of the campaign judges it with the log of either cluster.
In each phase, a consumer reads the mirrors too: what it sees must be in the log at the end.
"""

from __future__ import annotations

import time
from dataclasses import replace

from chaos.checker import check
from chaos.history import History, PartitionLog
from chaos.links.ledger import (
    LEDGER,
    PARTITIONS as LEDGER_PARTITIONS,
    Fates,
    LedgerWriting,
    check_ledger,
)
from chaos.links.link_stress import PARTITIONS, LinkStress, Side, await_ranges
from chaos.load import Errors, Load, LoadOptions, OwnReading, plain_consumer, read_log
from chaos.stress import HEAL_TIMEOUT_S, TOPIC
from conformance.linked_clusters import read_all
from group_offsets import committed_offsets
from waiting import eventually

# Producers of each load.
_PRODUCERS = 2


class LinkedLoad:
    """The load in the active cluster, and the reader of the mirrors in the passive one."""

    def __init__(self, clusters: LinkStress) -> None:
        self._clusters = clusters
        self.options = LoadOptions(TOPIC, PARTITIONS, rate=clusters.options.rate)
        self.errors = Errors()
        self.fates = Fates()
        self.history = History()
        self.failed_sends = 0
        self.problems: list[str] = []
        self._phase = 0
        # The greatest offset of the group that was found in the passive cluster, by partition.
        self._copied: dict[int, int] = {}

    def start(self) -> None:
        """Start all clients: the load in the active cluster, the reader in the passive one."""
        clusters = self._clusters
        active, passive = clusters.active, clusters.passive
        options = replace(self.options, first_producer=self._phase * _PRODUCERS)
        self._load = Load(active.bootstrap, options)
        self._load.errors = self.errors
        for worker in (*self._load.producing, self._load.reading, *self._load.members):
            worker.errors = self.errors
        self._ledger = LedgerWriting(active.bootstrap, self.fates, self._phase, self.errors)
        self._reader = OwnReading(passive.bootstrap, options, self.errors)
        self._phase += 1
        self._copied = {}
        for side in clusters.sides:
            side.stress.load = self._load
        self._load.start()
        self._ledger.start()
        self._reader.start()
        self.await_progress()

    def check_alive(self) -> None:
        """Raise the exception of a dead client, or an error if a node has ended by itself."""
        self._clusters.check_alive()
        self._ledger.check_alive()
        self._reader.check_alive()

    def await_progress(self) -> float:
        """Wait until all clients have done new work; return the seconds."""
        began = time.monotonic()
        load, ledger = self._load, self._ledger
        load.mark()
        committed = ledger.committed

        def waiting() -> list[str]:
            self.check_alive()
            found = load.waiting()
            return found if ledger.committed > committed else [*found, "the ledger"]

        eventually(
            lambda: not waiting(),
            lambda: f"no progress: {waiting()}\n{dict(self.errors.counts)}",
            HEAL_TIMEOUT_S,
        )
        return time.monotonic() - began

    def sample(self) -> None:
        """Read the offsets of the group in both clusters; check those of the passive one."""
        self._load.sample_commits()
        passive = self._clusters.passive
        found = self.group_offsets(passive)
        ends = await_ranges(passive.bootstrap, {TOPIC: PARTITIONS})
        for key, (_, end) in ends.items():
            offset = found.get(key.partition, 0)
            before = self._copied.get(key.partition, 0)
            where = f"the group's offset of {key.topic}-{key.partition} in the mirrors"
            if offset > end:
                self.problems.append(f"{where} is {offset}, and the mirror ends at {end}")
            if offset < before:
                self.problems.append(f"{where} is {offset}, after {before}")
            self._copied[key.partition] = max(offset, before)

    def group_offsets(self, side: Side) -> dict[int, int]:
        """Return the committed offsets of the group in a cluster."""
        reader = plain_consumer(side.bootstrap, self.options.group)
        return committed_offsets(reader, TOPIC, range(PARTITIONS))

    def stop(self) -> None:
        """Stop all clients after they have read everything; add what they saw to the history."""
        clusters = self._clusters
        self._ledger.stop()
        self._ledger.join()
        found = self._load.finish()
        clusters.await_mirrored()
        ends = {number: log.offsets[-1] for number, log in found.logs.items() if log.offsets}
        reader = self._reader
        eventually(
            lambda: (
                reader.check_alive(),
                all(reader.runs[n].offsets[-1:].tolist() == [end] for n, end in ends.items()),
            )[1],
            lambda: f"the reader of the mirrors is at {[r.offsets[-1:] for r in reader.runs]}",
            HEAL_TIMEOUT_S,
        )
        reader.stop()
        reader.join()
        self.failed_sends += self._load.failures()
        history = self.history
        history.sends += found.sends
        history.runs += [*found.runs, *reader.runs]
        history.member_runs += found.member_runs
        history.commits += found.commits

    def abandon(self) -> None:
        """Stop all clients without waiting for them."""
        if self._phase:
            for worker in (self._load, self._ledger, self._reader):
                worker.abandon() if isinstance(worker, Load) else worker.stop()

    def records(self) -> int:
        """Return the number of records that were sent in the phases that have ended."""
        return sum(each.sent for each in self.history.sends)

    def judge(self, side: Side) -> list[str]:
        """Return all violations that the logs of a cluster show. No client may run."""
        logs: dict[int, PartitionLog] = {
            number: read_log(side.bootstrap, TOPIC, number) for number in range(PARTITIONS)
        }
        verdict = check(replace(self.history, logs=logs))
        found = [] if verdict.is_clean else [f"{side.name} cluster: {verdict}"]
        values = [
            [record[3] for record in read_all(side.bootstrap, LEDGER, partition=number)]
            for number in range(LEDGER_PARTITIONS)
        ]
        ledger = check_ledger(self.fates.by_number, values)
        return found if ledger.is_clean else [*found, f"{side.name} cluster, ledger: {ledger}"]
