"""Metrics of links: which series there are, and how many."""

from __future__ import annotations

import pytest

from barnabas.metrics import names
from barnabas.metrics.catalogue import CATALOGUE
from barnabas.replication.links.link_table import LinkTable, MirrorState, MirrorTopic, read_links
from barnabas.replication.links.mirror_gauges import link_families
from unit.replication.links.mirroring_broker import SOURCE_BROKER, MirroringBroker

CONFIGS = {
    "barnabas.link.prod.topics": "orders.*",
    "barnabas.link.lab.state": "paused",
    "barnabas.link.odd.topics": "(",
    "barnabas.link.old.state": "reversed",
    **{
        mirror.config_name: mirror.config_value
        for mirror in (
            MirrorTopic("prod", "orders", MirrorState.ACTIVE),
            MirrorTopic("prod", "orders.eu", MirrorState.STOPPED),
        )
    },
}


def samples(
    configs: dict[str, str], broker: MirroringBroker | None = None
) -> dict[tuple[str, str, str], float]:
    """Return the samples by metric, link and state."""
    fetchers = {} if broker is None else {"prod": broker.fetchers}
    found: dict[tuple[str, str, str], float] = {}
    for family in link_families(read_links(configs), fetchers, 10_000):
        assert family.name in CATALOGUE
        for tags, value in family.samples:
            assert {key for key, _ in tags} == set(CATALOGUE[family.name].tags)
            labels = dict(tags)
            if "link" in labels:
                found[family.name, labels["link"], labels.get("state", "")] = value
    return found


def test_without_links_there_are_no_series() -> None:
    families = list(link_families(LinkTable({}, {}), {}, 0))
    assert [sample for each in families for sample in each.samples] == []


@pytest.mark.parametrize(
    ("link", "state"),
    [("prod", "active"), ("lab", "paused"), ("odd", "invalid"), ("old", "reversed")],
)
def test_a_link_has_one_state(link: str, state: str) -> None:
    found = samples(CONFIGS)

    current = [
        key[2] for key, value in found.items() if key[:2] == (names.LINK_STATE, link) and value
    ]
    assert current == [state]


def test_mirrors_are_counted_by_state() -> None:
    found = samples(CONFIGS)

    assert found[names.LINK_MIRRORS, "prod", "active"] == 1
    assert found[names.LINK_MIRRORS, "prod", "stopped"] == 1
    assert found[names.LINK_MIRRORS, "prod", "paused"] == 0
    assert found[names.LINK_MIRRORS, "lab", "active"] == 0


def test_a_mirror_without_a_leader_of_its_source_is_failing() -> None:
    broker = MirroringBroker()
    assert SOURCE_BROKER in broker.channels.opened
    assert samples(CONFIGS, broker)[names.LINK_FAILING, "prod", ""] == 0
    broker.place = None
    broker.begin()

    found = samples(CONFIGS, broker)
    assert found[names.LINK_FAILING, "prod", ""] == 1
    assert found[names.LINK_PARTITIONS, "prod", ""] == 1
