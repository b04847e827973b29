"""The delay before reconnecting to an unreachable broker (KIP-144).

The delay grows with each consecutive failure, up to a limit. It is randomized by 20 % in both
directions, so that the clients of a failed broker do not reconnect at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from barnabas.runtime.rng import Rng

_SPREAD = 0.2
_GROWTHS_MAX = 30


def exponential_ms(first_ms: float, max_ms: float, failures: int, factor: float = 2.0) -> float:
    """Return the delay after that many consecutive failures, in ms, without randomness.

    Args:
        first_ms: the delay after the first failure. 0 failures count as 1.
        max_ms: upper limit of the delay.
        failures: number of consecutive failures.
        factor: ratio of each delay to the previous one.
    """
    return min(first_ms * factor ** min(max(0, failures - 1), _GROWTHS_MAX), max_ms)


class ReconnectBackoff(msgspec.Struct, frozen=True):
    """The parameters of the backoff. The caller counts the failures."""

    # `reconnect.backoff.ms`
    first_ms: float = 50.0
    # `reconnect.backoff.max.ms`
    max_ms: float = 1000.0
    # Ratio of each delay to the previous one.
    factor: float = 2.0

    def delay_ms(self, failures: int, rng: Rng) -> float:
        """Return the delay in ms after that many consecutive failures. 0 without a failure."""
        if failures == 0:
            return 0.0
        full = exponential_ms(self.first_ms, self.max_ms, failures, self.factor)
        return full * (1.0 - _SPREAD + 2.0 * _SPREAD * rng.random())


# Between nodes of a cluster. Attempts are frequent in the first second, in which a node starts or a
# leader is elected. Then they become rarer, since attempts to reach a partitioned node cost both
# machines.
NODE_BACKOFF = ReconnectBackoff(first_ms=20.0, max_ms=500.0, factor=1.3)
