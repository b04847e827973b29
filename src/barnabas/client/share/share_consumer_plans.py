"""Plans of the calls that both share consumers have and that wait. Timeouts are in seconds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from barnabas.client.consumer.assignment.subscription import Subscription, SubscriptionPattern
from barnabas.client.consumer.consumer_calls import outcome_of
from barnabas.client.consumer.errors import SubscriptionError
from barnabas.client.errors import ClientTimeoutError
from barnabas.client.session.plans import Until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.errors import ClientError
    from barnabas.client.session.plans import WaitingPlan
    from barnabas.client.share.share_consumer_core import ShareConsumerCore
    from barnabas.client.topic_partition import TopicPartition

_MS_PER_S = 1000.0


def subscribe(core: ShareConsumerCore, topics: Iterable[str] | str) -> WaitingPlan[None]:
    """Subscribe to topics; replace earlier topics. The next poll joins the group.

    Args:
        topics: One name or several. An empty collection means `unsubscribe`.

    Raises:
        SubscriptionError: The topics are None, a pattern, or a name is blank.
    """
    names = topic_names(topics)
    if names:
        core.subscribe(names)
    else:
        yield from unsubscribe(core)


def topic_names(topics: Iterable[str] | str) -> tuple[str, ...]:
    """Return topic names as a tuple.

    Raises:
        SubscriptionError: The topics are None, a name is blank, or a pattern was given.
    """
    if topics is None or isinstance(topics, re.Pattern | SubscriptionPattern):
        raise SubscriptionError(
            f"subscribe: a share consumer needs names of topics, not {topics!r}"
        )
    names = Subscription.wanted(topics, None)
    assert isinstance(names, tuple), names
    return names


def unsubscribe(core: ShareConsumerCore) -> WaitingPlan[None]:
    """Leave the group: send pending acknowledgements, and release all other records."""
    return leave(core, core.config.default_api_timeout_ms)


def leave(core: ShareConsumerCore, timeout_ms: float) -> WaitingPlan[None]:
    """Leave the group, see `unsubscribe`, or abandon it after `timeout_ms`."""
    ended: list[bool] = []
    core.leave(lambda: ended.append(True))
    if not (yield Until(lambda: bool(ended), timeout_ms)):
        core.abandon()


def close(core: ShareConsumerCore, timeout_ms: float) -> WaitingPlan[None]:
    """Leave the group, run the callback for the last results, and stop the core."""
    try:
        yield from leave(core, timeout_ms)
        core.results.run()
    finally:
        core.stop()


def commit_sync(
    core: ShareConsumerCore, timeout: float | None = None
) -> WaitingPlan[dict[TopicPartition, ClientError | None]]:
    """Send the acknowledgements and wait for the results.

    In implicit mode, the records of the last poll are accepted.

    Args:
        timeout: Seconds; None for default.api.timeout.ms.

    Returns:
        For each partition with acknowledgements its error, or None if they succeeded; a
        `ClientTimeoutError` if the result did not arrive in time.

    Raises:
        WakeupError: `wakeup` was called; the results go to the callback.
    """
    commit = core.commit()
    limit_ms = _limit_ms(core, timeout)
    yield Until(lambda: commit.is_done or core.is_wakeup_wanted, limit_ms)
    if not commit.is_done:
        core.check_wakeup()
    core.results.run()
    return commit.results(limit_ms)


def client_instance_id(core: ShareConsumerCore, timeout: float | None = None) -> WaitingPlan[str]:
    """Return the id that the brokers use for this client's telemetry (KIP-714).

    Args:
        timeout: Seconds; None for default.api.timeout.ms.

    Raises:
        UnsupportedVersionError: The brokers do not collect client telemetry.
        ClientTimeoutError: No broker responded in time.
    """
    outcomes: list[tuple[str | None, ClientError | None]] = []

    def on_done(found: str | None, error: ClientError | None) -> None:
        outcomes.append((found, error))
        core.on_wake()

    core.client_instance_id(on_done)
    limit_ms = _limit_ms(core, timeout)
    yield Until(lambda: bool(outcomes) or core.is_wakeup_wanted, limit_ms)
    if not outcomes:
        core.check_wakeup()
        raise ClientTimeoutError(f"no broker responded within {limit_ms:.0f} ms")
    return outcome_of(outcomes[0])


def _limit_ms(core: ShareConsumerCore, timeout: float | None) -> float:
    return core.config.default_api_timeout_ms if timeout is None else timeout * _MS_PER_S
