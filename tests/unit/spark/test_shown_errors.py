"""Errors of Barnabas reach the user without the traceback of Spark's worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.client.errors import UnknownTopicError
from barnabas.spark.errors import OptionError
from barnabas.spark.worker_process import hide_traceback, message_first

HIDDEN = {"SPARK_BUFFER_SIZE": "65536", "SPARK_HIDE_TRACEBACK": "1"}


@pytest.mark.parametrize("error", [OptionError("topic is empty"), UnknownTopicError("t")])
def test_only_the_message_of_our_errors_is_shown(error: Exception) -> None:
    environment = {"SPARK_BUFFER_SIZE": "65536"}
    hide_traceback(error, environment)
    assert environment == HIDDEN


@pytest.mark.parametrize(
    ("error", "environment"),
    [
        (TypeError("a bug"), {"SPARK_BUFFER_SIZE": "65536"}),
        (OptionError("outside of a worker of Spark"), {}),
    ],
)
def test_other_errors_and_processes_keep_their_tracebacks(
    error: Exception, environment: dict[str, str]
) -> None:
    before = dict(environment)
    hide_traceback(error, environment)
    assert environment == before


@message_first
class Reader:
    def read(self, fails: bool) -> Iterator[int]:
        yield 1
        if fails:
            raise OptionError("late")

    def partitions(self, fails: bool) -> int:
        if fails:
            raise OptionError("early")
        return 2


@pytest.mark.parametrize("name", ["read", "partitions"])
def test_methods_and_iterators_hide_the_tracebacks_of_their_errors(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Exception] = []
    monkeypatch.setattr("barnabas.spark.worker_process.hide_traceback", seen.append)
    reader = Reader()
    assert (list(reader.read(False)), reader.partitions(False)) == ([1], 2)
    assert seen == []
    method = getattr(reader, name)
    with pytest.raises(OptionError) as caught:
        list(method(True))
    assert seen == [caught.value]
