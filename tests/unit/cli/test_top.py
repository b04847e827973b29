"""`barnabas top`: rates between two samples, parsing of metrics, formats of numbers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from barnabas.cli.common.machine_lines import Machine
from barnabas.cli.common.units import amount, size
from barnabas.cli.load.metrics import (
    broker_metrics,
    by_process,
    parse_metrics,
    query_samples,
    scrape_queries,
)
from barnabas.cli.load.rates import GroupSample, Rates, Sample, TopicSample, rates_between
from barnabas.cli.load.top import top
from barnabas.cli.load.top_screen import Screen, render
from barnabas.metrics.metrics_listener import pieces
from barnabas.spark.metrics import QueryMetrics
from unit.spark.query_batches import batch

TEXT = """\
# HELP kafka_server_brokertopicmetrics_bytesin_total Bytes.
# TYPE kafka_server_brokertopicmetrics_bytesin_total counter
kafka_server_brokertopicmetrics_bytesin_total {all}
kafka_server_brokertopicmetrics_bytesin_total{{topic="t"}} {bytes_in}
kafka_server_brokertopicmetrics_bytesout_total{{topic="t"}} 1e3
kafka_network_requestmetrics_requests_total{{request="Fetch",version="17"}} {requests}
kafka_network_requestmetrics_requests_total{{request="Fetch",version="4"}} 1
kafka_server_delayedoperationpurgatory_numdelayedoperations{{delayedOperation="Fetch"}} 3.0
kafka_server_socket_server_metrics_connection_count{{listener="A",networkProcessor="0"}} 2.0
kafka_server_socket_server_metrics_connection_count{{listener="B",networkProcessor="0"}} 5.0
process_cpu_seconds_total {cpu}
process_resident_memory_bytes 5.0e+07
"""


def sample(at: float, ends: int, lag: int, *, log_bytes: int = 0, **metrics: float) -> Sample:
    text = TEXT.format(all=0, **metrics) if metrics else ""
    return Sample(
        at,
        "cluster",
        1,
        {"t": TopicSample(2, 0, ends, log_bytes)},
        {"g": GroupSample("Stable", 2, lag)},
        1,
        {"m:1": broker_metrics(parse_metrics(text))} if metrics else {},
    )


def both() -> Rates:
    return rates_between(
        sample(1.0, 100, 5, bytes_in=1000, requests=10, cpu=1.0),
        sample(3.0, 300, 25, bytes_in=5000, requests=110, cpu=1.5),
    )


def test_rates_are_per_second_between_two_samples() -> None:
    rates = both()
    assert rates.records_in == 100
    assert rates.topics["t"].bytes_in == 2000
    assert rates.topics["t"].bytes_out == 0
    assert rates.lag_growth["g"] == 10
    process = rates.processes["m:1"]
    assert (process.requests, process.cpu, process.connections) == (50, 0.25, 7)
    assert process.purgatories == {"Fetch": 3}


def test_without_metrics_bytes_in_are_the_growth_of_the_log_and_bytes_out_are_unknown() -> None:
    rates = rates_between(sample(0, 0, 0, log_bytes=10), sample(2, 4, 0, log_bytes=30))
    assert (rates.topics["t"].bytes_in, rates.topics["t"].bytes_out) == (10, None)
    shrunk = rates_between(sample(0, 0, 0, log_bytes=30), sample(2, 4, 0, log_bytes=10))
    assert shrunk.topics["t"].bytes_in == 0


def test_counters_of_a_restarted_broker_start_at_zero() -> None:
    before = sample(1.0, 100, 0, bytes_in=9000, requests=1000, cpu=90.0)
    rates = rates_between(before, sample(2.0, 100, 0, bytes_in=50, requests=1, cpu=0.1))
    assert rates.topics["t"].bytes_in == 50
    assert rates.processes["m:1"].requests == 0


def test_a_new_topic_has_no_rate() -> None:
    before = sample(0, 5, 0)
    fresh = Sample(1, "c", 1, {"u": TopicSample(1, 0, 1000, None)}, {}, 0, {})
    assert rates_between(before, fresh).topics["u"].records_in == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (7, "7"), (7.25, "7.2"), (950, "950"), (12_345, "12.3k"), (4_560_000, "4.6M")],
)
def test_counts_are_abbreviated(value: float, text: str) -> None:
    assert amount(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB")],
)
def test_sizes_are_abbreviated(value: float | None, text: str) -> None:
    assert size(value) == text


def test_the_screen_fits_eighty_columns_and_has_headings() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(both(), "no answer", Screen(2.0, is_live=True, height=24)))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    shown = "\n".join(lines)
    for word in ("100 records/s", "25 %", "47.7 MiB", "fetch 3", "Stable", "+10", "no answer"):
        assert word in shown


def test_without_a_terminal_the_option_once_is_required() -> None:
    done = CliRunner().invoke(top, [])
    assert done.exit_code == 2
    assert "--once" in done.output


PRINCIPALS = """\
barnabas_principal_connections{listener="SASL_SSL",principal="User:al ice"} 3.0
barnabas_principal_connections{listener="SSL",principal="User:al ice"} 1.0
barnabas_principal_connections{listener="SSL",principal="User:CN=\\"a\\""} 2.0
barnabas_principal_connections{listener="PLAINTEXT",principal="User:ANONYMOUS"} 1.0
kafka_server_produce_throttle_time{client_id="",user="al%20ice"} 120.5
kafka_server_fetch_throttle_time{client_id="c",user="al%20ice"} NaN
kafka_server_request_throttle_time{client_id="c",user="al%20ice"} 40.0
"""


def with_principals(text: str) -> Rates:
    both_times = [
        Sample(
            at,
            "c",
            2,
            {},
            {},
            0,
            dict.fromkeys(("m:1", "m:2"), broker_metrics(parse_metrics(text))),
        )
        for at in (1.0, 2.0)
    ]
    return rates_between(*both_times)


def test_principals_have_their_connections_and_throttle_times() -> None:
    rates = with_principals(PRINCIPALS)
    assert rates.as_json()["principals"] == {
        "User:al ice": {
            "connections": 8,
            "listeners": ["SASL_SSL", "SSL"],
            "throttle_ms": 120.5,
        },
        'User:CN="a"': {"connections": 4, "listeners": ["SSL"], "throttle_ms": None},
        "User:ANONYMOUS": {"connections": 2, "listeners": ["PLAINTEXT"], "throttle_ms": None},
    }
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(rates, None, Screen(2.0)))
    lines = console.export_text().splitlines()
    (shown,) = [line for line in lines if "User:al ice" in line]
    assert "SASL_SSL SSL" in shown
    assert "120 ms" in shown
    # Throttled principals come first.
    assert lines.index(shown) < min(i for i, line in enumerate(lines) if "ANONYMOUS" in line)


def test_a_cluster_without_authentication_shows_no_principals() -> None:
    anonymous = 'barnabas_principal_connections{listener="P",principal="User:ANONYMOUS"} 1.0\n'
    rates = with_principals(anonymous)
    assert rates.principals == {}
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(rates, None, Screen(2.0)))
    assert "principal" not in console.export_text()


def test_queries_of_drivers_are_rows_and_json() -> None:
    metrics = QueryMetrics()
    metrics.on_started("copy")
    metrics.on_progress("copy", batch())
    metrics.on_ended("counts", failed=True)
    text = b"".join(pieces(metrics.families())).decode()
    queries = {"d:1": query_samples(parse_metrics(text)), "d:2": None}
    rates = rates_between(*(Sample(at, "c", 1, {}, {}, 0, {}, queries) for at in (1.0, 2.0)))
    found = rates.as_json()["queries"]
    assert found["d:2"] is None
    assert found["d:1"]["copy"] == {
        "running": True,
        "failures": 0,
        "rows_per_s": 50.0,
        "batch_s": 2.0,
        "lag": {"t": 10},
        "state_rows": 6,
    }
    assert found["d:1"]["counts"]["failures"] == 1
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(rates, None, Screen(2.0)))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["copy", "running", "50", "2.0", "s", "t", "10", "6", "0"] in lines
    assert ["counts", "ended", "-", "-", "-", "-", "1"] in lines
    assert ["d:2", "no", "answer", "-", "-", "-", "-", "-"] in lines


@pytest.mark.parametrize(
    ("lag", "text"),
    [({"t": 4, "u": 0}, "t 4, u 0"), ({"t": 1000, "u": 2000, "v": 0}, "3 topics 3.0k")],
)
def test_the_lag_of_a_query_names_two_topics_and_counts_more(
    lag: dict[str, int], text: str
) -> None:
    ends = {topic: {"0": behind} for topic, behind in lag.items()}
    nothing = {topic: {"0": 0} for topic in lag}
    metrics = QueryMetrics()
    metrics.on_progress("copy", batch(sources=[{"latestOffset": ends, "endOffset": nothing}]))
    found = query_samples(parse_metrics(b"".join(pieces(metrics.families())).decode()))
    rates = rates_between(*(Sample(at, "c", 1, {}, {}, 0, {}, {"d": found}) for at in (1.0, 2.0)))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(render(rates, None, Screen(2.0)))
    assert text in console.export_text()


def test_a_driver_that_does_not_answer_is_no_error() -> None:
    assert scrape_queries("127.0.0.1:1") is None


@pytest.mark.parametrize("option", ["--queries", "--metrics"])
@pytest.mark.parametrize("address", ["nonsense", ":9309", "host:"])
def test_addresses_without_host_and_port_are_usage_errors(option: str, address: str) -> None:
    result = CliRunner().invoke(top, [option, address])
    assert result.exit_code == 2
    assert f"{address} is not HOST:PORT" in result.output


TIMES = """\
barnabas_request_seconds_bucket{{le="0.001",request="Produce"}} {fast}
barnabas_request_seconds_bucket{{le="0.512",request="Produce"}} {fast}
barnabas_request_seconds_bucket{{le="1.024",request="Produce"}} {all}
barnabas_request_seconds_bucket{{le="+Inf",request="Produce"}} {all}
"""


def between(before: str, after: str, seconds: float = 2.0) -> Rates:
    """The rates between two answers of one metrics listener."""
    samples = [
        Sample(at, "c", 1, {}, {}, 0, {"m:1": broker_metrics(parse_metrics(text))})
        for at, text in ((0.0, before), (seconds, after))
    ]
    return rates_between(*samples)


def test_latencies_are_those_of_the_requests_between_the_samples() -> None:
    # Ten thousand slow requests came before, and of the hundred new ones two are slow.
    rates = between(TIMES.format(fast=0, all=10_000), TIMES.format(fast=98, all=10_100))
    api = rates.apis["Produce"]
    assert api.requests == 50
    assert api.p50_ms is not None
    assert api.p99_ms is not None
    assert 0 < api.p50_ms < 1
    assert 512 < api.p99_ms < 1024


def test_an_api_without_requests_between_the_samples_is_left_out() -> None:
    same = TIMES.format(fast=5, all=7)
    assert between(same, same).apis == {}


def test_latencies_of_a_restarted_broker_are_those_since_its_start() -> None:
    rates = between(TIMES.format(fast=900, all=900), TIMES.format(fast=4, all=4))
    assert rates.apis["Produce"].requests == 2


def clients(**counts: tuple[int, int, int]) -> str:
    return "".join(
        f'barnabas_client_{metric}_total{{client_id="{name}",principal="User:a"}} {value}\n'
        for name, values in counts.items()
        for metric, value in zip(("requests", "bytes_in", "bytes_out"), values, strict=True)
    )


def shown(rates: Rates, screen: Screen) -> str:
    console = Console(width=80, height=40, record=True, file=io.StringIO())
    console.print(render(rates, None, screen))
    return console.export_text()


@pytest.mark.parametrize(
    ("sort", "order"),
    [("bytes", "large many idle"), ("rate", "many large idle"), ("name", "idle large many")],
)
def test_clients_are_sorted_by_the_chosen_order(sort: str, order: str) -> None:
    rates = between(
        clients(large=(10, 10, 10), many=(10, 10, 10), idle=(10, 10, 10)),
        clients(large=(20, 5_000, 90_000), many=(900, 700, 10), idle=(11, 11, 11)),
    )
    text = shown(rates, Screen(2.0, sort))
    assert sorted(order.split(), key=text.index) == order.split()
    assert "43.9 KiB" in text


def test_groups_are_sorted_by_their_lag_in_seconds() -> None:
    groups = {"many": GroupSample("Stable", 1, 900, 2.0), "old": GroupSample("Stable", 1, 1, 7200)}
    rates = rates_between(*(Sample(at, "c", 1, {}, groups, 2, {}) for at in (0.0, 1.0)))
    by_records, by_age = (shown(rates, Screen(2.0, sort)) for sort in ("bytes", "lag"))
    assert by_records.index("many") < by_records.index("old")
    assert by_age.index("old") < by_age.index("many")
    assert "2.0 h" in by_age
    assert rates.as_json()["groups"]["old"]["lag_s"] == 7200


def test_the_footer_names_the_keys_and_keeps_its_place_below_a_long_screen() -> None:
    many = {f"client-{number}": (1, 1, 1) for number in range(50)}
    rates = between(clients(), clients(**many))
    lines = shown(rates, Screen(2.0, "lag", is_live=True, height=40)).splitlines()
    assert len(lines) == 40
    assert " ".join(lines[-1].split()) == "q quit sort by b bytes r rate l lag, latency n name"
    assert any("42 more" in line for line in lines)


def on_machines(machines: Sequence[Machine]) -> Rates:
    empty = Sample(0.0, "c", 4, {}, {}, 0, {}, machines=machines)
    return rates_between(empty, replace(empty, at=1.0))


def test_machines_of_several_brokers_have_a_line_each_and_those_with_a_dead_broker_come_first() -> (
    None
):
    machines = [Machine("a", (1, 2), (9,), {}), Machine("b", (3, 4), (), {4: 90_000})]
    rates = on_machines([*machines, Machine("c", (), (7,), {})])
    text = shown(rates, Screen(2.0))
    assert "4 brokers on 2 machines" in text
    lines = [line.rstrip() for line in text.splitlines() if line.startswith("machine ")]
    assert lines[0].startswith("machine b: brokers 3, 4 · 1 of 2 brokers serves · broker 4 is down")
    assert lines[1:] == [
        "machine a: brokers 1, 2 · controller 9 · 2 of 2 brokers serve",
        "machine c: controller 7",
    ]
    assert [each["machine"] for each in rates.as_json()["machines"]] == ["a", "b", "c"]


def test_many_machines_leave_place_for_the_keys_of_a_live_display() -> None:
    long = tuple(range(1, 40))
    rates = on_machines([Machine(f"host{number}", long, (), {}) for number in range(30)])
    lines = shown(rates, Screen(2.0, is_live=True, height=40)).splitlines()
    assert len(lines) == 40
    assert sum(line.startswith("machine ") for line in lines) == 8
    assert "… 22 more machines" in [line.rstrip() for line in lines]
    assert lines[-1].startswith("q quit")


def test_brokers_on_machines_of_their_own_have_no_lines_about_machines() -> None:
    assert "machine" not in shown(on_machines([]), Screen(2.0))


def test_without_metrics_the_screen_names_what_is_missing() -> None:
    rates = rates_between(sample(0, 0, 0), sample(1, 0, 0))
    assert "no metrics listener" in shown(rates, Screen(2.0))
    assert "no metrics listener" not in shown(both(), Screen(2.0))


def test_tables_share_the_lines_of_a_small_terminal() -> None:
    topics = {f"t{number}": TopicSample(1, 0, 0, 0) for number in range(30)}
    groups = {f"g{number}": GroupSample("Stable", 1, 0, 0.0) for number in range(30)}
    alone, beside = (
        rates_between(*(Sample(at, "c", 1, topics, found, len(found), {}) for at in (0.0, 1.0)))
        for found in ({}, groups)
    )
    screen = Screen(2.0, is_live=True, height=24)
    assert "15 more" in shown(alone, screen)
    assert "23 more" in shown(beside, screen)


def test_a_listener_that_stops_answering_does_not_hide_the_others() -> None:
    before, after = (sample(at, 0, 0, bytes_in=at, requests=at, cpu=at) for at in (1.0, 3.0))
    rates = rates_between(before, replace(after, silent=("m:2",)))
    assert rates.as_json()["silent"] == ["m:2"]
    lines = [line.split() for line in shown(rates, Screen(2.0)).splitlines()]
    assert ["m:2", "no", "answer", "-", "-", "-", "-", "-"] in lines
    assert any(line[:1] == ["m:1"] for line in lines)


def test_the_metrics_of_a_node_of_several_processes_are_told_apart() -> None:
    text = (
        'barnabas_node_process_up{broker="1",roles="controller"} 1.0\n'
        'process_cpu_seconds_total{broker="1"} 1.0\n'
        'process_cpu_seconds_total{broker="101"} 2.0\n'
        'kafka_network_requestmetrics_requests_total{broker="101",request="Fetch"} 7.0\n'
    )
    processes = by_process(parse_metrics(text))
    assert sorted(processes) == ["1", "101"]
    assert broker_metrics(processes["1"]).cpu_seconds == 1.0
    assert broker_metrics(processes["101"]).cpu_seconds == 2.0
    assert broker_metrics(processes["101"]).requests == {"Fetch": 7.0}
    single = parse_metrics("process_cpu_seconds_total 3.0\n")
    assert by_process(single) == {"": single}
