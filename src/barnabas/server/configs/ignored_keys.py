"""Kafka keys that have no meaning for this broker and need no warning.

Some of these keys size thread pools that this broker does not have. Others configure Kafka's own
metrics, or the algorithms of Java's TLS. The rest sizes buffers and threads of coordinators.
"""

from __future__ import annotations

_THREADS = frozenset({
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.alter.log.dirs.threads",
    "queued.max.requests",
    "remote.log.manager.thread.pool.size",
})  # fmt: skip

_METRICS = frozenset({
    "auto.include.jmx.reporter",
    "kafka.metrics.polling.interval.secs",
    "kafka.metrics.reporters",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
})  # fmt: skip

_COORDINATORS = frozenset({
    "group.coordinator.threads",
    "offsets.load.buffer.size",
    "share.coordinator.append.linger.ms",
    "share.coordinator.cached.buffer.max.bytes",
    "share.coordinator.load.buffer.size",
    "share.coordinator.threads",
    "transaction.state.log.load.buffer.size",
})  # fmt: skip

# Names of Java's algorithms and providers.
_JAVA_TLS = frozenset({
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "ssl.engine.factory.class",
    "principal.builder.class",
})  # fmt: skip

IGNORED_KEYS = _THREADS | _METRICS | _COORDINATORS | _JAVA_TLS
