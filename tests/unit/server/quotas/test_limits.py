"""Precedence of quotas (Kafka's eight levels)."""

from __future__ import annotations

import pytest

from barnabas.metadata.configs_image import ClientQuotasImage, QuotaEntity
from barnabas.server.quotas.limits import QuotaLimits, address_limits

KEY = "producer_byte_rate"
# From the most to the least specific, each with the clients that share it (user, client id).
LEVELS: list[tuple[QuotaEntity, tuple[str, str]]] = [
    ((("client-id", "c"), ("user", "u")), ("u", "c")),
    ((("client-id", None), ("user", "u")), ("u", "c")),
    ((("user", "u"),), ("u", "")),
    ((("client-id", "c"), ("user", None)), ("u", "c")),
    ((("client-id", None), ("user", None)), ("u", "c")),
    ((("user", None),), ("u", "")),
    ((("client-id", "c"),), ("", "c")),
    ((("client-id", None),), ("", "c")),
]


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_level_wins(first: int) -> None:
    image = ClientQuotasImage(
        {entity: {KEY: float(number)} for number, (entity, _) in enumerate(LEVELS[first:], first)}
    )
    limit = QuotaLimits(image, KEY).find("u", "c")
    assert limit is not None
    assert limit.value == first
    assert (limit.user, limit.client_id) == LEVELS[first][1]


def test_others_and_other_keys_have_no_limit() -> None:
    image = ClientQuotasImage({(("client-id", "c"),): {KEY: 1.0}})
    assert QuotaLimits(image, KEY).find("u", "other") is None
    assert QuotaLimits(image, "consumer_byte_rate").find("u", "c") is None
    assert not len(QuotaLimits(image, "consumer_byte_rate"))


def test_limits_of_addresses_are_separate() -> None:
    key = "connection_creation_rate"
    image = ClientQuotasImage(
        {(("ip", None),): {key: 5.0}, (("ip", "10.0.0.1"),): {key: 1.0}, (("user", "u"),): {KEY: 1}}
    )
    assert address_limits(image, key) == (5.0, {"10.0.0.1": 1.0})
