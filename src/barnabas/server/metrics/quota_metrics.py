"""Metrics of client quotas (Kafka: ClientQuotaManager, ControllerMutationQuotaManager).

A client has metrics while it has a quota, and until an hour after its last request. The tags name
the user and the client id that share the quota: both, or one of them and "".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics import names
from barnabas.metrics.family import MetricFamily
from barnabas.server.quotas.sanitized_user import sanitized_user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeVar

    from barnabas.metrics.family import Tags
    from barnabas.server.quotas.client_quotas import ClientQuotas, ClientUsage

    U = TypeVar("U", bound="ClientUsage")


def quota_families(quotas: ClientQuotas) -> Iterator[MetricFamily]:
    """Yield rates and throttle times of all clients that have a quota.

    The values are computed during the iteration, because there may be thousands of clients.
    """
    now_ms = quotas.clock.monotonic_ms()
    for quota, rate_name, throttle_name in (
        (quotas.produce, names.PRODUCE_QUOTA_RATE, names.PRODUCE_QUOTA_THROTTLE),
        (quotas.fetch, names.FETCH_QUOTA_RATE, names.FETCH_QUOTA_THROTTLE),
        (quotas.request, names.REQUEST_QUOTA_RATE, names.REQUEST_QUOTA_THROTTLE),
    ):
        usage = quota.usage()
        yield _family(rate_name, usage, lambda each: each.rate.measure(now_ms)[0])
        yield _family(throttle_name, usage, lambda each: each.throttle_time(now_ms))
    mutation = quotas.mutation
    mutations = mutation.usage()
    yield _family(names.MUTATION_QUOTA_RATE, mutations, lambda each: each.rate.measure(now_ms)[0])
    yield _family(names.MUTATION_QUOTA_THROTTLE, mutations, lambda each: each.throttle_time(now_ms))
    yield MetricFamily(
        names.MUTATION_QUOTA_TOKENS,
        (
            (_tags(user, client_id), tokens)
            for user, client_id, each in mutations
            if (tokens := mutation.tokens(user, client_id, each)) is not None
        ),
    )
    yield MetricFamily(names.EXEMPT_REQUEST_TIME, [((), quotas.exempt_request_time())])


def _family(
    name: str, usage: Iterable[tuple[str, str, U]], value: Callable[[U], float]
) -> MetricFamily:
    return MetricFamily(
        name, ((_tags(user, client_id), value(each)) for user, client_id, each in usage)
    )


def _tags(user: str, client_id: str) -> Tags:
    return (("user", sanitized_user(user)), ("client-id", client_id))
