"""Options of `format("barnabas")`, with the names and defaults of Spark's Kafka connector.

Spark passes option names in lower case and values as strings. Options that start with `kafka.` are
passed to the client.
"""

from __future__ import annotations

import difflib
import logging
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from barnabas.client.config import ClientConfig, is_secret
from barnabas.client.errors import ClientConfigError
from barnabas.client.producer.partitioner import PARTITIONERS
from barnabas.settings.java_pattern import compile_java_pattern
from barnabas.settings.pattern import PatternError
from barnabas.spark.errors import OptionError
from barnabas.spark.option_table import (
    OPTIONS,
    Comparison,
    Purpose,
    client_option,
    named,
    parse_switch,
)
from barnabas.spark.topics.offsets import EARLIEST, Offsets, parse_offsets, parse_partitions
from barnabas.spark.topics.value_format import ValueFormat, parse_value_format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.topic_partition import TopicPartition

# Spark's replacement for secrets.
HIDDEN = "*********(redacted)"
logger = logging.getLogger(__name__)
SELECTIONS = ("subscribe", "subscribepattern", "assign")
# Names in lower case, as Spark passes them, with their usual spelling.
NAMES = {option.name.lower(): option.name for option in OPTIONS if not option.name.endswith("*")}
# Options of streams, which `spark.read` ignores as Spark's connector does.
_STREAM_NAMES = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay")
# Names that other clients of a schema registry use, without dots and without their first word
# `schema`. The names that `_hint` finds by their letters are others.
_NAMES_ELSEWHERE = {
    "registryurl": "registry",
    "registrybasicauthuserinfo": "registryuser",
    "registrysslcalocation": "registrycafile",
}
# The beginning of all transactional ids of sinks, and of their groups.
DEFAULT_PREFIX = "spark-barnabas"
# Durations as in Spark's settings; without a unit, the number is in ms.
_DURATION = re.compile(r"(\d+)(us|ms|s|m|min|h|d)?")
_UNITS_US = {
    "us": 1, "ms": 1000, "s": 1_000_000, "m": 60_000_000, "min": 60_000_000,
    "h": 3_600_000_000, "d": 86_400_000_000,
}  # fmt: skip
_INT64_MAX = (1 << 63) - 1


class ClientOptions(dict[str, str]):
    """Values by key of the client; the text form has no passwords, private keys or tokens.

    Spark pickles them for its workers, and may show them in errors and logs.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the text form of a dictionary with all secrets replaced."""
        return repr({key: HIDDEN if is_secret(key) else value for key, value in self.items()})

    __str__ = __repr__


