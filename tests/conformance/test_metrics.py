"""Metrics of a broker with real clients, read by the parser of Prometheus; and the JSON log."""

from __future__ import annotations

import http.client
import json
import shutil

from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from barnabas.testing.broker_process import BrokerProcess
from group_offsets import commit_offsets
from loop_turns import LOG_WORDS, loop_turns


def get(broker: BrokerProcess, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(broker.metrics_address, timeout=60)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def test_a_scrape_contains_the_activity_of_real_clients() -> None:
    settings = {"metrics.listener": "127.0.0.1:0", "offsets.topic.num.partitions": "1"}
    with BrokerProcess(settings=settings) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for number in range(100):
            producer.produce("t", str(number))
        assert producer.flush(60) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 0)])
        received = 0
        while received < 100:
            received += sum(each.error() is None for each in consumer.consume(100, 5))
        commit_offsets(consumer, TopicPartition("t", 0, 60))
        assert get(broker, "/healthz") == (200, "ok\n")
        assert get(broker, "/readyz") == (200, "ok\n")
        status, text = get(broker, "/metrics")
        assert status == 200
        seen = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        topic = ("topic", "t")
        assert seen["kafka_server_brokertopicmetrics_messagesin_total", topic] == 100
        assert seen["kafka_server_brokertopicmetrics_bytesout_total", topic] > 0
        assert seen["kafka_log_log_logendoffset", ("partition", "0"), topic] == 100
        group = ("consumergroup", "g")
        assert seen["kafka_consumergroup_current_offset", group, ("partition", "0"), topic] == 60
        directory = ("logDirectory", str(broker.data_directory))
        space = shutil.disk_usage(broker.data_directory)
        assert seen["barnabas_log_directory_bytes", directory] == space.total
        assert 0 < seen["barnabas_log_directory_usable_bytes", directory] < space.total
        request = ("request", "Produce")
        total = seen["kafka_network_requestmetrics_totaltimems_count", request]
        assert total >= 1
        assert seen["kafka_network_requestmetrics_totaltimems_sum", request] > 0
        assert seen["process_resident_memory_bytes",] > 1 << 20
        assert seen["process_open_fds",] > 0
        names = {key[0] for key in seen}
        assert "kafka_server_socket_server_metrics_connections" in names
        assert "python_gc_pause_seconds_count" in names
        turns = loop_turns(broker.metrics_address)
        assert turns.longest_ms > 0
        assert turns.long_turns >= turns.long_cpu_turns >= 0
        consumer.close()
        assert get(broker, "/elsewhere")[0] == 404


def undisturbed(log: str) -> list[str]:
    """Return the lines of a log without those about a slow machine."""
    words = ("stood still", "Not ready yet", "Waiting for the metadata quorum", LOG_WORDS)
    return [line for line in log.splitlines() if not any(each in line for each in words)]


def test_the_log_is_empty_after_a_clean_run_and_json_on_request() -> None:
    with BrokerProcess() as quiet:
        assert quiet.stop() == 0
        assert undisturbed(quiet.log()) == []
    with BrokerProcess(arguments=["--log-format", "json", "--set", "no.such.key=1"]) as broker:
        lines = [json.loads(line) for line in undisturbed(broker.log())]
    assert [line["level"] for line in lines] == ["WARNING"]
    assert "no.such.key" in lines[0]["message"]
    assert set(lines[0]) == {"timestamp", "level", "logger", "message"}
