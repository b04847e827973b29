"""All options of `format("barnabas")` and of Spark's `format("kafka")`, and how the two compare.

This is the only list of the names. The source and the sink check names against it, `barnabas spark
check` reports from it, and `tools/document_spark_options.py` writes the table in docs/spark.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["OPTIONS", "Comparison", "Option", "Purpose", "client_option", "named"]


class Comparison(Enum):
    """How an option of Spark's connector behaves here."""

    SAME = "same"
    DIFFERS = "differs"
    REFUSED = "refused"
    # Spark's connector does not have the option, and ignores it.
    ADDED = "added"


class Purpose(Enum):
    """The operations that take an option."""

    READ = "read"
    WRITE = "write"
    BOTH = "both"

    def includes(self, other: Purpose) -> bool:
        """Return whether an option of this purpose is allowed for the other one."""
        return self in (Purpose.BOTH, other)


@dataclass(frozen=True, slots=True)
class Option:
    """One option, with its usual spelling; options are compared in lower case."""

    name: str
    purpose: Purpose
    comparison: Comparison
    # What the option does, and what is different here.
    sentence: str
    # Why the option is refused, or why it has no effect; empty for other options.
    reason: str = ""


_READ, _WRITE, _BOTH = Purpose.READ, Purpose.WRITE, Purpose.BOTH
_SAME, _DIFFERS = Comparison.SAME, Comparison.DIFFERS
_REFUSED, _ADDED = Comparison.REFUSED, Comparison.ADDED

