"""A Spark batch read of a topic through `format("barnabas")`: records a second, warm."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from barnabas.spark.session import spark_session

RUNS = 3


def spark_read(address: str, topic: str, records: int) -> dict[str, float]:
    """Reads `records` records into nothing and into Parquet; millions of records a second, warm."""
    settings = {"spark.log.level": "ERROR", "spark.driver.host": "127.0.0.1"}
    spark = spark_session("bench", "local[2]", settings | {"spark.driver.memory": "2g"})
    frame = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", topic)
        .load()
    )
    if (found := frame.count()) != records:
        raise SystemExit(f"Spark read {found} records of {topic} instead of {records}")
    rates = {}
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as directory:
        for name in ("noop", "parquet"):
            for _ in range(RUNS):
                started = time.perf_counter()
                writer = frame.write.format(name).mode("overwrite")
                writer.save(str(Path(directory, "table"))) if name == "parquet" else writer.save()
                rates[name] = records / 1e6 / (time.perf_counter() - started)
    spark.stop()
    return rates
