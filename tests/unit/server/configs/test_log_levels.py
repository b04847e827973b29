"""Levels of loggers, changed while the process runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from barnabas.controller.config_changes import ConfigOperation
from barnabas.controller.result import Refusal
from barnabas.protocol.errors import ErrorCode
from barnabas.server.configs.config_admin import (
    change_level,
    check_level_change,
    described_levels,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
NAME = "barnabas.server.test_log_levels"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger(NAME)
    yield made
    made.setLevel(logging.NOTSET)


def test_a_level_is_set_described_and_removed(logger: logging.Logger) -> None:
    inherited = described_levels()[NAME]
    change_level(NAME, SET, "TRACE")
    assert (logger.level, described_levels()[NAME]) == (5, "TRACE")
    change_level(NAME, SET, "FATAL")
    assert not logger.isEnabledFor(logging.ERROR)
    change_level(NAME, DELETE, None)
    assert described_levels()[NAME] == inherited


@pytest.mark.parametrize(
    ("name", "operation", "level", "error"),
    [
        ("no.such.logger", SET, "INFO", ErrorCode.INVALID_CONFIG),
        ("no.such.logger", DELETE, None, ErrorCode.INVALID_CONFIG),
        ("root", SET, "LOUD", ErrorCode.INVALID_CONFIG),
        ("root", SET, "info", ErrorCode.INVALID_CONFIG),
        ("root", SET, None, ErrorCode.INVALID_REQUEST),
        ("root", DELETE, None, ErrorCode.INVALID_REQUEST),
        ("root", APPEND, "INFO", ErrorCode.INVALID_REQUEST),
        ("root", SUBTRACT, "INFO", ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_changes_of_a_logger_are_refused(
    name: str, operation: int, level: str | None, error: ErrorCode
) -> None:
    with pytest.raises(Refusal) as raised:
        check_level_change(name, operation, level)
    assert raised.value.error_code == error
