"""Finds reads and writes of topics in the source text of a job, without running it.

A read or write is a chain of calls such as `spark.read.format("kafka").option("subscribe", "t")`.
Chains may continue in a later statement by a variable. Values are taken if they are literals, or
variables that one statement of the file sets to a literal. Other values stay unknown.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["JobError", "Kind", "TopicUse", "uses_in"]

_FORMATS = ("kafka", "barnabas")
# Calls that take the format and options too, and finish a chain.
_FINISHING = ("load", "save", "start", "toTable")
_TRUTH = {True: "true", False: "false"}


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
class TopicUse:
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


def uses_in(text: str) -> list[TopicUse]:
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
        self._variables: dict[str, TopicUse] = {}
        self._found: list[TopicUse] = []
        self._seen: set[ast.expr] = set()

    def uses(self) -> list[TopicUse]:
        for node in _in_order(self._tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                use = self._chain(node.value)
                if use is not None and isinstance(node.targets[0], ast.Name):
                    self._variables[node.targets[0].id] = use
            elif isinstance(node, ast.expr):
                self._chain(node)
        return [use for use in self._found if use.format is None or use.format in _FORMATS]

    def _chain(self, node: ast.expr) -> TopicUse | None:
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

    def _begun(self, base: ast.expr) -> TopicUse | None:
        if isinstance(base, ast.Name):
            return self._variables.get(base.id)
        if not isinstance(base, ast.Attribute) or base in self._seen:
            return None
        kinds = {kind.value: kind for kind in Kind}
        if base.attr not in kinds:
            return None
        self._seen.add(base)
        use = TopicUse(kinds[base.attr], base.end_lineno or base.lineno)
        self._found.append(use)
        return use

    def _apply(self, use: TopicUse, name: str, call: ast.Call) -> None:
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

    def _add_named(self, use: TopicUse, call: ast.Call) -> None:
        for keyword in call.keywords:
            if keyword.arg is None:
                self._add_all(use, keyword.value)
            elif keyword.arg == "format":
                use.format = self._value(keyword.value)
            elif keyword.arg == "mode":
                use.mode = self._value(keyword.value)
            elif keyword.arg not in ("path", "schema", "outputMode", "partitionBy", "queryName"):
                use.options[keyword.arg] = self._value(keyword.value)

    def _add_all(self, use: TopicUse, given: ast.expr) -> None:
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
