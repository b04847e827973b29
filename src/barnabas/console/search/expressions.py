"""Filters of messages by expressions in the Common Expression Language (CEL).

The library checks names and types before it evaluates, and counts the steps of loops. A step can
still be slow: it may compare, join or match texts of a megabyte. So a child process evaluates, with
limits of time and memory, and the console's event loop stays free.
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.cli.common.units import moment_of
from barnabas.console.forms import FormError
from barnabas.console.search.filter_errors import explain, kind_in_words, plain
from barnabas.runtime.bounded_calls import BoundedCalls
from barnabas.runtime.offload import OffloadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.console.messages.record_view import DecodedRecord

EXPRESSION_CHARACTERS_MAX = 2000
# The library's own words for a place: line and column from 1, and the reason.
_PLACE = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_REASON_CHARACTERS = 300

_CHILDREN = 2
_LIMIT_S = 5.0
_MEMORY_BYTES = 1 << 30
_IDLE_S = 60.0
# Records and bytes of one call.
_CALL_RECORDS = 500
_CALL_BYTES = 4 * 1024 * 1024

# Results of an evaluation.
NO, YES, FAILED = 0, 1, 2

EXAMPLES = (
    ("value.amount > 50.0", "a number in a JSON value"),
    ('value.customer.name == "Ann" && partition in [0, 3]', "two conditions"),
    ('has(value.error) && value.error.contains("timeout")', "a member that may be missing"),
    ("value.items.exists(item, item.price > 100.0)", "any element of a list"),
    ('key.matches("(?i)^order-[0-9]+$")', "a regular expression (RE2), in any case"),
    ('"trace" in headers && headers.trace == "42"', "a header"),
    ('time > timestamp("2026-01-31T12:00:00Z")', "a time"),
    ("size > 100000 || value == null", "large records and tombstones"),
)


class ExpressionError(FormError):
    """An expression is malformed.

    Args:
        reason: What is wrong.
        line: The line of the place, from 1; 0 if the error has no place.
        column: The column of the place, from 1.
        example: A filter that is valid; "" for none.
    """

    def __init__(self, reason: str, line: int = 0, column: int = 0, example: str = "") -> None:
        super().__init__(reason)
        # A child process sends the error by pickle, which needs the arguments.
        self.args = (reason, line, column, example)
        self.reason = reason
        self.example = example
        self.line = line
        self.column = column

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}: " if self.line else ""
        return f"{place}{self.reason}"


class FilterTooSlowError(RuntimeError):
    """The evaluation of an expression exceeded a limit."""


class Verdicts(NamedTuple):
    """The results of an expression for some records."""

    # NO, YES or FAILED for each record.
    results: list[int]
    # Why the first record of those that failed did; "" if none did.
    failure: str


class _Job(NamedTuple):
    expression: str
    # The values of the variables for each record, in the order of `_VARIABLES`.
    records: list[tuple[Any, ...]]


class ExpressionFilter:
    """Evaluates expressions in child processes.

    Args:
        limit_s: How long the evaluation for one slice of records may take (seconds).
    """

    def __init__(self, limit_s: float = _LIMIT_S) -> None:
        self.limit_s = limit_s
        self._turns = asyncio.Semaphore(_CHILDREN)
        # None before the first expression.
        self._calls: BoundedCalls | None = None

    def close(self) -> None:
        """End the child processes."""
        if self._calls is not None:
            self._calls.close()

    async def check(self, expression: str) -> None:
        """Compile an expression.

        Raises:
            ExpressionError: It is malformed, or is neither true nor false.
        """
        await self._call(_Job(expression, []))

    async def evaluate(self, expression: str, records: Sequence[DecodedRecord]) -> Verdicts:
        """Evaluate an expression for records.

        Raises:
            ExpressionError: The expression is malformed.
            FilterTooSlowError: The evaluation exceeded a limit.
        """
        results: list[int] = []
        failure = ""
        for part in _parts(records):
            found = await self._call(_Job(expression, part))
            results += found.results
            failure = failure or found.failure
        return Verdicts(results, failure)

    async def _call(self, job: _Job) -> Verdicts:
        if len(job.expression) > EXPRESSION_CHARACTERS_MAX:
            raise ExpressionError(f"it has more than {EXPRESSION_CHARACTERS_MAX} characters")
        if self._calls is None:
            self._calls = BoundedCalls(asyncio.get_running_loop(), _MEMORY_BYTES, _IDLE_S)
        async with self._turns:
            try:
                found = await self._calls.run(evaluate, job, self.limit_s)
            except ModuleNotFoundError as error:
                missing = f"the package {error.name} is missing"
                text = f"{missing}: install Barnabas with its extra `console`"
                raise ExpressionError(text) from None
            except TimeoutError:
                text = f"{len(job.records)} records took more than {self.limit_s:g} s"
                raise FilterTooSlowError(f"the filter is too slow: {text}") from None
            except (OffloadError, MemoryError) as error:
                text = f"{error}" or type(error).__name__
                raise FilterTooSlowError(f"the filter needs too much memory: {text}") from None
        assert isinstance(found, Verdicts)
        return found


def _parts(records: Sequence[DecodedRecord]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the variables of the records for each call."""
    part: list[tuple[Any, ...]] = []
    size = 0
    for record in records:
        part.append(_variables(record))
        size += record.size
        if len(part) == _CALL_RECORDS or size >= _CALL_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _variables(record: DecodedRecord) -> tuple[Any, ...]:
    return (
        record.value.content,
        record.key.content,
        {name: value.content for name, value in record.headers},
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp,
        record.size,
        record.topic,
    )