class BoundKind(Enum):
    """The forms in which an option gives the start or end of reading."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMP = "timestamp"
    TIMESTAMPS = "timestamps"


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """Start or end of reading, as given by an option."""

    kind: BoundKind
    # By partition: offsets for OFFSETS, ms since 1970 for TIMESTAMPS.
    numbers: Offsets = field(default_factory=dict)
    # For TIMESTAMP: ms since 1970.
    timestamp: int = -1
    # Name of the option, for error messages.
    option: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions to read; exactly one of the three fields is set."""

    topics: tuple[str, ...] | None = None
    # In Java's syntax; it is searched for in the names of topics.
    pattern: str | None = None
    # Empty if `assign` names no partition: then nothing is read, as by Spark's connector.
    partitions: tuple[TopicPartition, ...] | None = None

    @property
    def text(self) -> str:
        """A short text of the selection, for names and errors."""
        if self.pattern is not None:
            return self.pattern
        return ",".join(self.named_topics)

    @property
    def named_topics(self) -> list[str]:
        """The sorted topics that the options name; empty for a pattern."""
        return sorted({*(self.topics or ()), *(tp.topic for tp in self.partitions or ())})


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The checked options of a read; plain values, because Spark pickles them for its workers."""

    client: ClientOptions
    selection: Selection
    starting: OffsetBound
    ending: OffsetBound
    group_id: str
    # If no record is as late as a starting timestamp: True starts at the end, False fails.
    latest_if_no_match: bool = False
    fail_on_data_loss: bool = True
    include_headers: bool = False
    mirror_offsets: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    # How values are decoded; None for bytes.
    value_format: ValueFormat | None = None
    # How long a task waits for missing records, in ms; None for the client's default.
    poll_timeout_ms: int | None = None
    # Options without effect, for the log of a query that starts.
    warnings: tuple[str, ...] = ()

    def log_warnings(self) -> None:
        """Log the options without effect."""
        for warning in self.warnings:
            logger.warning("%s", warning)


def parse_source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Check the options of `spark.read` or `spark.readStream`.

    Raises:
        OptionError: an option is wrong; names the option, its value and the valid values.
    """
    options = _checked_names(given, Purpose.READ)
    selection = _selection(options)
    starting = _bound(options, "starting", BoundKind.LATEST if streaming else BoundKind.EARLIEST)
    ending = _bound(options, "ending", BoundKind.LATEST)
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError(
            f"startingOffsetsByTimestampStrategy={strategy!r}; expected 'error' or 'latest'"
        )
    minimum = _number(options, "minoffsetspertrigger")
    maximum = _number(options, "maxoffsetspertrigger")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise OptionError(
            f"minOffsetsPerTrigger={minimum} is more than maxOffsetsPerTrigger={maximum}"
        )
    parsed = SourceOptions(
        client=_client_options(options),
        selection=selection,
        starting=starting,
        ending=ending,
        group_id=_group_id(options, selection),
        latest_if_no_match=strategy == "latest",
        fail_on_data_loss=_boolean(options, "failondataloss", default=True),
        include_headers=_boolean(options, "includeheaders", default=False),
        mirror_offsets=_boolean(options, "mirroroffsets", default=True),
        min_partitions=_number(options, "minpartitions"),
        max_records_per_partition=_number(options, "maxrecordsperpartition"),
        max_offsets_per_trigger=maximum,
        min_offsets_per_trigger=minimum,
        max_trigger_delay_ms=_duration(options, "maxtriggerdelay", 15 * 60_000),
        value_format=parse_value_format(
            options, tuple(selection.named_topics), streaming=streaming
        ),
        poll_timeout_ms=_number(options, "kafkaconsumer.polltimeoutms"),
        warnings=_warnings(options, selection, streaming=streaming),
    )
    # After all values are checked, so that the error of a wrong value is the same for both.
    _check_bounds(options, starting, ending, streaming=streaming)
    return parsed


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of a write."""

    client: ClientOptions
    # The topic of all rows; None means the `topic` column of each row.
    topic: str | None
    # Whether to write in transactions; None for a stream means: if the brokers have them.
    exactly_once: bool | None = None
    transactional_id_prefix: str = DEFAULT_PREFIX


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check the options of `df.write` or `df.writeStream`.

    Raises:
        OptionError: an option is wrong; names the option, its value and the valid values.
    """
    # Spark adds paths and checkpoint locations to the options of a stream's sink.
    own = ("path", "checkpointlocation", "queryname")
    chosen = {key: value for key, value in given.items() if key.lower() not in own}
    options = _checked_names(chosen, Purpose.WRITE)
    # As in Spark's connector, a `headers` column is written even without this option.
    _boolean(options, "includeheaders", default=False)
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("topic is empty: give the topic to write to")
    prefix = options.get("transactionalidprefix", DEFAULT_PREFIX).strip()
    if not prefix:
        raise OptionError("transactionalIdPrefix is empty: leave it out, or give a name")
    exactly_once = None
    if "exactlyonce" in options:
        exactly_once = _boolean(options, "exactlyonce", default=False)
    client = _client_options(options)
    partitioner = client.get("partitioner.class", "")
    if partitioner not in PARTITIONERS:
        raise OptionError(
            f"kafka.partitioner.class={partitioner} is no partitioner of Kafka's own, and classes "
            "of Java cannot be used: write the column partition"
        )
    return SinkOptions(client, topic, exactly_once, prefix)


def _checked_names(given: Mapping[str, str], purpose: Purpose) -> dict[str, str]:
    """Check the names of the options; return them with names in lower case.

    Raises:
        OptionError: an option is unknown, or is only valid for the other purpose.
    """
    options = {key.lower(): str(value) for key, value in given.items()}
    for key in options:
        option = named(key)
        if option is None:
            raise OptionError(f"unknown option {key}{_hint(key, purpose)}")
        if not option.purpose.includes(purpose) and not key.startswith("kafka."):
            other = "writing" if purpose is Purpose.READ else "reading"
            raise OptionError(
                f"option {option.name} is for {other}; it has no meaning in a {purpose.value}"
            )
    return options


def _hint(key: str, purpose: Purpose) -> str:
    names = [name for name in NAMES if _is_for(name, purpose)]
    known = _NAMES_ELSEWHERE.get(key.removeprefix("schema").lstrip(".").replace(".", ""))
    if known in names:
        return f"; did you mean {NAMES[known]}?"
    close = difflib.get_close_matches(key, names, n=1)
    if close:
        return f"; did you mean {NAMES[close[0]]}?"
    return "" if key.startswith("kafka") else "; options of the client start with 'kafka.'"


def _is_for(name: str, purpose: Purpose) -> bool:
    option = named(name)
    return option is not None and option.purpose.includes(purpose)


def _client_options(options: Mapping[str, str]) -> ClientOptions:
    client = ClientOptions()
    for key, value in options.items():
        if not key.startswith("kafka."):
            continue
        name = key.removeprefix("kafka.")
        option = client_option(name)
        if option is not None and option.comparison is Comparison.REFUSED:
            raise OptionError(f"{key} cannot be set: {option.reason}")
        if name != "group.id":
            client[name] = value
    if not client.get("bootstrap.servers", "").strip():
        raise OptionError(
            "kafka.bootstrap.servers is missing: give HOST:PORT[,HOST:PORT...] of the brokers"
        )
    try:
        ClientConfig.parse(client)
    except ClientConfigError as error:
        raise OptionError(f"an option kafka.*: {error}") from None
    return client


