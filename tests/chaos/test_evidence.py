"""The evidence of a finding: the batches around it, from the segment files of each node."""

from __future__ import annotations

from pathlib import Path

from barnabas.record.builder import BatchBuilder, build_batch
from barnabas.record.record import Record
from chaos.checker import Verdict
from chaos.evidence import CONTEXT_BATCHES, evidence, stored_batches

TOPIC = "t"
PRODUCER_ID = 4711


def batch(offset: int, sequence: int, leader_epoch: int = 0) -> bytes:
    builder = BatchBuilder(
        base_offset=offset,
        producer_id=PRODUCER_ID,
        producer_epoch=2,
        base_sequence=sequence,
        leader_epoch=leader_epoch,
    )
    return bytes(build_batch([Record(offset, 1, 0, None, b"v")], builder))


def write_replica(directory: Path, batches: list[bytes], rest: bytes = b"") -> None:
    (directory / f"{TOPIC}-0").mkdir(parents=True)
    (directory / f"{TOPIC}-0" / f"{0:020}.log").write_bytes(b"".join(batches) + rest)
    (directory / f"{TOPIC}-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n5 20\n")


def test_a_duplicate_is_shown_by_both_batches_on_each_node(tmp_path: Path) -> None:
    numbers = [*range(20), 4]
    for node in ("one", "two"):
        write_replica(
            tmp_path / node,
            [batch(offset, number, 5 * (offset == 20)) for offset, number in enumerate(numbers)],
        )
    verdict = Verdict()
    verdict.add("duplicated", 0, "record 4 of producer 0 is at 4 and at 20", 4, 20)
    shown = evidence(verdict, TOPIC, {1: tmp_path / "one", 2: tmp_path / "two"})
    lines = shown.split("\n")
    marked = [line for line in lines if line.startswith("  ->")]
    assert len(marked) == 4
    for line, offset, epoch in zip(marked, (4, 20, 4, 20), (0, 5, 0, 5), strict=True):
        assert f"offsets {offset} to {offset} leader_epoch={epoch}" in line
        assert f"producer_id={PRODUCER_ID} producer_epoch=2 sequences=4 to 4" in line
    assert lines.count("    leader epochs and their start offsets: 0 0, 5 20") == 2
    around = (2 * CONTEXT_BATCHES + 1) + (CONTEXT_BATCHES + 1)
    assert sum("producer_id" in line for line in lines) == 2 * around


def test_a_lost_record_is_shown_by_the_end_of_the_log(tmp_path: Path) -> None:
    write_replica(tmp_path, [batch(offset, offset) for offset in range(9)], rest=b"garbage" * 20)
    verdict = Verdict()
    verdict.add("lost", 0, "record 9 of producer 0, acknowledged at 9", 9)
    shown = evidence(verdict, TOPIC, {1: tmp_path})
    assert "offsets 8 to 8" in shown
    assert "offsets 2 to 2" not in shown
    _, complaints = stored_batches(tmp_path, TOPIC, 0)
    assert complaints
    assert complaints[0] in shown


def test_a_finding_without_an_offset_has_no_evidence(tmp_path: Path) -> None:
    verdict = Verdict()
    verdict.add("unsettled", 0, "record 9 of producer 0")
    assert evidence(verdict, TOPIC, {1: tmp_path}) == ""
