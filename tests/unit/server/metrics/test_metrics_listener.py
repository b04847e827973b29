"""`metrics.listener` of a complete broker in virtual time: responses and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnabas.metrics.catalogue import CATALOGUE
from barnabas.metrics.http_listener import (
    CONNECTIONS_MAX,
    DEADLINE_MS,
    HttpResponse,
)
from barnabas.metrics.metric_row import MetricRow
from barnabas.metrics.metrics_listener import exposition_name
from barnabas.metrics.registry import MetricFamily
from barnabas.metrics.remote_catalogue import REMOTE_CATALOGUE
from barnabas.network.principal import Principal
from barnabas.protocol.messages.connection import ApiVersionsRequest
from unit.runtime.streams import Recorder
from unit.server.process.drain import long_fetch
from unit.server.simulated_broker import HOST, SimulatedBroker, SimulatedClient

PORT = 9308


def observed(**settings: str) -> SimulatedBroker:
    return SimulatedBroker(metrics_listener=f"{HOST}:{PORT}", **settings)


class HttpClient(Recorder):
    """Sends HTTP requests over a stream."""

    def __init__(self, broker: SimulatedBroker, name: str = "scraper") -> None:
        super().__init__()
        self._world = broker.world
        sockets = broker.world.host(name).runtime.sockets
        sockets.connect(HOST, PORT, self, lambda _: None, 1000)
        assert broker.world.run_until(lambda: self.stream is not None)

    def send(self, text: str) -> None:
        assert self.stream is not None
        self.stream.write([text.encode()])

    def ask(self, path: str, method: str = "GET") -> tuple[int, str]:
        """Status and body of one answer; the connection stays."""
        self.data.clear()
        self.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n")
        assert self._world.run_until(lambda: self.closed or self.data.endswith(b"0\r\n\r\n"))
        head, _, chunks = bytes(self.data).partition(b"\r\n\r\n")
        body = b""
        while chunks:
            size, _, rest = chunks.partition(b"\r\n")
            length = int(size, 16)
            body, chunks = body + rest[:length], rest[length + 2 :]
        return int(head.split()[1]), body.decode()


def values(broker: SimulatedBroker) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Every sample of a scrape, by name and labels, read by the library's own parser."""
    status, text = HttpClient(broker).ask("/metrics")
    assert status == 200
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            assert labels not in found.setdefault(sample.name, {}), sample
            found[sample.name][labels] = sample.value
    return found


def labels(**given: Any) -> frozenset[tuple[str, str]]:
    return frozenset((name, str(value)) for name, value in given.items())


def test_a_scrape_contains_the_activity_of_clients() -> None:
    broker = observed()
    broker.make_topic("t", 2)
    for _ in range(3):
        broker.produce("t", b"a", b"b")
    broker.client.send(long_fetch("t"), 12)
    broker.world.run_for(21_000)
    seen = values(broker)
    topics = "kafka_server_brokertopicmetrics_"
    for where in (labels(), labels(topic="t")):
        assert seen[topics + "messagesin_total"][where] == 6
        assert seen[topics + "totalproducerequests_total"][where] == 3
        assert seen[topics + "totalfetchrequests_total"][where] == 1
        assert seen[topics + "bytesin_total"][where] == seen[topics + "bytesout_total"][where] > 0
    requests = "kafka_network_requestmetrics_"
    assert seen[requests + "requests_total"][labels(request="Produce", version=9)] == 3
    assert seen[requests + "errors_total"][labels(request="Produce", error="NONE")] == 3
    assert seen[requests + "totaltimems_count"][labels(request="Produce")] == 3
    # Virtual time: nothing took any but the fetch, which waited.
    waited = seen[requests + "remotetimems"][labels(request="Fetch", quantile="0.99")]
    assert waited == pytest.approx(20_000, rel=0.1)
    assert seen[requests + "remotetimems_sum"][labels(request="Fetch")] == pytest.approx(
        20_000, rel=0.01
    )
    partition = labels(topic="t", partition=0)
    assert seen["kafka_log_log_logendoffset"][partition] == 6
    assert seen["kafka_cluster_partition_underreplicated"][partition] == 0
    assert seen["kafka_controller_kafkacontroller_activecontrollercount"][labels()] == 1
    assert seen["kafka_controller_kafkacontroller_globalpartitioncount"][labels()] == 2
    assert seen["kafka_server_kafkaserver_brokerstate"][labels()] == 3
    assert seen["kafka_server_delayedfetchmetrics_expires_total"][labels(fetcherType="consumer")]