OPTIONS = (
    Option(
        "kafka.bootstrap.servers", _BOTH, _SAME,
        "The addresses of brokers, `HOST:PORT[,HOST:PORT...]`.",
    ),
    Option(
        "subscribe", _READ, _DIFFERS,
        "The topics to read, separated by commas. An internal topic such as `__consumer_offsets` "
        "is read if it is named; Spark's connector reads none of its records.",
    ),
    Option(
        "subscribePattern", _READ, _DIFFERS,
        "A pattern in Java's syntax that is found somewhere in the topic's name. A construct "
        "without an exact translation, such as `\\p{IsGreek}` or `\\R`, is refused.",
    ),
    Option(
        "assign", _READ, _DIFFERS,
        "The partitions to read, `{\"topic\": [0, 1]}`. A partition that does not exist is an "
        "error; Spark's connector omits it. Without partitions, both read nothing.",
    ),
    Option(
        "startingOffsets", _READ, _SAME,
        "Where reading starts: `earliest`, `latest`, or `{\"topic\": {\"0\": 23, \"1\": -2}}`; "
        "-2 is earliest, -1 latest. The default is `latest` for streams, `earliest` for "
        "`spark.read`.",
    ),
    Option(
        "endingOffsets", _READ, _DIFFERS,
        "Where `spark.read` ends, in the same form; the default is `latest`. An offset after the "
        "end of a partition is an error.",
    ),
    Option(
        "startingTimestamp", _READ, _SAME,
        "Start at the first record at or after this time, in ms.",
    ),
    Option(
        "endingTimestamp", _READ, _DIFFERS,
        "End before the first record at or after this time, in ms. A stream refuses it; Spark's "
        "connector ignores it there.",
    ),
    Option(
        "startingOffsetsByTimestamp", _READ, _SAME,
        "A time in ms for each partition, `{\"topic\": {\"0\": 1000}}`.",
    ),
    Option(
        "endingOffsetsByTimestamp", _READ, _SAME,
        "A time in ms for each partition at which `spark.read` ends.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy", _READ, _SAME,
        "`error` (the default) or `latest`: what to do if no record is that late.",
    ),
    Option(
        "failOnDataLoss", _READ, _DIFFERS,
        "Whether lost records end the query; the default is `true`. A topic that was deleted and "
        "created again under a running query counts as lost here, also after a restart.",
    ),
    Option(
        "minPartitions", _READ, _SAME,
        "The number of tasks at least; the default is one task for each partition.",
    ),
    Option(
        "maxRecordsPerPartition", _READ, _SAME,
        "The number of offsets of a task at most.",
    ),
    Option(
        "maxOffsetsPerTrigger", _READ, _SAME,
        "The number of offsets of a trigger at most; `spark.read` ignores it.",
    ),
    Option(
        "minOffsetsPerTrigger", _READ, _DIFFERS,
        "The number of offsets for which a trigger waits; the first trigger does not wait. A query "
        "with `availableNow` never waits; in Spark's connector it may end before it has read all.",
    ),
    Option(
        "maxTriggerDelay", _READ, _SAME,
        "How long `minOffsetsPerTrigger` may delay a trigger; a number with `us`, `ms`, `s`, `m`, "
        "`min`, `h` or `d`. The default is `15m`.",
    ),
    Option(
        "includeHeaders", _BOTH, _SAME,
        "Whether a read has the column `headers`. A write has no need of it: it writes the column "
        "if there is one.",
    ),
    Option(
        "groupIdPrefix", _READ, _DIFFERS,
        "The beginning of the group's name. The group only shows the query's progress; it is "
        "`<prefix>-<topics>`, and `spark-barnabas-<topics>` by default.",
    ),
    Option(
        "kafka.group.id", _READ, _DIFFERS,
        "The name of the group that shows the query's progress. The group has no members.",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs", _READ, _DIFFERS,
        "How long a task waits for records that do not come. The default is "
        "`kafka.default.api.timeout.ms`; in Spark's connector `spark.network.timeout`.",
    ),
    Option(
        "fetchOffset.numRetries", _READ, _DIFFERS, "Accepted without effect.",
        reason="the client retries for kafka.default.api.timeout.ms",
    ),
    Option(
        "fetchOffset.retryIntervalMs", _READ, _DIFFERS, "Accepted without effect.",
        reason="the client waits kafka.retry.backoff.ms between attempts",
    ),
    Option(
        "topic", _WRITE, _SAME,
        "The topic of all rows; it takes precedence over the column `topic`.",
    ),
    Option(
        "kafka.partitioner.class", _WRITE, _DIFFERS,
        "Kafka's `RoundRobinPartitioner`, `UniformStickyPartitioner` or `DefaultPartitioner` with "
        "its package. Other Java classes are refused: write the column `partition`.",
    ),
    Option(
        "kafka.transaction.timeout.ms", _WRITE, _DIFFERS,
        "How long a batch may take at most; the default is `600000`. Spark's connector writes no "
        "transactions.",
    ),
    Option(
        "kafka.auto.offset.reset", _READ, _REFUSED, "Spark's connector refuses it too.",
        reason="use startingOffsets",
    ),
    Option(
        "kafka.enable.auto.commit", _READ, _REFUSED, "Spark's connector refuses it too.",
        reason="the checkpoint holds the offsets, and they are mirrored to the group",
    ),
    Option(
        "kafka.key.deserializer", _READ, _REFUSED, "Spark's connector refuses it too.",
        reason="keys are bytes; use DataFrame operations",
    ),
    Option(
        "kafka.value.deserializer", _READ, _REFUSED, "Spark's connector refuses it too.",
        reason="values are bytes; use DataFrame operations",
    ),
    Option(
        "kafka.key.serializer", _WRITE, _REFUSED, "Spark's connector refuses it too.",
        reason="keys are strings or bytes; use DataFrame operations",
    ),
    Option(
        "kafka.value.serializer", _WRITE, _REFUSED, "Spark's connector refuses it too.",
        reason="values are strings or bytes; use DataFrame operations",
    ),
    Option(
        "kafka.interceptor.classes", _BOTH, _REFUSED, "Spark's connector refuses it in a read.",
        reason="interceptors are not supported",
    ),
    Option(
        "kafka.transactional.id", _WRITE, _REFUSED,
        "Spark's connector passes it to the producer, which then fails.",
        reason="each task has its own; use transactionalIdPrefix",
    ),
    Option(
        "kafka.*", _BOTH, _DIFFERS,
        "The keys of the client (docs/configuration.md). Keys that only Java's client needs are "
        "accepted without effect; an unknown key or a wrong value is refused.",
    ),
    Option(
        "mirrorOffsets", _READ, _ADDED,
        "`false`: no group shows the query's progress.",
    ),
    Option(
        "valueFormat", _READ, _ADDED,
        "`avro`, `protobuf` or `json`: the column `value` is a struct of the fields of Avro or "
        "Protobuf records (docs/schemas.md) or of JSON objects; `binary` is the default.",
    ),
    Option(
        "valueSchema", _READ, _ADDED,
        "The schema of the column `value`: of Avro, .proto text, or Spark's columns for `json`; "
        "`infer` finds these in a batch.",
    ),
    Option(
        "valueMessage", _READ, _ADDED,
        "For `protobuf`: the message of the schema; by default its first one.",
    ),
    Option(
        "emit.default.values", _READ, _ADDED,
        "For `protobuf`, as in `from_protobuf`: `true` gives 0, false and empty text where the "
        "default, `false`, gives null.",
    ),
    Option(
        "valueErrors", _READ, _ADDED,
        "`fail`, `null` or `drop`: what to do with a value that cannot be decoded. The default is "
        "`fail`; with `deadLetterTopic` it is `drop`.",
    ),
    Option(
        "deadLetterTopic", _READ, _ADDED,
        "The topic to which records with such a value are also sent.",
    ),
    Option("registry", _READ, _ADDED, "The URL of the schema registry, for `valueFormat`."),
    Option("registryUser", _READ, _ADDED, "The user of the schema registry."),
    Option("registryPassword", _READ, _ADDED, "The password of that user."),
    Option("registryCaFile", _READ, _ADDED, "The authorities that the registry's TLS may have."),
    Option(
        "exactlyOnce", _WRITE, _ADDED,
        "`true`: write in transactions, and fail if the brokers have none; `false`: write at least "
        "once. The default is `true` for streams if the brokers have transactions, else `false`.",
    ),
    Option(
        "transactionalIdPrefix", _WRITE, _ADDED,
        "The beginning of transactional ids and of the names of the groups that hold markers; "
        "`spark-barnabas` by default.",
    ),
)  # fmt: skip

_BY_NAME = {option.name.lower(): option for option in OPTIONS}


def named(name: str) -> Option | None:
    """Return the option with that name, in any case; for unlisted keys of the client `kafka.*`."""
    found = _BY_NAME.get(name.lower())
    if found is None and name.lower().startswith("kafka."):
        return _BY_NAME["kafka.*"]
    return found


def client_option(key: str) -> Option | None:
    """Return the listed option that sets this key of the client."""
    return _BY_NAME.get(f"kafka.{key}")
