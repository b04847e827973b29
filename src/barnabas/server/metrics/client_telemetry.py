"""Metrics that clients push: subscriptions, admission and receivers (KIP-714).

Kafka's ClientMetricsManager and ClientTelemetryReceiver. Kafka serves the telemetry APIs only if a
plug-in receives the metrics. Barnabas has a receiver that writes each push as a JSON object to the
log, where log pipelines can read it. It is enabled by `barnabas.client.telemetry=log`.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from barnabas.metadata.client_metrics_configs import (
    ALL_METRICS,
    CLIENT_ID,
    CLIENT_INSTANCE_ID,
    CLIENT_METRICS_CONFIGS,
    CLIENT_SOFTWARE_NAME,
    CLIENT_SOFTWARE_VERSION,
    CLIENT_SOURCE_ADDRESS,
    CLIENT_SOURCE_PORT,
    INTERVAL_MS,
    INTERVAL_MS_DEFAULT,
    MATCH,
    METRICS,
    ClientMatchError,
    matches,
    parse_match,
)
from barnabas.metadata.configs_image import CLIENT_METRICS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.schema import ZERO_UUID
from barnabas.record.compiled import crc32c
from barnabas.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, decompress
from barnabas.record.record import CorruptBatchError
from barnabas.server.dispatch.client_software import UNKNOWN_SOFTWARE, ClientSoftware
from barnabas.server.metrics.otlp import MetricsReader, OtlpError
from barnabas.server.quotas.rate import QuotaRate
from barnabas.settings.key import ConfigError
from barnabas.waiting.steps import OffLoop

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from barnabas.protocol.messages.connection import PushTelemetryRequest
    from barnabas.record.batch import Buffer
    from barnabas.runtime.clock import Clock
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.server.metrics.otlp import MetricPoint
    from barnabas.settings.pattern import Pattern
    from barnabas.waiting.steps import Steps


# Compression types in Kafka's order, best first.
ACCEPTED_COMPRESSIONS = (ZSTD, LZ4, GZIP, SNAPPY)

# Maximum number of remembered clients. Beyond it, the least recently active client is dropped.
_INSTANCES_MAX = 16_384
_NEVER = float("-inf")


class Subscription(msgspec.Struct, frozen=True):
    """A parsed client metrics resource."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Pattern]