def test_connections_are_counted_by_listener_and_software() -> None:
    broker = observed()
    other = SimulatedClient(broker.world, "other")
    other.ask(ApiVersionsRequest(client_software_name="rdkafka", client_software_version="2.0"), 3)
    seen = values(broker)
    where = {"listener": "PLAINTEXT", "networkProcessor": "0"}
    metrics = "kafka_server_socket_server_metrics_"
    assert seen[metrics + "connection_count"][labels(**where)] == 2
    software = {"clientSoftwareName": "rdkafka", "clientSoftwareVersion": "2.0"}
    assert seen[metrics + "connections"][labels(**software, **where)] == 1
    assert seen[metrics + "incoming_byte_total"][labels(**where)] > 0


def test_connections_are_counted_by_principal() -> None:
    broker = observed()
    clients = [SimulatedClient(broker.world, "other") for _ in range(3)]
    for client in clients:
        client.ask(ApiVersionsRequest(), 3)
    assert broker.node.broker is not None
    (listener,) = broker.node.broker.listeners
    where = {"listener": "PLAINTEXT"}
    metric = "barnabas_principal_connections"
    assert values(broker)[metric] == {labels(principal="User:ANONYMOUS", **where): 4}
    for connection, name in zip(listener.connections, ("ann", "ann", "bob"), strict=False):
        connection.principal = Principal(name)
    seen = values(broker)[metric]
    assert seen[labels(principal="User:ann", **where)] == 2
    assert seen[labels(principal="User:bob", **where)] == 1


def test_traffic_is_counted_by_client_also_after_its_connection_has_closed() -> None:
    broker = observed()
    other = SimulatedClient(broker.world, "other")
    other.ask(ApiVersionsRequest(), 3)
    before = values(broker)
    (client,) = before["barnabas_client_requests_total"]
    assert ("principal", "User:ANONYMOUS") in client
    other.channel.close()
    broker.world.run_for(100)
    after = values(broker)
    for metric in ("requests", "bytes_in", "bytes_out"):
        name = f"barnabas_client_{metric}_total"
        assert after[name][client] >= before[name][client] > 0


def test_syncs_of_logs_are_timed() -> None:
    broker = observed()
    broker.make_topic("t", flush_messages="1")
    before = values(broker)["kafka_log_logflushstats_logflushrateandtimems_count"][labels()]
    broker.produce("t", b"a")
    after = values(broker)["kafka_log_logflushstats_logflushrateandtimems_count"][labels()]
    assert after > before


