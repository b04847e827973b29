"""Features that need the additional packages of `barnabas[spark]` (grpcio, protobuf, ...)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from barnabas.client.facade import Client
from barnabas.spark.java import prepare_java

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

TIMEOUT_S = 240
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

Fill = Callable[[str, int, list[tuple[bytes | None, bytes | None]]], None]


class Counter(StatefulProcessor):
    """Counts the rows of each key over all batches."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n bigint")

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,
    ) -> Iterator[Row]:
        before = self._count.get()
        count = (before[0] if before else 0) + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(key=key[0], n=count)

    def close(self) -> None:
        """Nothing is held."""


def test_a_stateful_query_in_python_counts_over_batches(
    spark: SparkSession, bootstrap: str, fill: Fill, topic: str, tmp_path: Path
) -> None:
    fill(topic, 0, [(b"a", b""), (b"b", b""), (b"a", b"")])
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    query = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(key as string) as key")
        .groupBy("key")
        .transformWithState(
            statefulProcessor=Counter(),
            outputStructType="key string, n bigint",
            outputMode="Update",
            timeMode="None",
        )
        .writeStream.format("memory")
        .queryName("counted")
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    try:
        query.processAllAvailable()
        fill(topic, 1, [(b"a", b"")])
        query.processAllAvailable()
        found = {(row.key, row.n) for row in spark.table("counted").collect()}
        assert found == {("a", 2), ("b", 1), ("a", 3)}
    finally:
        query.stop()
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


def test_a_declarative_pipeline_reads_and_writes_topics(
    bootstrap: str, client: Client, fill: Fill, topic: str, tmp_path: Path
) -> None:
    fill(topic, 0, [(b"a", b"1"), (b"b", b"2")])
    out = f"{topic}-out"
    client.create_topic(out, 1, 1)
    (tmp_path / "spark-pipeline.yml").write_text(
        f"name: copied\nstorage: file://{tmp_path}/storage\ndatabase: default\n"
        'configuration: {spark.sql.shuffle.partitions: "1"}\n'
        "libraries: [{glob: {include: transformations/**}}]\n"
    )
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "copy.py").write_text(
        f"""\
from pyspark import pipelines as dp

BROKER = {{"kafka.bootstrap.servers": "{bootstrap}"}}

@dp.table
def bronze():
    source = spark.readStream.format("barnabas").options(**BROKER)
    return source.option("subscribe", "{topic}").option("startingOffsets", "earliest").load()

dp.create_sink("out", "barnabas", BROKER | {{"topic": "{out}"}})

@dp.append_flow(target="out", name="to_topic")
def to_topic():
    return spark.readStream.table("bronze").selectExpr("key", "value")
"""
    )
    prepare_java()
    binaries = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        # The pipeline's server is another Spark than that of the other tests.
        "SPARK_LOCAL_DIRS": str(tmp_path / "spark"),
    }
    done = subprocess.run(
        [str(binaries / "spark-pipelines"), "--remote", "local[2]", "run"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    # Two records, and the marker of their transaction.
    (end,) = client.list_offsets({(out, 0): "latest"}).values()
    assert end.offset == 3
