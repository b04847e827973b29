"""The broker keys of tiered storage (KIP-405; Kafka's RemoteLogManagerConfig).

They stand outside of the package `storage.remote`, which a broker without a remote tier does not
import. Its `config` module reads their values. The retention and the copy lag of topics are keys
of `storage.config`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.settings.definition import ConfigDefinition
from barnabas.settings.key import (
    ConfigKey,
    ConfigType,
    DynamicMode,
    at_least,
    between,
    not_empty,
)

if TYPE_CHECKING:
    from barnabas.settings.key import ConfigValue, Range

# The topic with the metadata of remote segments.
REMOTE_LOG_TOPIC = "__remote_log_metadata"

SYSTEM_ENABLE = "remote.log.storage.system.enable"
STORAGE = "barnabas.remote.storage"
STORAGE_OPTIONS = "barnabas.remote.storage.options"
CREDENTIALS_FILE = "barnabas.remote.credentials.file"
METADATA_LISTENER = "remote.log.metadata.manager.listener.name"
METADATA_PREFIX = "remote.log.metadata.manager.impl.prefix"
STORE_CLASS = "remote.log.storage.manager.class.name"
STORE_PREFIX = "remote.log.storage.manager.impl.prefix"
STORE_PREFIX_DEFAULT = "rsm.config."

COPIER_THREADS = "remote.log.manager.copier.thread.pool.size"
EXPIRATION_THREADS = "remote.log.manager.expiration.thread.pool.size"
READER_THREADS = "remote.log.reader.threads"
COPY_RATE = "remote.log.manager.copy.max.bytes.per.second"
FETCH_RATE = "remote.log.manager.fetch.max.bytes.per.second"
INDEX_CACHE_BYTES = "remote.log.index.file.cache.total.size.bytes"
FETCH_MAX_WAIT = "remote.fetch.max.wait.ms"
LIST_OFFSETS_TIMEOUT = "remote.list.offsets.request.timeout.ms"
READ_CACHE_BYTES = "barnabas.remote.read.cache.max.bytes"

_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_STRING, _DOUBLE = ConfigType.STRING, ConfigType.DOUBLE
_LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF

_KIB, _MIB = 1 << 10, 1 << 20
_POSITIVE = at_least(1)
_NOT_NEGATIVE = at_least(0)
_NOT_EMPTY = not_empty()


def _key(
    name: str,
    kind: ConfigType,
    default: ConfigValue,
    doc: str,
    limits: Range | None = None,
) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, limits)


def _internal(
    name: str, kind: ConfigType, default: ConfigValue, doc: str, limits: Range
) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, limits, internal=True)


def _dynamic(
    name: str, kind: ConfigType, default: ConfigValue, doc: str, limits: Range
) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, limits, DynamicMode.CLUSTER_WIDE)


_SYSTEM = [
    _key(SYSTEM_ENABLE, _BOOLEAN, False,
         "Whether topics can have a remote tier. A broker then needs barnabas.remote.storage."),
    _key(STORAGE, _STRING, "",
         "Store of the remote tier: file:///DIRECTORY, which all brokers must see, and"
         " with ?layout=kafka-local Kafka's LocalTieredStorage can use it too;"
         " s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX for a bucket; or"
         " python:MODULE:FACTORY for a store of your own."),
    _key(STORAGE_OPTIONS, ConfigType.PASSWORD, "",
         "Options of a bucket as NAME=VALUE, separated by commas, for example endpoint, region or"
         " server_side_encryption. docs/tiered-storage.md lists them."),
    _key(CREDENTIALS_FILE, _STRING, "",
         "File with the credentials of a bucket: an INI file as of AWS, or JSON for Google Cloud or"
         " Azure. A changed file is read within ten seconds."),
    _key("barnabas.remote.request.timeout.ms", _INT, 30_000,
         "Longest time of one request to a bucket, with its answer.", at_least(100)),
    _key("barnabas.remote.retry.timeout.ms", _INT, 120_000,
         "Time for which a failed request to a bucket is repeated; 0 for no repetition. Then the"
         " broker waits, and begins the copy, deletion or read again.",
         between(0, 280_000)),
    _key(METADATA_LISTENER, _STRING, None,
         "A listener of this broker. It must exist, and has no other effect: brokers read the"
         " metadata of segments through the listener between brokers.",
         _NOT_EMPTY),
    _key(METADATA_PREFIX, _STRING, "rlmm.config.",
         "Prefix of the keys for __remote_log_metadata: remote.log.metadata.topic."
         "replication.factor (3), .num.partitions (50), .retention.ms (-1) and .min.isr (2), and"
         " remote.log.metadata.consume.wait.ms (120000).",
         _NOT_EMPTY),
    _key("remote.log.metadata.custom.metadata.max.bytes", _INT, 128,
         "Bytes that a store may return for the copy of a segment. A larger result ends the"
         " copying of the partition.",
         _NOT_NEGATIVE),
    _key("barnabas.remote.segments.max", _INT, 2_000_000,
         "Number of remote segments whose metadata this broker keeps in memory. Above it the"
         " broker copies no more segments.",
         _POSITIVE),
]  # fmt: skip

_TASKS = [
    _dynamic(COPIER_THREADS, _INT, 10,
             "Threads that copy segments. barnabas.remote.copy.buffer.max.bytes can be the lower"
             " limit.",
             _POSITIVE),
    _dynamic(EXPIRATION_THREADS, _INT, 10,
             "Threads that delete remote segments; more than 4 count as 4.", _POSITIVE),
    _key("barnabas.remote.copy.buffer.max.bytes", _LONG, 128 * _MIB,
         "Memory for copies. Each concurrent copy counts as 32 MiB.", at_least(32 * _MIB)),
    _key("remote.log.manager.task.interval.ms", _LONG, 30_000,
         "Interval at which partitions look for segments to copy and to delete.", _POSITIVE),
    _internal("remote.log.manager.task.retry.backoff.ms", _LONG, 500,
              "Delay before a failed copy or deletion is tried again; it doubles.", _POSITIVE),
    _internal("remote.log.manager.task.retry.backoff.max.ms", _LONG, 30_000,
              "Longest delay before a failed copy or deletion is tried again.", _POSITIVE),
    _internal("remote.log.manager.task.retry.jitter", _DOUBLE, 0.2,
              "Random part of these delays.", between(0, 0.5)),
    _dynamic(COPY_RATE, _LONG, _LONG_MAX,
             "Bytes per second that this broker copies to the remote tier.", _POSITIVE),
    _key("remote.log.manager.copy.quota.window.num", _INT, 11,
         "Number of windows for the rate of copies.", _POSITIVE),
    _key("remote.log.manager.copy.quota.window.size.seconds", _INT, 1,
         "Length of a window for the rate of copies.", _POSITIVE),
    _key("barnabas.remote.orphan.age.ms", _LONG, 900_000,
         "Age at which a copy that was started and not finished is deleted.", _POSITIVE),
    _key("barnabas.remote.verify.before.delete", _BOOLEAN, True,
         "Whether a local segment is deleted only after the store has confirmed the size of its"
         " copy."),
]  # fmt: skip

_READS = [
    _dynamic(READER_THREADS, _INT, 10, "Threads that read from the remote tier.", _POSITIVE),
    _key("remote.log.reader.max.pending.tasks", _INT, 100,
         "Number of reads that may wait for a thread. Above it, fetches get an error.", _POSITIVE),
    _dynamic(FETCH_MAX_WAIT, _INT, 500,
             "Longest time that a fetch waits for records of the remote tier.", _POSITIVE),
    _dynamic(LIST_OFFSETS_TIMEOUT, _LONG, 30_000,
             "Longest time of a search by timestamp in the remote tier.", _POSITIVE),
    _dynamic(FETCH_RATE, _LONG, _LONG_MAX,
             "Bytes per second that this broker reads from the remote tier.", _POSITIVE),
    _key("remote.log.manager.fetch.quota.window.num", _INT, 11,
         "Number of windows for the rate of reads.", _POSITIVE),
    _key("remote.log.manager.fetch.quota.window.size.seconds", _INT, 1,
         "Length of a window for the rate of reads.", _POSITIVE),
    _dynamic(INDEX_CACHE_BYTES, _LONG, 1 << 30,
             "Bytes of index files of remote segments that the broker keeps on its disk.",
             _POSITIVE),
    _internal("remote.log.index.file.cache.ttl.ms", _LONG, 900_000,
              "Time after its last use at which an index file of a remote segment is removed from"
              " the broker's disk; -1 for no limit.",
              at_least(-1)),
    _key("barnabas.remote.index.memory.max.bytes", _LONG, 32 * _MIB,
         "Memory for indexes of remote segments.", at_least(_MIB)),
    _dynamic(READ_CACHE_BYTES, _LONG, 128 * _MIB,
             "Memory for records that were read from the remote tier.", at_least(8 * _MIB)),
    _key("barnabas.remote.read.range.max.bytes", _INT, 4 * _MIB,
         "Bytes of one read from the store, unless a batch is larger.",
         between(256 * _KIB, 64 * _MIB)),
    _key("barnabas.remote.read.ahead", _INT, 1,
         "Number of ranges that are read before a sequential reader needs them; 0 for none.",
         between(0, 16)),
]  # fmt: skip

REMOTE_KEYS = (*_SYSTEM, *_TASKS, *_READS)
# The keys of the remote tier that can change while the broker runs.
REMOTE_DYNAMIC_KEYS = tuple(
    key.name for key in REMOTE_KEYS if key.mode is not DynamicMode.READ_ONLY
)

# Keys of the metadata topic, behind the prefix of `remote.log.metadata.manager.impl.prefix`.
METADATA_TOPIC_KEYS = ConfigDefinition(
    [
        ConfigKey(
            "remote.log.metadata.topic.replication.factor",
            ConfigType.SHORT,
            3,
            "Replicas of __remote_log_metadata; at most the number of brokers.",
            at_least(1),
        ),
        ConfigKey(
            "remote.log.metadata.topic.num.partitions",
            ConfigType.INT,
            50,
            "Partitions of __remote_log_metadata. It cannot change after the first start.",
            between(1, 10_000),
        ),
        ConfigKey(
            "remote.log.metadata.topic.retention.ms",
            ConfigType.LONG,
            -1,
            "Retention of __remote_log_metadata. It must exceed that of all tiered topics.",
            at_least(-1),
        ),
        ConfigKey(
            "remote.log.metadata.topic.min.isr",
            ConfigType.SHORT,
            2,
            "min.insync.replicas of __remote_log_metadata; at most the number of replicas.",
            at_least(1),
        ),
        ConfigKey(
            "remote.log.metadata.consume.wait.ms",
            ConfigType.LONG,
            120_000,
            "Longest time until a written event of a segment is read again.",
            at_least(1),
        ),
    ]
)

_JAVA = "the store of the remote tier is barnabas.remote.storage, not a Java class"
_FOLLOWERS = "followers of tiered topics need no threads of their own"
# Keys of Kafka that have no effect here, with the reason.
IGNORED_REMOTE_KEYS = {
    STORE_CLASS: _JAVA,
    "remote.log.storage.manager.class.path": _JAVA,
    STORE_PREFIX: _JAVA,
    "remote.log.metadata.manager.class.name": _JAVA,
    "remote.log.metadata.manager.class.path": _JAVA,
    "remote.log.manager.follower.thread.pool.size": _FOLLOWERS,
    "remote.log.manager.thread.pool.size": _FOLLOWERS,
}
