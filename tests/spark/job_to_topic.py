"""A job that tests kill: it copies a topic to another topic."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyspark
import stopping_sink
from late_workers import run_job
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from barnabas.spark.session import spark_session

# Executors start as quickly as the driver; a second attempt of a task that is slower than others.
SETTINGS = {
    "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
    "spark.driver.memory": "1g",
    "spark.executor.memory": "600m",
    "spark.speculation.quantile": "0.5",
}


def start_spark(directory: Path, master: str, settings: dict[str, str]) -> SparkSession:
    if master.startswith("local-cluster"):
        # Executors write beside Spark's jars.
        home = directory / "spark-home"
        if not home.exists():
            home.mkdir()
            for entry in Path(pyspark.__file__).parent.iterdir():
                (home / entry.name).symlink_to(entry)
        os.environ["SPARK_HOME"] = str(home)
    return spark_session("job", master, SETTINGS | settings)


def main(bootstrap: str, topic: str, directory: str, trigger: str, words: str = "{}") -> None:
    """Copy the topic; `words` has the sink's name, the master and Spark's settings."""
    options = json.loads(words)
    sink = options.get("sink", "barnabas")
    master = options.get("master", "local[2]")
    spark = start_spark(Path(directory), master, options.get("settings", {}))
    spark.sparkContext.setLogLevel("OFF")
    cloudpickle.register_pickle_by_value(stopping_sink)
    spark.dataSource.register(stopping_sink.StoppingSink)
    writer = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 5000)
        .load()
        .select("key", "value")
        .writeStream.format(sink)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", f"{topic}-out")
        .option("exactlyOnce", "true")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(**json.loads(trigger))
    )
    if sink == stopping_sink.StoppingSink.name():
        writer = writer.option("stopDirectory", directory)
    run_job(writer.start)


if __name__ == "__main__":
    main(*sys.argv[1:])
