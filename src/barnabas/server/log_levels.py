"""The levels of this process's loggers, read and changed while it runs (KIP-412, resource type 8).

Kafka's loggers are named after classes, ours after modules; `root` is the one above all. A level is
this process's own: it is not in the metadata log and is gone after a restart, as with Kafka.
"""

from __future__ import annotations

import logging

from barnabas.controller.config_operations import ConfigOperation
from barnabas.controller.result import Refusal
from barnabas.protocol.errors import ErrorCode

ROOT = "root"

_TRACE = 5
# Kafka's names of levels.
_LEVELS = {
    "TRACE": _TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def described_levels() -> dict[str, str]:
    """The level that holds for each logger, by name."""
    logging.addLevelName(_TRACE, "TRACE")
    levels = {name: _name_of(logging.getLogger(name)) for name in sorted(_known())}
    return {ROOT: _name_of(logging.getLogger()), **levels}


def check_level_change(name: str, operation: int, level: str | None) -> None:
    """Refuse what cannot be done to a logger.

    Raises:
        Refusal: INVALID_CONFIG, no such logger or level; INVALID_REQUEST, an operation that loggers
            do not have, or taking the level off the root.
    """
    if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise Refusal(
            ErrorCode.INVALID_REQUEST, f"operation {operation} does not fit the level of a logger"
        )
    if operation == ConfigOperation.SET and level is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{name} needs a level")
    if name != ROOT and name not in _known():
        raise Refusal(ErrorCode.INVALID_CONFIG, f"there is no logger {name}")
    if operation == ConfigOperation.DELETE:
        if name == ROOT:
            raise Refusal(ErrorCode.INVALID_REQUEST, "the root logger always has a level")
        return
    if level not in _LEVELS:
        raise Refusal(
            ErrorCode.INVALID_CONFIG, f"{level} is no level; levels are {', '.join(_LEVELS)}"
        )


def change_level(name: str, operation: int, level: str | None) -> None:
    """Make a change that was checked: set a level, or have the one above hold again."""
    logger = logging.getLogger() if name == ROOT else logging.getLogger(name)
    if operation == ConfigOperation.DELETE or level is None:
        logger.setLevel(logging.NOTSET)
    else:
        logger.setLevel(_LEVELS[level])


def _known() -> set[str]:
    """Loggers that the process has made, and those above them."""
    return {
        name for name in logging.Logger.manager.loggerDict if name.partition(".")[0] == "barnabas"
    }


def _name_of(logger: logging.Logger) -> str:
    """Kafka's name of the level that holds: the next lower one for a level between two."""
    effective = logger.getEffectiveLevel()
    fitting = [name for name, level in _LEVELS.items() if level <= effective]
    return fitting[-1] if fitting else "TRACE"
