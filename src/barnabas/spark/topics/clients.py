"""One client per worker process and configuration, shared by the tasks of the worker.

This module alone has global state. Spark offers tasks no other place to keep objects between calls,
and a new connection per task costs more than a small task.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from os import getpid
from typing import TYPE_CHECKING

from barnabas.client.facade import Client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.errors import NoBrokersError
    from barnabas.client.producer.producer import SharedProducer


# Long reads: larger responses than Kafka's defaults, so that each holds enough rows. A response
# below 4 MiB is received into one buffer; `FrameBuffers` grows a larger buffer by copying.
_READ_DEFAULTS = {
    "client.id": "barnabas-spark",
    "max.partition.fetch.bytes": "4000000",
    "queued.max.bytes": str(32 << 20),
}
# A task ends with a flush, so lingering adds no latency and fills batches.
_WRITE_DEFAULTS = {
    "client.id": "barnabas-spark",
    "batch.size": str(256 << 10),
    "linger.ms": "100",
}
# The whole batch happens within a transaction. Brokers allow 15 minutes by default.
_TRANSACTION_DEFAULTS = {"transaction.timeout.ms": "600000"}
# The marker of a slice is read after open transactions that contain it.
_TRANSACTION_SETTINGS = {"isolation.level": "read_committed"}
# Dead letters have their own producer: a sink of the same process must not report their errors.
# They may be as large as the records that were read.
_DEAD_LETTER_DEFAULTS = {
    "client.id": "barnabas-spark-dead-letters",
    "max.request.size": str(32 << 20),
}
# Committing progress to a group must not delay the query.
_MIRROR_DEFAULTS = {"client.id": "barnabas-spark-progress"}
_MIRROR_LIMITS = {"default.api.timeout.ms": "5000", "request.timeout.ms": "5000"}

# How long a query waits for its first broker, in ms.
_FIRST_RESPONSE_MS = 10_000

_Items = tuple[tuple[str, str], ...]


def reading_client(options: Mapping[str, str]) -> Client:
    """Return this process's client for sources with these options."""
    return _client(getpid(), _items(_READ_DEFAULTS | dict(options)))


def planning_client(options: Mapping[str, str]) -> Client:
    """Return the reading client once a broker has responded.

    Without a response, a message goes to standard error after a second. The wait ends after ten
    seconds, or after `default.api.timeout.ms` if the options contain it.

    Raises:
        NoBrokersError: no broker responded in time.
    """
    client = reading_client(options)
    given = {name.replace("_", "."): value for name, value in options.items()}
    timeout_ms = int(given.get("default.api.timeout.ms", _FIRST_RESPONSE_MS))

    def report_waiting(error: NoBrokersError) -> None:
        sys.stderr.write(f"barnabas source: {error}; waiting up to {timeout_ms / 1000:g} s\n")
        sys.stderr.flush()

    client.await_broker(timeout_ms, on_notice=report_waiting)
    return client


def mirroring_client(options: Mapping[str, str]) -> Client:
    """Return this process's client for committing offsets to groups; its timeouts are short."""
    return _client(getpid(), _items(_MIRROR_DEFAULTS | dict(options) | _MIRROR_LIMITS))


def producer(options: Mapping[str, str]) -> SharedProducer:
    """Return this process's producer for sinks with these options."""
    return _producer(getpid(), _items(_WRITE_DEFAULTS | dict(options)))


def transactional_client(options: Mapping[str, str]) -> Client:
    """Return this process's client for sinks that write transactions, and for their driver."""
    given = _TRANSACTION_DEFAULTS | dict(options) | _TRANSACTION_SETTINGS
    return _client(getpid(), _items(_WRITE_DEFAULTS | given))


def dead_letter_producer(options: Mapping[str, str]) -> SharedProducer:
    """Return this process's producer for the dead letters of sources with these options."""
    return _producer(getpid(), _items(_DEAD_LETTER_DEFAULTS | dict(options)))


def discard_producer(options: Mapping[str, str]) -> None:
    """Close the producer without sending its pending records, after a failed task."""
    _discard(_items(_WRITE_DEFAULTS | dict(options)))


def discard_dead_letters(options: Mapping[str, str]) -> None:
    """Close the producer of dead letters without sending its pending records."""
    _discard(_items(_DEAD_LETTER_DEFAULTS | dict(options)))


def _discard(items: _Items) -> None:
    client, failed = _client(getpid(), items), _producer(getpid(), items)
    _producer.cache_clear()
    _client.cache_clear()
    failed.close(flush=False)
    client.close(flush=False)


def _items(options: dict[str, str]) -> _Items:
    return tuple(sorted(options.items()))


# The process id is part of the key: a forked child must not use its parent's sockets.
@lru_cache(maxsize=8)
def _client(_process: int, items: _Items) -> Client:
    config = dict(items)
    return Client(config.pop("bootstrap.servers"), **config)


@lru_cache(maxsize=8)
def _producer(process: int, items: _Items) -> SharedProducer:
    return _client(process, items).producer()
