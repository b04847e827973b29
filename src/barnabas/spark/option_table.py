"""All options of the three formats `barnabas`, `barnabas_delta` and `barnabas_iceberg`.

This is the only list of the names. The sources and sinks check names against it, `barnabas spark
check` reports from it how an option differs from that of Spark's `format("kafka")`, and
`tools/document_spark_options.py` writes the tables in docs/spark.md and docs/tables.md. Spark
imports this module in every session while it looks for data sources, so it imports nothing large.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Spark passes its own options of the query too.
_SPARK_OPTIONS = frozenset({"checkpointlocation", "queryname"})
_SCHEME = "file:"


class Comparison(Enum):
    """The behavior of an option of Spark's connector here."""

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


@dataclass(frozen=True, slots=True)
class TableOption:
    """One option, with its usual spelling; options are compared in lower case."""

    # With `.*` at its end, the beginning of many names.
    name: str
    # For people.
    default: str
    sentence: str


DELTA_OPTIONS = (
    TableOption(
        "path", "must be set",
        "The table: a directory (also `file:///data/flights`), or an address such as "
        "`s3://bucket/table`. `.start(path)` and `.save(path)` set it.",
    ),
    TableOption(
        "partitionColumns", "none, or those of the table",
        "The columns that a new table is partitioned by, separated by commas (docs/tables.md). A "
        "table with other partitions is refused.",
    ),
    TableOption(
        "mergeSchema", "`false`",
        "`true`: add columns and fields that only the rows have, and store NULL for those that "
        "rows lack.",
    ),
    TableOption(
        "overwriteSchema", "`false`",
        "`true`, with mode `overwrite` or output mode `complete`: replace the columns together "
        "with the rows.",
    ),
    TableOption(
        "storage.*", "none",
        "Settings of the object store, for instance `storage.aws_region`.",
    ),
)  # fmt: skip
ICEBERG_OPTIONS = (
    TableOption(
        "table", "must be set",
        "Namespace and name of the table: `lake.flights`. `.start(table)` and `.save(table)` do "
        "the same.",
    ),
    TableOption("path", "none", "The table, if `table` is not set: `.start(table)` sets it."),
    TableOption(
        "catalog.*", "those of the configuration",
        "Properties of the catalog, as `pyiceberg` defines them: `catalog.uri`, "
        "`catalog.warehouse`, `catalog.token`, `catalog.s3.region`.",
    ),
    TableOption(
        "catalog", "`default`",
        "The name of the catalog, for `pyiceberg`'s configuration (`.pyiceberg.yaml`, "
        "`PYICEBERG_CATALOG__…`).",
    ),
    TableOption(
        "partitionColumns", "none, or those of the table",
        "What a new table is partitioned by, separated by commas: `day(time), bucket(16, id)`. A "
        "table with other partitions is refused.",
    ),
    TableOption(
        "mergeSchema", "`false`",
        "`true`: add columns and fields that only the rows have, widen types, and store NULL for "
        "columns and fields that rows lack.",
    ),
)  # fmt: skip
UPSERT_OPTIONS = (
    TableOption(
        "mergeKeys", "none: rows are added",
        "The columns that identify a row: `id`, or `id,region`.",
    ),
    TableOption(
        "sequenceColumn", "none",
        "A column of which a higher value is newer: an offset, a position in a log, a time.",
    ),
    TableOption(
        "deleteWhen", "none",
        "A condition: the keys of rows that meet it are deleted.",
    ),
    TableOption("exceptColumns", "none", "Columns of the rows that the table does not have."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """The options that the user set, without Spark's own."""

    # By name in lower case, without spaces around the values.
    named: dict[str, str]
    # Options whose beginning is listed, without the beginning.
    prefixed: dict[str, str]


def given_options(options: Mapping[str, str], listed: Sequence[TableOption]) -> GivenOptions:
    """Sort the options of a sink; Spark passes their names in lower case.

    Args:
        options: what the user set, without the options of upserts.
        listed: the options of the sink, of which one is a beginning of names.

    Raises:
        OptionError: an option is not listed.
    """
    [prefix] = [each.name.removesuffix("*") for each in listed if each.name.endswith("*")]
    names = {each.name.lower() for each in listed}
    given = GivenOptions({}, {})
    for name, value in options.items():
        lowered = name.lower()
        if lowered.startswith(prefix):
            given.prefixed[lowered.removeprefix(prefix)] = value
        elif lowered in names:
            given.named[lowered] = value.strip()
        elif lowered not in _SPARK_OPTIONS:
            known = ", ".join(each.name for each in listed)
            upserts = ", ".join(each.name for each in UPSERT_OPTIONS)
            raise OptionError(
                f"unknown option {name}: there are {known}, and {upserts} for upserts"
            )
    return given


def absolute_address(address: str) -> str:
    """Return a local directory as an absolute path, and other addresses unchanged.

    `file:///data/flights`, `file:/data/flights` and `/data/flights` are the same directory, as in
    Spark. Percent signs have no meaning there.

    Raises:
        OptionError: a URL of scheme file has a host, or its path is relative.
    """
    path = address
    if address.lower().startswith(_SCHEME):
        path = address[len(_SCHEME) :]
        if path.startswith("//"):
            host, slash, rest = path[2:].partition("/")
            if host not in {"", "localhost"}:
                raise OptionError(
                    f"{address} names the host {host}: write file:///{host}/{rest} for the local"
                    f" directory /{host}/{rest}"
                )
            path = slash + rest
        if not path.startswith("/"):
            raise OptionError(f"{address} is a relative path: write file:///directory")
    if "://" in path:
        return path
    # Workers may have another working directory.
    return os.path.abspath(path)  # noqa: PTH100 - keeps links


def parse_switch(name: str, text: str) -> bool:
    """Return the value of an option that is true or false.

    Raises:
        OptionError: the text is neither.
    """
    if text.lower() not in {"true", "false"}:
        raise OptionError(f"{name}={text!r} is neither true nor false")
    return text.lower() == "true"


def other_partitions(table: str, found: Sequence[str], wanted: Sequence[str]) -> str:
    """Return the message for a table that is not partitioned as the option partitionColumns says.

    Args:
        table: name or address of the table.
        found: what the table is partitioned by.
        wanted: the terms of the option.
    """
    now, terms = ", ".join(found), ", ".join(wanted)
    described = f"is partitioned by ({now})" if found else "has no partitions"
    advice = f"leave it out, or set it to {now}" if found else "leave it out"
    return (
        f"{table} {described}, and the option partitionColumns is ({terms}): {advice}. Nothing was"
        " written. The partitions of a table stay, also when its rows or columns are replaced; for"
        " others, write a new table"
    )
