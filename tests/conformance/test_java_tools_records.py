"""Apache Kafka's tools that move, measure, find and delete records, 4.3.1.

The same assertions hold for Barnabas and for Apache Kafka 4.4.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from conformance.java_tools import CONSUMER_GROUPS, Tools
from jvm.java import run_java
from jvm.tool_host import TOOLS


def test_the_performance_consumer_reads_the_records_of_the_performance_producer(
    tools: Tools,
) -> None:
    topic = tools.new_topic(3)
    printed = tools.run(
        "ProducerPerformance", "--topic", topic, "--num-records", "3000", "--record-size", "200",
        "--throughput", "-1", "--command-property", "acks=all", "compression.type=lz4",
        "batch.size=8192", "--print-metrics",
    )  # fmt: skip
    assert re.search(r"^3000 records sent, [1-9][\d.]* records/sec", printed, re.MULTILINE)
    totals = re.findall(r"producer-metrics:(record-\w+-total):\S+\s+: ([\d.]+)", printed)
    assert dict(totals) == {
        "record-error-total": "0.000",
        "record-retry-total": "0.000",
        "record-send-total": "3000.000",
    }
    assert sum(tools.offsets(topic).values()) == 3000
    (row,) = tools.rows(
        "ConsumerPerformance", "--topic", topic, "--num-records", "3000", "--hide-header",
        "--group", f"performance-{topic}", "--timeout", "60000",
    )  # fmt: skip
    megabytes, records = float(row[4].strip(",")), int(row[6].strip(","))
    assert records == 3000
    assert abs(megabytes - 3000 * 200 / 1024 / 1024) < 0.001
    group = tools.table(CONSUMER_GROUPS, "--describe", "--group", f"performance-{topic}")
    assert {row[5] for row in group} == {"0"}


def test_end_to_end_latency_reads_each_record(tools: Tools) -> None:
    topic = tools.new_topic()
    for number, acks in enumerate(("1", "all"), 1):
        printed = tools.run(
            "EndToEndLatency", "--topic", topic, "--num-records", "50", "--producer-acks", acks,
            "--record-size", "100",
        )  # fmt: skip
        percentiles = r"Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+"
        assert re.search(rf"^Avg latency: [\d.]+ ms\n{percentiles}\n", printed, re.MULTILINE)
        assert tools.offsets(topic) == {0: 50 * number}


def events(printed: str, name: str) -> list[dict]:
    """Return the events of one kind that a verifiable client printed, one line of JSON each."""
    all_events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return [each for each in all_events if each["name"] == name]


def test_the_verifiable_consumer_reads_the_records_of_the_verifiable_producer(
    tools: Tools,
) -> None:
    topic = tools.new_topic(2)
    # The producer prints acknowledged records at the end of its process, so it runs separately.
    words = ("--bootstrap-server", tools.bootstrap, "--topic", topic)
    produced = run_java(
        "kafka-tools", TOOLS + "VerifiableProducer", *words, "--max-messages", "200",
        "--acks", "-1", "--repeating-keys", "10",
    )  # fmt: skip
    assert produced.returncode == 0, produced.stderr
    acked = events(produced.stdout, "producer_send_success")
    assert [(each["sent"], each["acked"]) for each in events(produced.stdout, "tool_data")] == [
        (200, 200)
    ]
    read = tools.run(
        "VerifiableConsumer", "--topic", topic, "--group-id", f"verified-{topic}", "--verbose",
        "--max-messages", "200", "--reset-policy", "earliest",
    )  # fmt: skip

    def found(records: list[dict]) -> set[tuple]:
        return {(r["partition"], r["offset"], r["key"], r["value"]) for r in records}

    assert len(found(acked)) == 200
    assert found(events(read, "record_data")) == found(acked)
    # The consumer may have rejoined the group if the machine paused.
    assigned = events(read, "partitions_assigned")[-1]
    assert assigned["partitions"] == [{"topic": topic, "partition": each} for each in range(2)]
    assert all(each["success"] for each in events(read, "offsets_committed"))
    ends = {int(row[2]): int(row[3]) for row in group_rows(tools, f"verified-{topic}")}
    assert ends == tools.offsets(topic)


def group_rows(tools: Tools, group: str) -> list[list[str]]:
    return tools.table(CONSUMER_GROUPS, "--describe", "--group", group)


def test_get_offsets_finds_offsets_by_end_and_time(tools: Tools) -> None:
    topic = tools.new_topic(3)
    began = int(time.time() * 1000) - 100_000
    tools.fill(topic, ["a", "b", "c", "d"], 0, first_timestamp=began)
    tools.fill(topic, ["e"], 1, first_timestamp=began + 60_000)
    assert tools.offsets(topic) == {0: 4, 1: 1, 2: 0}
    assert tools.offsets(topic, "earliest") == {0: 0, 1: 0, 2: 0}
    assert tools.offsets(topic, "earliest-local") == {0: 0, 1: 0, 2: 0}
    # Partitions without such an offset are not printed.
    assert tools.offsets(topic, "max-timestamp") == {0: 3, 1: 0}
    assert tools.offsets(topic, "latest-tiered") == {}
    assert tools.offsets(topic, str(began + 1500)) == {0: 2, 1: 0}
    chosen = tools.run("GetOffsetShell", "--topic-partitions", f"{topic}:1-3")
    assert chosen.split() == [f"{topic}:1:1", f"{topic}:2:0"]
    printed = tools.refused("GetOffsetShell", "--topic", f"no-{topic}")
    assert "Could not match any topic-partitions" in printed


def test_delete_records_moves_the_start_of_the_log(tools: Tools, tmp_path: Path) -> None:
    topic = tools.new_topic(3)
    for partition in range(3):
        tools.fill(topic, [str(number) for number in range(6)], partition)
    deletions = [
        {"topic": topic, "partition": partition, "offset": offset}
        for partition, offset in enumerate((4, -1, 7))
    ]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": deletions, "version": 1}))
    printed = tools.run("DeleteRecordsCommand", "--offset-json-file", str(file))
    assert f"partition: {topic}-0\tlow_watermark: 4" in printed
    assert f"partition: {topic}-1\tlow_watermark: 6" in printed
    assert re.search(rf"partition: {topic}-2\terror: \S+OffsetOutOfRangeException", printed)
    assert tools.offsets(topic, "earliest") == {0: 4, 1: 6, 2: 0}
    assert tools.offsets(topic) == {0: 6, 1: 6, 2: 6}
    read = tools.run(
        "consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", "8",
        "--timeout-ms", "60000",
    )  # fmt: skip
    assert sorted(read.split()) == sorted("45012345")
