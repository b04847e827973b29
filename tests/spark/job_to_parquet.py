"""The job that `test_exactly_once` kills: a topic to Parquet."""

from __future__ import annotations

import json
import sys

from late_workers import run_job

from barnabas.spark.session import spark_session


def main(bootstrap: str, topic: str, directory: str, trigger: str) -> None:
    spark = spark_session("job", "local[2]", {"spark.driver.memory": "1g"})
    spark.sparkContext.setLogLevel("OFF")
    writer = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 5000)
        .load()
        .writeStream.format("parquet")
        .option("path", f"{directory}/out")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(**json.loads(trigger))
    )
    run_job(writer.start)


if __name__ == "__main__":
    main(*sys.argv[1:])