def _warnings(
    options: Mapping[str, str], selection: Selection, *, streaming: bool
) -> tuple[str, ...]:
    """Return a sentence for each option that is accepted and has no effect."""
    found = []
    for key in options:
        option = named(key)
        if option is not None and option.reason:
            found.append(f"Option {option.name} has no effect: {option.reason}")
        if key in _STREAM_NAMES and not streaming:
            found.append(f"Option {NAMES[key]} has no effect: it is for spark.readStream")
    if "groupidprefix" in options and "kafka.group.id" in options:
        found.append("Option groupIdPrefix has no effect: kafka.group.id names the group")
    if selection.partitions == ():
        found.append(f"Option assign={options['assign']} names no partition: nothing is read")
    return tuple(found)


def _selection(options: Mapping[str, str]) -> Selection:
    given = [name for name in SELECTIONS if name in options]
    if len(given) != 1:
        found = " and ".join(NAMES[name] for name in given) or "none"
        raise OptionError(f"set exactly one of subscribe, subscribePattern and assign; got {found}")
    value = options[given[0]].strip()
    if not value:
        raise OptionError(f"{NAMES[given[0]]} is empty")
    if given[0] == "assign":
        return Selection(partitions=tuple(parse_partitions("assign", value)))
    if given[0] == "subscribepattern":
        try:
            compile_java_pattern(value)
        except PatternError as problem:
            raise OptionError(
                f"subscribePattern={value!r} is not a valid pattern of Java: {problem}"
            ) from None
        return Selection(pattern=value)
    topics = sorted({topic.strip() for topic in value.split(",") if topic.strip()})
    if not topics:
        raise OptionError("subscribe names no topic")
    return Selection(topics=tuple(topics))


def _bound(options: Mapping[str, str], side: str, default: BoundKind) -> OffsetBound:
    """Return the start or end; a single time overrides times, and times override offsets."""
    name = f"{side}timestamp"
    if name in options:
        return OffsetBound(
            BoundKind.TIMESTAMP,
            timestamp=_number(options, name, lowest=0) or 0,
            option=NAMES[name],
        )
    name = f"{side}offsetsbytimestamp"
    if name in options:
        times = parse_offsets(NAMES[name], options[name], lowest=0)
        return OffsetBound(BoundKind.TIMESTAMPS, numbers=times, option=NAMES[name])
    name = f"{side}offsets"
    text = options.get(name, default.value).strip()
    if text.lower() in ("earliest", "latest"):
        return OffsetBound(BoundKind(text.lower()), option=NAMES[name])
    if not text.startswith("{"):
        raise OptionError(
            f"{NAMES[name]}={text!r}; expected 'earliest', 'latest' or "
            '{"topic": {"0": 23}} with -2 for earliest and -1 for latest'
        )
    numbers = parse_offsets(NAMES[name], text, lowest=EARLIEST)
    return OffsetBound(BoundKind.OFFSETS, numbers=numbers, option=NAMES[name])


def _check_bounds(
    options: Mapping[str, str], starting: OffsetBound, ending: OffsetBound, *, streaming: bool
) -> None:
    if streaming:
        for name in ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"):
            if name in options:
                raise OptionError(f"{NAMES[name]} is for spark.read; a stream has no end")
        return
    if starting.kind is BoundKind.LATEST or -1 in _offsets_of(starting):
        raise OptionError("startingOffsets cannot be latest (-1) in spark.read: nothing follows it")
    if ending.kind is BoundKind.EARLIEST or EARLIEST in _offsets_of(ending):
        raise OptionError("endingOffsets cannot be earliest (-2): nothing lies before it")


def _offsets_of(bound: OffsetBound) -> list[int]:
    return list(bound.numbers.values()) if bound.kind is BoundKind.OFFSETS else []


def _group_id(options: Mapping[str, str], selection: Selection) -> str:
    """Return the name of the consumer group that shows the query's progress.

    Spark's connector generates a new name for each start. Lag tools need a stable name.
    """
    given = options.get("kafka.group.id", "").strip()
    if given:
        return given
    prefix = options.get("groupidprefix", "").strip() or "spark-barnabas"
    return f"{prefix}-{selection.text}"


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name)
    return default if text is None else parse_switch(NAMES[name], text)


def _number(options: Mapping[str, str], name: str, lowest: int = 1) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = lowest - 1
    if not lowest <= number <= _INT64_MAX:
        raise OptionError(f"{NAMES[name]}={text!r} is not a whole number of at least {lowest}")
    return number


def _duration(options: Mapping[str, str], name: str, default_ms: int) -> int:
    text = options.get(name)
    if text is None:
        return default_ms
    match = _DURATION.fullmatch(text.strip().lower())
    duration_ms = int(match[1]) * _UNITS_US[match[2] or "ms"] // 1000 if match else _INT64_MAX + 1
    if duration_ms > _INT64_MAX:
        raise OptionError(
            f"{NAMES[name]}={text!r} is not a duration such as '30s', '15min' or '500ms'; the "
            "units are us, ms, s, m, min, h and d"
        )
    return duration_ms
