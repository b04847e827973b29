"""Makes Spark show the message of an error in the first line.

Spark adds the text of an error in a Python worker to its own exception. By default this text is a
traceback, so that the message comes last, after some fifteen lines. Spark reads the environment
variable SPARK_HIDE_TRACEBACK when an error has left our code. The worker ends after that error, so
the variable concerns no other error. Spark's own setting for this purpose,
`spark.sql.execution.pyspark.udf.hideTraceback.enabled`, has no effect on sources of streams, and it
hides the tracebacks of unexpected errors too.
"""

from __future__ import annotations

import functools
import inspect
import os
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping

__all__ = ["message_first"]

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
