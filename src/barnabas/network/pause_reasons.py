"""Why a connection does not read. Reasons are bits that combine.

They are plain integers, since `&` of an enum costs 300 ns per request.
"""

from __future__ import annotations

# The limit on requests without a response is reached.
IN_FLIGHT = 1
# Too many bytes of responses wait for earlier responses.
HELD = 2
# The peer does not read its responses.
UNWRITABLE = 4
# The owner of the connection demands it.
MUTED = 8
# The connection closes after the pending responses.
CLOSING = 16
# The client exceeds its quota.
THROTTLED = 32
# Deferred requests are not processed yet.
DEFERRED = 64
# A request takes several turns, and later requests may depend on it.
WORKING = 128
# The budget for partially received requests is used up.
MEMORY = 256
# The limit on large requests without a response is reached.
LARGE = 512
# A request above this size is a large request.
LARGE_BYTES = 64 * 1024
# The next request waits for the response to an earlier one.
ORDER = 1024
# Pauses because of pending requests, during which the connection does not notice the peer's end of
# stream.
WAITING = IN_FLIGHT | HELD | WORKING | LARGE | ORDER
# Interval of checks whether the peer of such a connection is still there.
PEER_CHECK_MS = 1_000.0
