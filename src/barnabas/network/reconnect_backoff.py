"""When a broker that could not be reached is tried again (KIP-144).

The delay grows with each failure in a row, up to a limit, and is spread by a fifth either way so
that clients which lost the same broker do not come back at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from barnabas.runtime.rng import Rng

_SPREAD = 0.2
_GROWTHS_MAX = 30


class ReconnectBackoff(msgspec.Struct, frozen=True):
    """The rule; the count of failures is the caller's."""

    # `reconnect.backoff.ms`
    first_ms: float = 50.0
    # `reconnect.backoff.max.ms`
    max_ms: float = 1000.0
    # By how much each delay is longer than the one before.
    factor: float = 2.0

    def delay_ms(self, failures: int, rng: Rng) -> float:
        """How long to wait after that many failures in a row; 0 after none."""
        if failures == 0:
            return 0.0
        full = min(self.first_ms * self.factor ** min(failures - 1, _GROWTHS_MAX), self.max_ms)
        return full * (1.0 - _SPREAD + 2.0 * _SPREAD * rng.random())


# Between nodes of a cluster: often in the first second, in which a node starts or a leader is
# elected, then more and more seldom, since each attempt at one that is cut off costs both machines.
NODE_BACKOFF = ReconnectBackoff(first_ms=20.0, max_ms=500.0, factor=1.3)
