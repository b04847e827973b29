"""Reduces errors of Spark, which are pages long, to what a user can act on."""

from __future__ import annotations

import re

_PYTHON_ERROR = re.compile(r"^[\w.]*(?:Error|Exception): (.+)$", re.MULTILINE)
_NOISE = re.compile(
    r" SQLSTATE: \w+|\[STREAM_FAILED\] Query \[[^]]*\] terminated with exception: "
    r"|\([\w.$]*(?:Error|Exception)\) (?:[\w.$]*(?:Error|Exception): )?"
)
# After the sentence: the position in an expression and Spark's plan, or the text of a query.
_PLAN = re.compile(r" SQLSTATE: \w+;.*|\n== SQL ==.*|\n=== Streaming Query ===.*", re.DOTALL)
_FIRST_NAME = re.compile(r"(?:`[^`]+`\.)*`([^`]+)`|at or near '([^']+)'")
_LENGTH_MAX = 1000
_UNRESOLVED = "Failed to resolve flows in the pipeline."


def explain(error: str) -> str:
    """Return the part of an error's text that says what happened.

    An error of Python, for example of our source, is at the end of a traceback in it.
    """
    if "Traceback" in error:
        found = _PYTHON_ERROR.findall(error)
        if found:
            return _shortened(found[-1])
    return _shortened(_NOISE.sub("", _PLAN.sub("", error)))


def is_summary(error: str) -> bool:
    """Return whether an error only names flows whose own errors were reported before."""
    return error.strip().startswith(_UNRESOLVED)


def named_in(error: str) -> str | None:
    """Return the column, function or table that an error of Spark names first; None without one.

    Spark writes names in backticks, and the names that it suggests after the wrong one.
    """
    found = _FIRST_NAME.search(error)
    return None if found is None else found[1] or found[2]


def _shortened(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("at ", "JVM stacktrace"))]
    short = " ".join(lines)
    return short if len(short) <= _LENGTH_MAX else f"{short[:_LENGTH_MAX]}…"
