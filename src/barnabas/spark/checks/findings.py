"""What the options of one read or write mean with `format("barnabas")`.

The values are checked by the parser of the source and sink, and compared by the table of options.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from barnabas.spark.checks.job import Kind
from barnabas.spark.errors import OptionError
from barnabas.spark.option_table import Comparison, named
from barnabas.spark.options import SELECTIONS, parse_sink_options, parse_source_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.spark.checks.job import TopicUse
    from barnabas.spark.option_table import Option

__all__ = ["Finding", "Verdict", "findings"]

# Stand for values that are not known, where the parser requires a value.
_SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
_TOPICS = {"subscribe": "topic"}
_REFUSED_TRIGGERS = ("realTime", "continuous")


class Verdict(Enum):
    """How an option of the job behaves here, compared with Spark's connector."""

    SAME = "same"
    DIFFERS = "differs"
    REFUSED = "refused"
    ADDED = "added"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    # The option, or the call that is refused.
    name: str
    verdict: Verdict
    sentence: str


def findings(use: TopicUse) -> list[Finding]:
    """Return a finding for each option of a use, then those of the use as a whole."""
    if use.format is None:
        return [Finding("format", Verdict.UNCHECKED, "The value is not known before the job runs.")]
    result = [_of_option(use, name, value) for name, value in use.options.items()]
    if not any(each.verdict is Verdict.REFUSED for each in result):
        known = {name: value for name, value in use.options.items() if value is not None}
        problem = _problem(use, known | _missing(use))
        if problem:
            result.append(Finding("options", Verdict.REFUSED, problem))
    if use.has_unknown_options:
        sentence = "There are options whose names are not known before the job runs."
        result.append(Finding("options", Verdict.UNCHECKED, sentence))
    return result + _of_calls(use)


def _of_option(use: TopicUse, name: str, value: str | None) -> Finding:
    option = named(name)
    problem = ""
    if value is None:
        if option is None and not _is_of_spark(use, name):
            problem = _problem(use, {name: ""})
    elif _is_checked_alone(option):
        problem = _problem(use, _stand_ins(use, name) | {name: value})
    if problem:
        return Finding(name, Verdict.REFUSED, problem)
    if value is None:
        return Finding(name, Verdict.UNCHECKED, "The value is not known before the job runs.")
    if option is None:
        return Finding(name, Verdict.SAME, "An option of Spark itself.")
    return Finding(name, Verdict(option.comparison.value), option.sentence)


def _is_checked_alone(option: Option | None) -> bool:
    """Return whether an option can be checked without the others.

    The keys of the client depend on each other, and so do the options of the column `value`.
    """
    if option is None or option.comparison is Comparison.REFUSED:
        return True
    return not option.name.startswith(("kafka.", "value", "registry"))


def _stand_ins(use: TopicUse, name: str) -> dict[str, str]:
    """Return values for the options that the parser requires beside the one with this name."""
    is_selection = name.lower() in SELECTIONS
    return _SERVERS | (_TOPICS if use.kind.is_read and not is_selection else {})


def _missing(use: TopicUse) -> dict[str, str]:
    """Return stand-ins for required options that the job may give when it runs."""
    given = {name.lower(): value for name, value in use.options.items()}
    result: dict[str, str] = {}
    if given.get("kafka.bootstrap.servers", "") is None or (
        use.has_unknown_options and "kafka.bootstrap.servers" not in given
    ):
        result |= _SERVERS
    selections = [given[name] for name in SELECTIONS if name in given]
    if use.kind.is_read and (selections == [None] or (use.has_unknown_options and not selections)):
        result |= _TOPICS
    return result


def _problem(use: TopicUse, options: Mapping[str, str]) -> str:
    try:
        if use.kind.is_read:
            parse_source_options(options, streaming=use.kind is Kind.READ_STREAM)
        else:
            parse_sink_options(options)
    except OptionError as error:
        return str(error)
    return ""


def _is_of_spark(use: TopicUse, name: str) -> bool:
    """Return whether Spark itself has this option of a write."""
    return not use.kind.is_read and not _problem(use, _SERVERS | {name: "x"})


def _of_calls(use: TopicUse) -> list[Finding]:
    """Return what Spark does not allow for sources and sinks in Python."""
    result = []
    if use.kind is Kind.WRITE and use.mode is not None and use.mode.lower() != "append":
        sentence = "Spark refuses its default mode for sinks in Python: add .mode('append')."
        if use.mode:
            sentence = "A topic takes rows with .mode('append') only."
        result.append(Finding("mode", Verdict.REFUSED, sentence))
    if use.trigger in _REFUSED_TRIGGERS:
        sentence = "Spark has no such trigger for sources and sinks in Python."
        result.append(Finding(f"trigger({use.trigger}=...)", Verdict.REFUSED, sentence))
    return result
