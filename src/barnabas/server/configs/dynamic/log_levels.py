"""Levels of this process's loggers, which clients can read and change (KIP-412, resource type 8).

Kafka's loggers have the names of classes, Barnabas's the names of modules. `root` is the root
logger. Levels belong to the process: as in Kafka, they are not in the metadata log and do not
survive a restart.
"""

from __future__ import annotations

import logging

from barnabas.controller.configs.configs import ConfigOperation
from barnabas.controller.result import Refusal
from barnabas.protocol.errors import ErrorCode

ROOT = "root"

_TRACE = 5
# Python's levels by Kafka's names.
_LEVELS = {
    "TRACE": _TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def described_levels() -> dict[str, str]:
    """Return the effective level of each logger, by name."""
    logging.addLevelName(_TRACE, "TRACE")
    levels = {name: _name_of(logging.getLogger(name)) for name in sorted(_known())}
    return {ROOT: _name_of(logging.getLogger()), **levels}


def check_level_change(name: str, operation: int, level: str | None) -> None:
    """Check a change of a logger's level.

    Raises:
        Refusal: INVALID_CONFIG for an unknown logger or level. INVALID_REQUEST for an unsupported
            operation, or for the removal of the root logger's level.
    """
    if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise Refusal(
            ErrorCode.INVALID_REQUEST, f"operation {operation} cannot change the level of a logger"
        )
    if operation == ConfigOperation.SET and level is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"the level of logger {name} is missing")
    if name != ROOT and name not in _known():
        raise Refusal(ErrorCode.INVALID_CONFIG, f"logger {name} does not exist")
    if operation == ConfigOperation.DELETE:
        if name == ROOT:
            raise Refusal(
                ErrorCode.INVALID_REQUEST, "the level of the root logger cannot be removed"
            )
        return
    if level not in _LEVELS:
        raise Refusal(
            ErrorCode.INVALID_CONFIG, f"{level} is not one of the levels {', '.join(_LEVELS)}"
        )


def change_level(name: str, operation: int, level: str | None) -> None:
    """Apply a checked change: set a level, or remove it so that the parent's level applies."""
    logger = logging.getLogger() if name == ROOT else logging.getLogger(name)
    if operation == ConfigOperation.DELETE or level is None:
        logger.setLevel(logging.NOTSET)
    else:
        logger.setLevel(_LEVELS[level])


def _known() -> set[str]:
    """Return the names of the loggers that this process has created, and of their parents."""
    return {
        name for name in logging.Logger.manager.loggerDict if name.partition(".")[0] == "barnabas"
    }


def _name_of(logger: logging.Logger) -> str:
    """Return Kafka's name of the effective level. A level between two names has the lower name."""
    effective = logger.getEffectiveLevel()
    fitting = [name for name, level in _LEVELS.items() if level <= effective]
    return fitting[-1] if fitting else "TRACE"
