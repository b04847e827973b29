"""`barnabas why` on a broker whose remote tier fails, and after its repair."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.console.settings import ConsoleSettings
from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell
from conformance.tiered_topics import (
    EARLIEST,
    EARLIEST_LOCAL,
    await_all_copied,
    make_tiered_topic,
    offset_at,
    produce,
    tier_settings,
)
from console_in_process import ConsoleInProcess
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "explained"
RECORDS = 60


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with a tier and a metrics listener, and a topic with copied segments."""
    settings = tier_settings(tmp_path / "tier") | {
        "metrics.listener": "127.0.0.1:0",
        "remote.log.manager.task.retry.backoff.max.ms": "1000",
    }
    with BrokerProcess(tmp_path / "broker", settings) as made:
        make_tiered_topic(made.bootstrap, TOPIC, local_retention_bytes="20000")
        produce(made.bootstrap, TOPIC, range(RECORDS))
        await_all_copied(made.bootstrap, TOPIC, made.data_directory)
        yield made


def why(broker: BrokerProcess, target: str = f"{TOPIC}:0") -> list[dict[str, Any]]:
    """Return the reasons about the partition."""
    shell = Shell(broker.bootstrap)
    words = ("why", target, "--json", "--seconds", "0.2", "--metrics", broker.metrics_address)
    found = json.loads(shell.run_in_process(*words).stdout)
    return [reason for each in found["answers"] for reason in each["reasons"]]


def await_reason(broker: BrokerProcess, kind: str, words: str, target: str = f"{TOPIC}:0") -> None:
    seen: list[dict[str, Any]] = []

    def is_found() -> bool:
        seen[:] = why(broker, target)
        return any(each["kind"] == kind and words in each["what"] for each in seen)

    eventually(is_found, lambda: seen)


def topic_page(broker: BrokerProcess) -> str:
    """Return the page of the topic in a console that reads the metrics of the broker."""
    settings = ConsoleSettings(
        broker.bootstrap,
        {},
        allow_changes=False,
        interval=3600.0,
        timeout=60.0,
        metrics=(broker.metrics_address,),
    )
    with ConsoleInProcess(settings) as running:
        return running.get("/topic", name=TOPIC).text


def test_a_lost_mark_and_a_lost_object_are_named_until_they_are_back(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    await_reason(broker, "tier", "the remote tier has offsets up to")
    [mark] = (tmp_path / "tier").rglob("store.json")
    content = mark.read_bytes()
    mark.unlink()
    produce(broker.bootstrap, TOPIC, range(RECORDS, 4 * RECORDS))
    await_reason(broker, "tier-copy-waits", "the store does not answer")
    assert "Not copied yet" in (page := topic_page(broker))
    assert "the store does not answer" in page
    await_reason(broker, "tier-local-retention", "are not copied to the remote tier")
    mark.write_bytes(content)
    await_reason(broker, "tier", "the remote tier has offsets up to")
    # Now an object of a segment that only the tier has.
    eventually(lambda: offset_at(broker.bootstrap, TOPIC, EARLIEST_LOCAL) > RECORDS, "all is local")
    assert offset_at(broker.bootstrap, TOPIC, EARLIEST) == 0
    first, *_ = sorted((tmp_path / "tier").rglob("*.log"))
    records = first.read_bytes()
    first.unlink()
    await_reason(broker, "tier-unreadable", "offset 0 is only in the remote", f"{TOPIC}:0@0")
    await_reason(broker, "tier-unreadable", "objects of the remote tier are missing")
    first.write_bytes(records)
    await_reason(broker, "readable", "", f"{TOPIC}:0@0")
    await_reason(broker, "tier", "the remote tier has offsets up to")
