"""Endpoint types of DescribeCluster requests (KIP-919)."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import DescribeClusterResponse

BROKERS = 1
CONTROLLERS = 2

_NAMES = {BROKERS: "a broker", CONTROLLERS: "a controller"}


def refuse_endpoint_type(requested: int, served: int) -> DescribeClusterResponse:
    """Return the error response to a request of another type than the listener."""
    error, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Endpoint type {requested} is unknown."
    if requested in _NAMES:
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = f"This is a listener of {_NAMES[served]}, not of {_NAMES[requested]}."
    return DescribeClusterResponse(
        error_code=error,
        error_message=message,
        endpoint_type=served,
        cluster_id="",
        brokers=[],
    )