class ClientInstance(msgspec.Struct):
    """State of one client."""

    # Subscriptions that the fields below were computed from. If the object changes, compute again.
    subscriptions: tuple[Subscription, ...]
    subscription_id: int
    metrics: tuple[str, ...]
    push_interval_ms: int
    # Times in ms (monotonic); -inf before the first request.
    last_get_ms: float = _NEVER
    last_push_ms: float = _NEVER
    # Set by the last push of the client. Further pushes are rejected.
    terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    def maybe_record_get(self, now_ms: float) -> bool:
        """Record a request for the subscription, and return False if it is too early."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) < self.push_interval_ms:
            return False
        self.last_get_ms = now_ms
        return True

    def maybe_record_push(self, now_ms: float) -> bool:
        """Record a push, and return False if it is too early.

        The first push after a request for the subscription is never too early.
        """
        if self.last_get_ms <= self.last_push_ms and (
            now_ms - self.last_push_ms < self.push_interval_ms
        ):
            return False
        self.last_push_ms = now_ms
        return True


class ClientTelemetry:
    """Serves subscriptions from the image, and remembers recently active clients."""

    def __init__(
        self, cluster: ClusterView, clock: Clock, max_bytes: int, receiver: MetricsReceiver
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        # telemetry.max.bytes, which also limits the decompressed metrics, as in Kafka.
        self.max_bytes = max_bytes
        self._receiver = receiver
        # Recently active clients by instance id, the least recently active client first.
        self._instances: OrderedDict[bytes, ClientInstance] = OrderedDict()
        # The configs image of the last lookup, and its subscriptions.
        self._known: tuple[object, tuple[Subscription, ...]] = (None, ())

    def get(self, instance_id: bytes, client: Mapping[str, str]) -> ClientInstance | ErrorCode:
        """Return the metrics that the client has to push, or an error if it sends too early."""
        instance = self._instance(instance_id, client)
        now_ms = self._clock.monotonic_ms()
        may_ask_again = instance.last_error in (
            ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
        if not instance.maybe_record_get(now_ms):
            if not may_ask_again:
                return self._failed(instance, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            instance.last_get_ms = now_ms
        instance.last_error = ErrorCode.NONE
        return instance

    def push(self, request: PushTelemetryRequest, client: Mapping[str, str]) -> ErrorCode | Steps:
        """Accept a push of metrics. Return its error code, or steps that return it."""
        if request.client_instance_id == ZERO_UUID:
            return ErrorCode.INVALID_REQUEST
        instance = self._instance(request.client_instance_id, client)
        error = self._problem_of(request, instance)
        if error is not None:
            return self._failed(instance, error)
        instance.terminating = request.terminating
        instance.last_error = ErrorCode.NONE
        if not len(request.metrics):
            return ErrorCode.NONE
        # The request's view is valid only until the handler returns.
        return self._receive(request, bytes(request.metrics), instance, client)

    def _receive(
        self,
        request: PushTelemetryRequest,
        metrics: Buffer,
        instance: ClientInstance,
        client: Mapping[str, str],
    ) -> Steps:
        try:
            if request.compression_type != NONE:
                work = partial(decompress, request.compression_type, metrics, self.max_bytes)
                metrics = yield OffLoop(work, self.max_bytes)
            yield from self._receiver.receive(client, request.terminating, bytes(metrics))
        except (CorruptBatchError, OtlpError):
            return self._failed(instance, ErrorCode.INVALID_RECORD)
        return ErrorCode.NONE

    def _problem_of(
        self, request: PushTelemetryRequest, instance: ClientInstance
    ) -> ErrorCode | None:
        if instance.terminating:
            return ErrorCode.INVALID_REQUEST
        if not instance.maybe_record_push(self._clock.monotonic_ms()) and not request.terminating:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != instance.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if request.compression_type not in (NONE, *ACCEPTED_COMPRESSIONS):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics) > self.max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return None

    def _failed(self, instance: ClientInstance, error: ErrorCode) -> ErrorCode:
        instance.last_error = error
        return error

    def _instance(self, instance_id: bytes, client: Mapping[str, str]) -> ClientInstance:
        """Return the state of a client, updated for the current subscriptions."""
        subscriptions = self._subscriptions()
        instance = self._instances.get(instance_id)
        if instance is None or instance.subscriptions is not subscriptions:
            was_terminating = instance is not None and instance.terminating
            instance = _new_instance(instance_id, client, subscriptions)
            instance.terminating = was_terminating
            self._instances[instance_id] = instance
        self._instances.move_to_end(instance_id)
        while len(self._instances) > _INSTANCES_MAX:
            self._instances.popitem(last=False)
        return instance

    def _subscriptions(self) -> tuple[Subscription, ...]:
        """Return the subscriptions of the image. The object is the same until one changes."""
        configs = self._cluster.image.configs
        if self._known[0] is not configs:
            found = tuple(
                subscription
                for kind, _, texts in configs
                if kind == CLIENT_METRICS and (subscription := _parsed(texts)) is not None
            )
            kept = self._known[1] if found == self._known[1] else found
            self._known = (configs, kept)
        return self._known[1]


def _parsed(texts: Mapping[str, str]) -> Subscription | None:
    try:
        config = CLIENT_METRICS_CONFIGS.parse(dict(texts))
        match = parse_match(config.strings(MATCH))
    except (ConfigError, ClientMatchError):
        # The controller validated the values, but another or older version may have allowed more.
        return None
    return Subscription(tuple(config.strings(METRICS)), config.integer(INTERVAL_MS), match)


def _new_instance(
    instance_id: bytes, client: Mapping[str, str], subscriptions: tuple[Subscription, ...]
) -> ClientInstance:
    """Combine all subscriptions that match the client, with the shortest interval."""
    attributes = {**client, "client_instance_id": uuid_to_string(instance_id)}
    fitting = [each for each in subscriptions if matches(each.match, attributes)]
    metrics = tuple(sorted({metric for each in fitting for metric in each.metrics}))
    if ALL_METRICS in metrics:
        metrics = (ALL_METRICS,)
    interval_ms = min([INTERVAL_MS_DEFAULT, *(each.interval_ms for each in fitting)])
    text = f"{metrics}{interval_ms}".encode() + instance_id
    # The subscription id is a signed integer in the protocol.
    subscription_id = crc32c(text) - (1 << 31)
    return ClientInstance(subscriptions, subscription_id, metrics, interval_ms)


def pushing_client(context: RequestContext, instance_id: bytes) -> dict[str, str]:
    """Return the attributes of the client from the request and its connection.

    The principal is for the receiver. Subscriptions cannot match it.
    """
    session = context.connection.session
    software = session if isinstance(session, ClientSoftware) else UNKNOWN_SOFTWARE
    address, _, port = context.connection.peer.rpartition(":")
    return {
        CLIENT_INSTANCE_ID: uuid_to_string(instance_id),
        CLIENT_ID: context.client_id or "",
        CLIENT_SOFTWARE_NAME: software.name,
        CLIENT_SOFTWARE_VERSION: software.version,
        CLIENT_SOURCE_ADDRESS: address,
        CLIENT_SOURCE_PORT: port,
        "principal": str(context.principal),
    }


_log = logging.getLogger("barnabas.client_metrics")

# Limits of one push: logged points, their characters, and visits of fields.
POINTS_MAX = 2_000
CHARACTERS_MAX = 128 << 10
VISITS_MAX = 100_000
# Visits per step: about a millisecond.
_VISITS_PER_STEP = 1_000
# Limit on the work for all clients: visits and logged characters per second, averaged over ten
# seconds.
RATE_MAX = 200_000
_WINDOW_MS = 1_000.0
_WINDOWS = 11


class MetricsReceiver(Protocol):
    """Receives the metrics that clients push."""

    def receive(
        self, client: Mapping[str, str], terminating: bool, metrics: bytes
    ) -> Generator[None, None, None]:
        """Process a push in steps.

        Args:
            client: attributes of the client, by Kafka's names of selectors.
            terminating: whether this is the last push of the client.
            metrics: an uncompressed MetricsData message.

        Raises:
            OtlpError: the message is malformed.
        """
        ...


class LoggingReceiver:
    """Writes each push to the logger `barnabas.client_metrics` at INFO."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Recent work for all clients.
        self._rate = QuotaRate(_WINDOWS, _WINDOW_MS)
        # Number of pushes since the last line that were not logged because of the rate.
        self._unlogged = 0
        if _log.level == logging.NOTSET:
            # The log starts at WARN by default, but the operator has enabled this output.
            _log.setLevel(logging.INFO)

    def receive(
        self, client: Mapping[str, str], terminating: bool, metrics: bytes
    ) -> Generator[None, None, None]:
        """Log the push as a JSON object on one line, unless clients push too much."""
        if self._rate.throttle_ms(RATE_MAX, self._clock.monotonic_ms()) > 0:
            self._unlogged += 1
            return
        reader, line = MetricsReader(), _Line()
        next_step = _VISITS_PER_STEP
        try:
            for point in reader.points(metrics):
                if reader.visits > VISITS_MAX or not (point is None or line.add(point)):
                    line.is_complete = False
                    break
                if reader.visits >= next_step:
                    next_step = reader.visits + _VISITS_PER_STEP
                    yield
        finally:
            self._rate.record(reader.visits, self._clock.monotonic_ms())
        content: dict[str, Any] = {
            **client,
            "terminating": terminating,
            "metrics": line.points,
            "is_complete": line.is_complete,
            "unlogged_pushes": self._unlogged,
        }
        self._unlogged = 0
        text = json.dumps(content)
        self._rate.record(len(text), self._clock.monotonic_ms())
        _log.info("%s", text)


class _Line:
    """The points of one push that are logged."""

    __slots__ = ("_characters", "is_complete", "points")

    def __init__(self) -> None:
        self.points: list[dict[str, Any]] = []
        self._characters = 0
        # Whether the push has no other points.
        self.is_complete = True

    def add(self, point: MetricPoint) -> bool:
        """Add a point, and return whether it fits."""
        self._characters += len(point.name) + sum(
            len(key) + len(text) for key, text in point.labels.items()
        )
        if len(self.points) >= POINTS_MAX or self._characters > CHARACTERS_MAX:
            return False
        self.points.append(
            {"name": point.name, "kind": point.kind, "value": point.value, "labels": point.labels}
        )
        return True
