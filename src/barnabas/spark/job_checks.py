"""Compares the topics' options of a job for Spark's connector with those of `format("barnabas")`.

The job does not run: its reads and writes are found in its source text. A read or write is a chain
of calls such as `spark.read.format("kafka").option("subscribe", "t")`. Chains may continue in a
later statement by a variable. Values are taken if they are literals, or variables that one
statement of the file sets to a literal. Other values stay unknown.

The parser of the source and sink checks the values, and the table of options compares them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from barnabas.spark.errors import OptionError
from barnabas.spark.option_table import Comparison, named
from barnabas.spark.topics.options import SELECTIONS, parse_sink_options, parse_source_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.spark.option_table import Option

_FORMATS = ("kafka", "barnabas")
# Calls that take the format and options too, and finish a chain.
_FINISHING = ("load", "save", "start", "toTable")
_TRUTH = {True: "true", False: "false"}
# Stand for values that are not known, where the parser requires a value.
_SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
_TOPICS = {"subscribe": "topic"}
_REFUSED_TRIGGERS = ("realTime", "continuous")


class JobError(ValueError):
    """A file has no options that can be checked."""


class Kind(Enum):
    """The property of a session or DataFrame with which a chain begins."""

    READ = "read"
    READ_STREAM = "readStream"
    WRITE = "write"
    WRITE_STREAM = "writeStream"

    @property
    def is_read(self) -> bool:
        """Whether topics are read."""
        return self in (Kind.READ, Kind.READ_STREAM)


@dataclass(slots=True)
class JobUse:
    """One read or write of topics."""

    kind: Kind
    line: int
    # By name, as it is spelled; None for a value that is not known before the job runs.
    options: dict[str, str | None] = field(default_factory=dict)
    # Whether there are options whose names are not known, as of `.options(**given)`.
    has_unknown_options: bool = False
    # The argument of `mode`; None if it is not known, "" without a call.
    mode: str | None = ""
    # The kind of trigger: realTime, continuous, ...; "" without a call.
    trigger: str = ""
    # None if it is not known, "" without a call.
    format: str | None = ""


def uses_in(text: str) -> list[JobUse]:
    """Return the reads and writes of `format("kafka")` and `format("barnabas")`, in their order.

    A use whose format is not known is among them.

    Raises:
        JobError: the text is not Python.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise JobError(f"this is not Python: {error}") from None
    return _Job(tree).uses()


class _Job:
    """One pass over the statements of a file."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._values = _constants(tree)
        # The chain that each variable holds, and all chains.
        self._variables: dict[str, JobUse] = {}
        self._found: list[JobUse] = []
        self._seen: set[ast.expr] = set()

    def uses(self) -> list[JobUse]:
        for node in _in_order(self._tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                use = self._chain(node.value)
                if use is not None and isinstance(node.targets[0], ast.Name):
                    self._variables[node.targets[0].id] = use
            elif isinstance(node, ast.expr):
                self._chain(node)
        return [use for use in self._found if use.format is None or use.format in _FORMATS]

    def _chain(self, node: ast.expr) -> JobUse | None:
        """Return the use that a chain of calls describes; None for another expression."""
        if node in self._seen:
            return None
        calls: list[tuple[str, ast.Call]] = []
        below = node
        while isinstance(below, ast.Call) and isinstance(below.func, ast.Attribute):
            self._seen.add(below)
            calls.append((below.func.attr, below))
            below = below.func.value
        use = self._begun(below)
        if use is not None:
            for name, call in reversed(calls):
                self._apply(use, name, call)
        return use

    def _begun(self, base: ast.expr) -> JobUse | None:
        if isinstance(base, ast.Name):
            return self._variables.get(base.id)
        if not isinstance(base, ast.Attribute) or base in self._seen:
            return None
        kinds = {kind.value: kind for kind in Kind}
        if base.attr not in kinds:
            return None
        self._seen.add(base)
        use = JobUse(kinds[base.attr], base.end_lineno or base.lineno)
        self._found.append(use)
        return use

    def _apply(self, use: JobUse, name: str, call: ast.Call) -> None:
        arguments = call.args
        if name == "format" and arguments:
            use.format = self._value(arguments[0])
        elif name == "option" and arguments:
            given = [*arguments[1:], *(each.value for each in call.keywords)]
            key = self._value(arguments[0])
            if key is None:
                use.has_unknown_options = True
            else:
                use.options[key] = self._value(given[0]) if given else None
        elif name == "options" or name in _FINISHING:
            self._add_named(use, call)
        elif name == "mode" and arguments:
            use.mode = self._value(arguments[0])
        elif name == "trigger" and call.keywords:
            use.trigger = call.keywords[0].arg or ""

    def _add_named(self, use: JobUse, call: ast.Call) -> None:
        for keyword in call.keywords:
            if keyword.arg is None:
                self._add_all(use, keyword.value)
            elif keyword.arg == "format":
                use.format = self._value(keyword.value)
            elif keyword.arg == "mode":
                use.mode = self._value(keyword.value)
            elif keyword.arg not in ("path", "schema", "outputMode", "partitionBy", "queryName"):
                use.options[keyword.arg] = self._value(keyword.value)

    def _add_all(self, use: JobUse, given: ast.expr) -> None:
        """Add the options of a dictionary."""
        if isinstance(given, ast.Name):
            given = self._values.get(given.id, given)
        if not isinstance(given, ast.Dict):
            use.has_unknown_options = True
            return
        for key, value in zip(given.keys, given.values, strict=True):
            name = None if key is None else self._value(key)
            if name is not None:
                use.options[name] = self._value(value)
            elif key is None:
                self._add_all(use, value)
            else:
                use.has_unknown_options = True

    def _value(self, node: ast.expr) -> str | None:
        """Return the text that Spark gets for a value; None if it is not known."""
        if isinstance(node, ast.Name):
            node = self._values.get(node.id, node)
        if not isinstance(node, ast.Constant) or node.value is None:
            return None
        if isinstance(node.value, bool):
            return _TRUTH[node.value]
        return str(node.value)


def _constants(tree: ast.Module) -> Mapping[str, ast.expr]:
    """Return the variables that are set once in the file, to a literal or a dictionary."""
    stored = [
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    ]
    stored += [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
    return {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and stored.count(node.targets[0].id) == 1
        and isinstance(node.value, ast.Constant | ast.Dict)
    }


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes, each before the nodes in it, in the order of the text."""
    yield node
    for below in ast.iter_child_nodes(node):
        yield from _in_order(below)


class Verdict(Enum):
    """The behavior of an option of the job here, compared with Spark's connector."""

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


def findings(use: JobUse) -> list[Finding]:
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


def _of_option(use: JobUse, name: str, value: str | None) -> Finding:
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


def _stand_ins(use: JobUse, name: str) -> dict[str, str]:
    """Return values for the options that the parser requires beside the one with this name."""
    is_selection = name.lower() in SELECTIONS
    return _SERVERS | (_TOPICS if use.kind.is_read and not is_selection else {})


def _missing(use: JobUse) -> dict[str, str]:
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


def _problem(use: JobUse, options: Mapping[str, str]) -> str:
    try:
        if use.kind.is_read:
            parse_source_options(options, streaming=use.kind is Kind.READ_STREAM)
        else:
            parse_sink_options(options)
    except OptionError as error:
        return str(error)
    return ""


def _is_of_spark(use: JobUse, name: str) -> bool:
    """Return whether Spark itself has this option of a write."""
    return not use.kind.is_read and not _problem(use, _SERVERS | {name: "x"})


def _of_calls(use: JobUse) -> list[Finding]:
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
