"""Exactly once into tables of Delta and Iceberg, with kills between all steps.

It is the death of processes that this shows, not the loss of power.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.client.facade import Client
from spark.killed_job import KILLS, Job, kill_and_finish
from spark.tables import SinkTable

# tests/spark/test_merges.py kills the same sink in `make check`.
pytestmark = [pytest.mark.spark, pytest.mark.nightly]

JOB = Path(__file__).with_name("job_to_table.py")
# 10 batches of the job.
RECORDS = 50_000
SEED = 20_261_127


def fill(client: Client, topic: str) -> None:
    with client.producer() as producer:
        producer.send_batch(topic, [(b"%d" % i, b"v%d" % i, [], None) for i in range(RECORDS)])


@pytest.mark.slow
@pytest.mark.parametrize("kills", KILLS)
def test_no_row_is_missing_or_duplicate_after_kills(
    kills: tuple[int, ...],
    table: SinkTable,
    client: Client,
    bootstrap: str,
    topic: str,
    tmp_path: Path,
) -> None:
    fill(client, topic)
    words = json.dumps([table.sink, table.target, table.options])
    kill_and_finish(
        lambda trigger: Job(JOB, bootstrap, topic, tmp_path, trigger, words), kills, SEED
    )
    found = table.arrow().select(["partition", "offset", "value"])
    assert found.num_rows == RECORDS
    places = set(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))
    assert len(places) == RECORDS
    assert {int(each[1:]) for each in found["value"].to_pylist()} == set(range(RECORDS))
    assert table.batches() == list(range(10))
