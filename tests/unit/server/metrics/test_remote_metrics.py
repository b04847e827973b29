"""The metrics of the remote tier are in the catalogue with their tags, and have right values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.remote_catalogue import REMOTE_CATALOGUE
from barnabas.server.metrics.remote_metrics import remote_families
from unit.server.process.tiered_topic import TOPIC, fill, log_of, tiered_broker

if TYPE_CHECKING:
    from unit.server.simulated_broker import SimulatedBroker

PARTITION = (("topic", TOPIC), ("partition", "0"))


def metrics(broker: SimulatedBroker) -> dict[str, dict[tuple[tuple[str, str], ...], object]]:
    tiering = broker.node.broker.tiering
    assert tiering is not None
    now_ms = broker.host.clock.monotonic_ms()
    return {each.name: dict(each.samples) for each in remote_families(tiering.sources, now_ms)}


def lose_store(broker: SimulatedBroker) -> str:
    """Rename the mark of the store, as if its file system were not mounted; return its path."""
    [cluster] = broker.host.disk.list("/tier")
    mark = f"/tier/{cluster}/store.json"
    broker.host.disk.rename(mark, mark + ".away")
    return mark


def test_each_metric_is_in_the_catalogue_with_its_tags() -> None:
    broker = tiered_broker()
    fill(broker, 3)
    broker.world.run_for(2_000)
    found = metrics(broker)
    assert found.keys() == REMOTE_CATALOGUE.keys()
    for name, samples in found.items():
        for tags in samples:
            allowed = REMOTE_CATALOGUE[name].tags
            assert tuple(label for label, _ in tags) in ((), allowed), name


def test_a_segment_that_waits_is_named_with_its_cause() -> None:
    broker = tiered_broker()
    fill(broker, 3)
    assert broker.world.run_until(lambda: log_of(broker).highest_remote_offset == 1)
    mark = lose_store(broker)
    fill(broker, 3)
    broker.world.run_for(5_000)
    found = metrics(broker)
    waiting = found[names.REMOTE_WAITING_SECONDS]
    [(tags, seconds)] = waiting.items()
    assert tags == (*PARTITION, ("cause", "unavailable"))
    assert 3 < seconds < 6
    assert found[names.REMOTE_WAITING_OFFSET] == {PARTITION: 2}
    failures = found[names.REMOTE_STORE_FAILURES]
    assert failures[("call", "write"), ("kind", "unavailable")] > 0
    assert set(found[names.REMOTE_COPIES_PAUSED].values()) == {0}
    broker.host.disk.rename(mark + ".away", mark)
    assert broker.world.run_until(lambda: log_of(broker).highest_remote_offset == 4)
    broker.world.run_for(2_000)
    assert metrics(broker)[names.REMOTE_WAITING_SECONDS] == {}


def test_the_limits_and_the_metadata_are_shown() -> None:
    broker = tiered_broker(barnabas_remote_read_cache_max_bytes=str(16 << 20))
    fill(broker, 2)
    broker.world.run_for(2_000)
    found = metrics(broker)
    assert found[names.REMOTE_CACHE_LIMIT] == {(): 16 << 20}
    assert found[names.REMOTE_CACHE_BYTES] == {(): 0}
    assert found[names.REMOTE_METADATA_UNREADY] == {(): 0}
    assert set(found[names.REMOTE_METADATA_PROBLEM].values()) == {0}
    assert found[names.REMOTE_UNREADABLE_FIRST] == {}
