"""Adapts the Python processes that Spark starts: errors with their message first, cheap tasks.

Spark adds the text of an error in a Python worker to its own exception. By default this text is a
traceback, so that the message comes last, after some fifteen lines. Spark reads the environment
variable SPARK_HIDE_TRACEBACK when an error has left our code. The worker ends after that error, so
the variable concerns no other error. Spark's own setting for this purpose,
`spark.sql.execution.pyspark.udf.hideTraceback.enabled`, has no effect on sources of streams, and it
hides the tracebacks of unexpected errors too.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping

T = TypeVar("T")
_HIDE = "SPARK_HIDE_TRACEBACK"
# Spark sets this variable for each of its Python workers.
_WORKER = "SPARK_BUFFER_SIZE"


def message_first(kind: type[T]) -> type[T]:
    """Let Spark show errors of a class's public methods without their tracebacks.

    This applies to errors that Barnabas itself defines, because their messages say what to do.
    Other errors keep their tracebacks.
    """
    for name, value in list(vars(kind).items()):
        if inspect.isfunction(value) and not name.startswith("_"):
            setattr(kind, name, _wrapped(value))
    return kind


def _wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def iterate(*given: Any, **named: Any) -> Iterator[Any]:
            try:
                yield from method(*given, **named)
            except Exception as error:
                hide_traceback(error)
                raise

        return iterate

    @functools.wraps(method)
    def call(*given: Any, **named: Any) -> Any:
        try:
            return method(*given, **named)
        except Exception as error:
            hide_traceback(error)
            raise

    return call


def hide_traceback(error: Exception, environment: MutableMapping[str, str] = os.environ) -> None:
    """Hide the traceback of an error of Barnabas that ends a worker of Spark."""
    if type(error).__module__.startswith("barnabas.") and _WORKER in environment:
        environment[_HIDE] = "1"


def freeze_imports() -> None:
    """Exempt loaded modules from garbage collection, in a task of Spark.

    After each task, Spark's worker collects the garbage of its whole heap. Loaded modules are
    nearly all of it, and visiting them takes ten times as long as reading a few records.
    """
    _freeze(len(sys.modules))


@lru_cache(maxsize=1)
def _freeze(_modules: int) -> None:
    # Modules that the first task imports lazily are frozen by the second task.
    gc.freeze()
