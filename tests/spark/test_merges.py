"""Upserts through Spark into tables of Delta and Iceberg, with kills between all steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from barnabas.client.facade import Client
from documents.blocks import ROOT
from selection import nightly_unless
from spark.killed_job import KILLS, Job, kill_and_finish
from spark.tables import DeltaSinkTable, SinkTable

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("job_to_table.py")
# 10 batches of the job.
RECORDS, KEYS = 50_000, 997
SEED = 20_261_129
# Rows of the job: the value is the operation and the number of the record.
COLUMNS = [
    "CAST(CAST(key AS STRING) AS BIGINT) AS id",
    "CAST(substring(CAST(value AS STRING), 2) AS BIGINT) AS seq",
    "substring(CAST(value AS STRING), 1, 1) AS op",
    "partition",
]
MERGE = {
    "mergeKeys": "id, partition",
    "sequenceColumn": "seq",
    "deleteWhen": "op = 'd'",
    "exceptColumns": "op",
}


def fill(client: Client, topic: str) -> dict[int, int]:
    """Write changes of rows; return the last number of each key that is not deleted."""
    records = []
    last = {}
    for number in range(RECORDS):
        key = number * number % KEYS
        is_deleted = number % 7 == 0
        last[key] = None if is_deleted else number
        value = b"%s%d" % (b"d" if is_deleted else b"u", number)
        records.append((b"%d" % key, value, [], None))
    with client.producer() as producer:
        producer.send_batch(topic, records)
    return {key: number for key, number in last.items() if number is not None}


@pytest.mark.slow
@pytest.mark.parametrize(
    "table", nightly_unless("delta".__eq__, ["delta", "iceberg"]), indirect=True
)
@pytest.mark.parametrize("kills", KILLS)
def test_the_last_change_of_each_key_holds_after_kills(
    kills: tuple[int, ...],
    table: SinkTable,
    client: Client,
    bootstrap: str,
    topic: str,
    tmp_path: Path,
) -> None:
    expected = fill(client, topic)
    options = {**table.options, **MERGE}
    words = json.dumps([table.sink, table.target, options, *COLUMNS])
    kill_and_finish(
        lambda trigger: Job(JOB, bootstrap, topic, tmp_path, trigger, words), kills, SEED
    )
    found = table.arrow()
    assert "op" not in found.column_names
    assert len(found) == len(expected)
    pairs = zip(found["id"].to_pylist(), found["seq"].to_pylist(), strict=True)
    assert dict(pairs) == expected
    assert table.batches() == list(range(10))


def test_a_dataframe_is_merged_in_one_commit(spark: SparkSession, table: SinkTable) -> None:
    def write(rows: str) -> None:
        frame = spark.sql(f"SELECT * FROM VALUES {rows} AS t(id, name, time, op)")
        writer = frame.write.format(table.sink).options(**table.options).mode("append")
        merge = {"mergeKeys": "id", "deleteWhen": "op = 'd'", "exceptColumns": "op"}
        writer.options(**merge).save(table.target)

    write("(1, 'a', TIMESTAMP '2026-01-01 01:01:01.5', 'c'), (2, 'b', NULL, 'c')")
    write("(1, 'new', CAST(NULL AS TIMESTAMP), 'u'), (2, NULL, NULL, 'd'), (3, 'c', NULL, NULL)")
    rows = sorted(table.arrow().to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "name": "new", "time": None}, {"id": 3, "name": "c", "time": None}]
    with pytest.raises(Exception, match="two different rows of the key id=4: set sequenceColumn"):
        write("(4, 'a', TIMESTAMP '2026-01-01 00:00:00', 'u'), (4, 'b', NULL, 'u')")
    left = table.directory.rglob("_barnabas_staging/*")
    assert not [each for each in left if each.suffix == ".parquet"]
    if isinstance(table, DeltaSinkTable):
        assert DeltaTable(table.target).version() == 2


def test_the_example_of_the_page_keeps_the_current_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "tables.md").read_text()
    _, _, rest = page.partition("<!-- test: checked by tests/spark/test_merges.py -->\n```python\n")
    code = rest.partition("```")[0].replace("/data/", f"{tmp_path}/")
    source = tmp_path / "source"
    source.mkdir()
    rows = [(1, "a", 0, "c"), (2, "b", 1, "c"), (1, "new", 2, "u"), (2, None, 3, "d")]
    names = ("id", "name", "offset", "op")
    lines = (json.dumps(dict(zip(names, row, strict=True))) for row in rows)
    (source / "rows.json").write_text("\n".join(lines))
    schema = "id BIGINT, name STRING, offset BIGINT, op STRING"
    given: dict[str, Any] = {"changes": spark.readStream.schema(schema).json(str(source))}
    exec(code, given)
    query = given["query"]
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    found = DeltaTable(tmp_path / "customers").to_pyarrow_table().to_pylist()
    assert found == [{"id": 1, "name": "new", "offset": 2}]
