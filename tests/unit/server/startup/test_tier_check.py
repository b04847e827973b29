"""A broker without a remote tier does not start with replicas of tiered topics."""

from __future__ import annotations

from barnabas.metadata.configs_image import TOPIC
from barnabas.server.startup.tier_check import missing_tier
from unit.metadata.clusters import config, image_of, partition, three_brokers, topic

ENABLE = "remote.storage.enable"


def test_a_broker_without_tiered_topics_needs_no_tier() -> None:
    image = three_brokers(
        topic("a", 1),
        partition(1, 0, (1, 2)),
        config(TOPIC, "a", ENABLE, "false"),
        config(TOPIC, "a", "local.retention.ms", "5"),
    )
    assert missing_tier(image, 1) is None


def test_the_error_names_the_tiered_topics_of_the_broker() -> None:
    image = three_brokers(
        topic("elsewhere", 1),
        partition(1, 0, (2, 3)),
        config(TOPIC, "elsewhere", ENABLE, "true"),
    )
    assert missing_tier(image, 1) is None
    for number, name in enumerate(("b", "a", "d", "c", "e"), 2):
        image = image_of(
            topic(name, number),
            partition(number, 0, (2, 3)),
            partition(number, 1, (3, 1)),
            config(TOPIC, name, ENABLE, "true"),
            base=image,
        )
    error = missing_tier(image, 1)
    assert error is not None
    assert "remote.storage.enable=true: a, b, c and 2 more. Set" in str(error)
    assert "a, b, c and 3 more. Set" in str(missing_tier(image, 2))
