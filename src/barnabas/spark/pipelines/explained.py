"""Reduces errors of Spark, which are pages long, to what a user can act on."""

from __future__ import annotations

import re

_PYTHON_ERROR = re.compile(r"^[\w.]*(?:Error|Exception): (.+)$", re.MULTILINE)
_NOISE = re.compile(
    r" SQLSTATE: \w+|\[STREAM_FAILED\] Query \[[^]]*\] terminated with exception: |;$"
)
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
    return _shortened(_NOISE.sub("", error.partition("\n=== Streaming Query ===")[0]))


def is_summary(error: str) -> bool:
    """Return whether an error only names flows whose own errors were reported before."""
    return error.strip().startswith(_UNRESOLVED)


def _shortened(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("at ", "JVM stacktrace"))]
    short = " ".join(lines)
    return short if len(short) <= _LENGTH_MAX else f"{short[:_LENGTH_MAX]}…"