def test_errors_are_counted_by_their_names() -> None:
    broker = observed()
    answer = broker.produce("absent", b"a")
    assert answer.error_code == 3
    seen = values(broker)["kafka_network_requestmetrics_errors_total"]
    assert seen[labels(request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION")] == 1


def shown_kinds(broker: SimulatedBroker) -> dict[str, str]:
    """Return the kind of each metric in a scrape, by its name."""
    _, text = HttpClient(broker).ask("/metrics")
    return {
        family.name: family.type
        for family in text_string_to_metric_families(text)
        if not family.name.startswith("process_")
    }


def kinds_of(catalogue: dict[str, MetricRow]) -> dict[str, str]:
    return {exposition_name(name, row.kind): row.kind.value for name, row in catalogue.items()}


def test_every_metric_of_the_catalogue_has_its_name_and_kind() -> None:
    broker = observed()
    broker.make_topic("t")
    broker.produce("t", b"a")
    assert shown_kinds(broker) == kinds_of(
        {name: row for name, row in CATALOGUE.items() if name not in REMOTE_CATALOGUE}
    )


def test_a_broker_with_a_remote_tier_has_its_metrics_too() -> None:
    broker = observed(
        remote_log_storage_system_enable="true", barnabas_remote_storage="file:///tier"
    )
    broker.make_topic("t", remote_storage_enable="true")
    broker.produce("t", b"a")
    broker.world.run_for(60_000)
    assert kinds_of(REMOTE_CATALOGUE).items() <= shown_kinds(broker).items()


def test_many_partitions_are_sent_in_chunks_of_one_response() -> None:
    broker = observed()
    broker.make_topic("t", 450)
    _, text = HttpClient(broker).ask("/metrics")
    lines = text.splitlines()
    assert sum(line.startswith("kafka_log_log_size{") for line in lines) == 450
    assert lines.count("# TYPE kafka_log_log_size gauge") == 1
    assert len({line for line in lines if line.startswith("#")}) == sum(
        line.startswith("#") for line in lines
    )


def test_a_deleted_topic_is_not_in_the_scrape() -> None:
    from barnabas.protocol.messages.topics import DeleteTopicsRequest

    broker = observed()
    broker.make_topic("t")
    broker.produce("t", b"a")
    broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    seen = values(broker)
    counts = seen["kafka_server_brokertopicmetrics_messagesin_total"]
    assert counts == {labels(): 1}
    assert not seen.get("kafka_log_log_size")


def test_health_and_readiness_have_separate_paths() -> None:
    broker = observed()
    client = HttpClient(broker)
    assert client.ask("/healthz") == (200, "ok\n")
    assert client.ask("/readyz") == (200, "ok\n")
    broker.node.observation.state = 1
    status, text = client.ask("/readyz")
    assert status == 503
    assert "starting" in text
    assert client.ask("/healthz")[0] == 200
    broker.node.observation.failure = OSError("the disk is gone")
    assert client.ask("/healthz") == (503, "the broker cannot continue: the disk is gone\n")


def test_other_paths_and_methods_are_refused_with_a_message() -> None:
    client = HttpClient(observed())
    status, text = client.ask("/console")
    assert status == 404
    assert "/metrics" in text
    assert client.ask("/metrics", "DELETE")[0] == 405
    # A body is not waited for, and the connection goes.
    client.send("POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")


@pytest.mark.parametrize(
    "nonsense",
    [
        "\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff\r\n\r\n",
        "GET\r\n\r\n",
        "x" * 40_000,
    ],
)
def test_a_malformed_request_closes_only_its_connection(nonsense: str) -> None:
    broker = observed()
    client = HttpClient(broker)
    client.send(nonsense)
    assert broker.world.run_until(lambda: client.closed)
    assert HttpClient(broker).ask("/healthz")[0] == 200


def test_a_silent_connection_is_closed_after_a_timeout() -> None:
    broker = observed()
    client = HttpClient(broker)
    client.send("GET /metr")
    broker.world.run_for(DEADLINE_MS + 1000)
    assert client.closed


def test_a_new_connection_replaces_the_longest_silent_one() -> None:
    broker = observed()
    clients = [HttpClient(broker) for _ in range(CONNECTIONS_MAX)]
    assert clients[0].ask("/healthz")[0] == 200
    assert HttpClient(broker).ask("/healthz")[0] == 200
    assert broker.world.run_until(lambda: clients[1].closed)
    assert [client.closed for client in clients].count(True) == 1


def test_silent_connections_do_not_block_a_scraper() -> None:
    broker = observed()
    silent = [HttpClient(broker) for _ in range(CONNECTIONS_MAX * 3)]
    assert HttpClient(broker).ask("/metrics")[0] == 200
    assert broker.world.run_until(
        lambda: sum(client.closed for client in silent) >= CONNECTIONS_MAX * 2
    )


def test_pipelined_requests_are_not_read_before_the_response_is_sent() -> None:
    broker = observed()
    listener = broker.node.observation._listener
    assert listener is not None
    asked: list[str] = []

    def respond(_method: str, target: str, answer: Callable[[HttpResponse], None]) -> None:
        asked.append(target)
        answer(HttpResponse(200, iter([bytes(4 << 20) if len(asked) == 1 else b"small"])))

    listener._listener._respond = respond
    client = HttpClient(broker, "greedy")
    assert client.stream is not None
    client.stream.pause_reading()
    request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    count = 12_000
    client.send(request * count)
    broker.world.run_for(1_000)
    assert len(asked) == 1
    assert client.stream.buffered_bytes > 100_000
    client.stream.resume_reading()
    assert broker.world.run_until(lambda: len(asked) == count)


def test_a_slow_reader_limits_the_buffered_output() -> None:
    broker = observed()
    listener = broker.node.observation._listener
    assert listener is not None
    made = []

    def endless() -> Iterator[bytes]:
        for number in range(100_000):
            made.append(number)
            yield bytes(1024)

    listener._listener._respond = lambda _method, _target, answer: answer(
        HttpResponse(200, endless())
    )
    client = HttpClient(broker, "slow")
    assert client.stream is not None
    client.stream.pause_reading()
    client.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    broker.world.run_for(1_000)
    assert 100 < len(made) < 4_000
    before = len(made)
    client.stream.resume_reading()
    assert broker.world.run_until(lambda: len(made) > before)


def test_a_metric_that_raises_ends_only_its_response() -> None:
    broker = observed()

    def broken() -> Iterator[MetricFamily]:
        raise ValueError("broken")
        yield

    broker.node.observation.registry.add_source(broken)
    client = HttpClient(broker)
    client.send("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert broker.world.run_until(lambda: client.closed)
    assert not client.data.endswith(b"0\r\n\r\n")
    assert HttpClient(broker).ask("/healthz")[0] == 200


def test_the_listener_closes_with_the_broker() -> None:
    broker = observed()
    client = HttpClient(broker)
    broker.stop()
    assert broker.world.run_until(lambda: client.closed)
