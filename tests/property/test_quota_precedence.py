"""The limit of a client beside a model of Kafka's eight levels of quotas, for any quotas."""

from __future__ import annotations

from hypothesis import given, strategies as st

from barnabas.metadata.configs_image import ClientQuotasImage
from barnabas.server.quotas.limits import QuotaLimits
from quota_levels import LEVELS, Quotas, entity, limit_by_model

KEY, OTHER_KEY = "producer_byte_rate", "consumer_byte_rate"
NAMES = ("a", "b", "c")

entities = st.builds(
    entity, st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from(LEVELS)
)
values = st.floats(min_value=0.5, max_value=1e12)
quotas_of_a_cluster = st.dictionaries(entities, values, max_size=24)


@given(quotas_of_a_cluster, quotas_of_a_cluster)
def test_the_first_level_with_a_quota_applies(quotas: Quotas, others: Quotas) -> None:
    image = ClientQuotasImage(
        {
            each: {
                **({KEY: quotas[each]} if each in quotas else {}),
                **({OTHER_KEY: others[each]} if each in others else {}),
            }
            for each in {*quotas, *others}
        }
    )
    limits = QuotaLimits(image, KEY)
    assert len(limits) == len(quotas)
    for user in (*NAMES, "someone"):
        for client_id in (*NAMES, "something", ""):
            # Twice: the second answer comes from the cache.
            for _ in range(2):
                found = limits.find(user, client_id)
                assert found == limit_by_model(quotas, user, client_id)
