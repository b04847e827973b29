"""The id and epoch of an idempotent producer (KIP-98, KIP-360)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.connections.cluster import ANY_NODE
from barnabas.client.connections.connections import Call
from barnabas.client.errors import ClientError, broker_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.connections.cluster import Cluster
    from barnabas.protocol.schema import Message

__all__ = ["ProducerIdentity"]

_NO_ID = -1
# From this version on, a producer can request a higher epoch; before, it requests a new id.
_BUMP_FROM = 3
_INT32_MAX = 0x7FFFFFFF


class ProducerIdentity:
    """Requests a producer id, and a higher epoch when sequences must restart at 0."""

    def __init__(self, cluster: Cluster, on_ready: Callable[[], None]) -> None:
        self._cluster = cluster
        self._on_ready = on_ready
        self.producer_id = _NO_ID
        self.producer_epoch = -1
        # Whether id and epoch are valid and no request is pending.
        self.is_ready = False
        # Fatal error of the cluster's response; never reset.
        self.error: ClientError | None = None
        # Whether a request is in flight; there is at most one.
        self._requesting = False
        self._retry = cluster.retry_timer()

    def request(self) -> None:
        """Request an id or the next epoch; `on_ready` is called when the response has arrived."""
        self.is_ready = False
        if self._requesting or self.error is not None:
            return
        self._requesting = True
        self._retry.cancel()
        self._cluster.call(ANY_NODE, Call(ApiKey.INIT_PRODUCER_ID, self._build, self._on_response))

    def _build(self, version: int) -> Message:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_INT32_MAX)
        if version >= _BUMP_FROM and self.producer_id != _NO_ID:
            request.producer_id = self.producer_id
            request.producer_epoch = self.producer_epoch
        return request

    def _on_response(self, response: Message | None, error: ClientError | None) -> None:
        self._requesting = False
        if response is not None:
            assert isinstance(response, InitProducerIdResponse)
            if not response.error_code and min(response.producer_id, response.producer_epoch) >= 0:
                self.producer_id = response.producer_id
                self.producer_epoch = response.producer_epoch
                self.is_ready = True
                self._retry.reset()
                self._on_ready()
                return
            code = response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR
            error = broker_error(code, "producer id")
            if self.producer_id != _NO_ID and not error.retriable:
                # The broker cannot raise the old epoch: request a new id.
                self.producer_id = _NO_ID
                self.request()
                return
        assert error is not None
        if error.retriable:
            self._retry.retry(self.request)
            return
        self.error = error
        self._on_ready()
