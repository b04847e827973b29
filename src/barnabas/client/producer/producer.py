"""`barnabas.Producer`: the blocking producer with its own connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.client.config import ClientConfig, keys_with_servers
from barnabas.client.errors import ClientError
from barnabas.client.producer.configured_partitioner import check_partitioner
from barnabas.client.producer.producer_parts import take_parts
from barnabas.client.producer.shared_producer import SharedProducer
from barnabas.client.session.lifetime import ClosedByUser
from barnabas.client.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Producer"]


class Producer(SharedProducer, ClosedByUser):
    """Sends records to topics. Use it in a `with` block, or call `close()`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of such strings.
        config: Kafka's producer settings with "_" for "."; `**{"linger.ms": 1}` works too. Further
            keys: `key_serializer` and `value_serializer` (functions from a value to bytes),
            `partitioner` ("round_robin", or a function of (key, partitions, available)),
            `interceptors` (a list of `ProducerInterceptor`).

    Raises:
        ClientConfigError: a setting is unknown or has an invalid value.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str] | None = None, **config: Any) -> None:
        parts, keys = take_parts(config)
        checked = check_partitioner(ClientConfig.parse(keys_with_servers(bootstrap_servers, keys)))
        session = Session(checked, "producer")
        super().__init__(session, checked, lambda _self: session.close(), parts)
        self._servers = ",".join(f"{host}:{port}" for host, port in checked.bootstrap_servers)
        self._watch(session.lifetime)

    def __repr__(self) -> str:
        return f"Producer({self._servers!r})"

    def _close_at_exit(self, timeout: float) -> None:
        # A daemon thread may be in a call that does not end.
        if not self._lock.acquire(timeout=timeout):
            raise ClientError("another thread is in a call of the producer")
        try:
            self._session.check_idle()
            self.close(timeout)
        finally:
            self._lock.release()