# The rest of this file runs in child processes.

_VARIABLES = (
    "value", "key", "headers", "partition", "offset", "time", "time_ms", "size", "topic"
)  # fmt: skip
_TIME = _VARIABLES.index("time")


def evaluate(job: _Job) -> Verdicts:
    """Evaluate an expression; a record without a needed member, or of another type, fails.

    Raises:
        ExpressionError: The expression is malformed.
    """
    compiled = _compiled(job.expression)
    results, first_failure = [], ""
    for values in job.records:
        result, failure = _evaluated(compiled, values)
        results.append(result)
        first_failure = first_failure or failure
    return Verdicts(results, first_failure)


def _evaluated(compiled: Any, values: tuple[Any, ...]) -> tuple[int, str]:
    data = dict(zip(_VARIABLES, values, strict=True))
    try:
        data["time"] = moment_of(values[_TIME])
        found = compiled.eval(data=data).value()
    except (RuntimeError, OverflowError, TypeError, ValueError) as error:
        return FAILED, _reason(str(error))
    if isinstance(found, bool):
        return (YES if found else NO), ""
    return FAILED, _reason(found if isinstance(found, str) else f"the result is {found!r}")


@lru_cache(maxsize=100)
def _compiled(expression: str) -> Any:
    from cel_expr_python import cel

    try:
        compiled = _environment().compile(expression)
    except RuntimeError as error:
        text = str(error)
        place = _PLACE.search(text)
        if place is None:
            raise ExpressionError(_reason(text)) from None
        found = explain(place[3])
        reason = found.reason[:_REASON_CHARACTERS]
        raise ExpressionError(reason, int(place[1]), int(place[2]), found.example) from None
    kind = compiled.return_type()
    if kind not in (cel.Type.BOOL, cel.Type.DYN):
        text = f"the result must be true or false, and it is {kind_in_words(kind.name())}"
        raise ExpressionError(text, example="value.amount > 50.0")
    return compiled


@lru_cache(maxsize=1)
def _environment() -> Any:
    from cel_expr_python import cel

    anything, number, text = cel.Type.DYN, cel.Type.INT, cel.Type.STRING
    headers = cel.Type.Map(text, anything)
    kinds = (anything, anything, headers, number, number, cel.Type.TIMESTAMP, number, number, text)
    return cel.NewEnv(variables=dict(zip(_VARIABLES, kinds, strict=True)))


def _reason(text: str) -> str:
    return plain(text)[:_REASON_CHARACTERS]
