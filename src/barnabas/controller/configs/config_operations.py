"""The operations of IncrementalAlterConfigs on the value of one key (KIP-339)."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from barnabas.controller.result import Refusal
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.primitives import STRING_BYTES_MAX
from barnabas.settings.key import ConfigType

if TYPE_CHECKING:
    from barnabas.settings.key import ConfigKey


class ConfigOperation(IntEnum):
    """The operation on a key; the numbers are Kafka's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def changed_value(
    name: str, operation: int, operand: str | None, key: ConfigKey | None, before: str | None
) -> str | None:
    """Return the value of one key after an operation; None if the key has no value then.

    Args:
        name: the name of the key.
        operation: the number of a ConfigOperation.
        operand: the value to set, append or subtract.
        key: the definition of the key; None if it is unknown.
        before: the current value; None if the key has no value.

    Raises:
        Refusal: INVALID_REQUEST for an unknown operation or a missing value; INVALID_CONFIG for a
            key that is not a list, or a list that would exceed the size limit of a record.
    """
    if operation == ConfigOperation.DELETE:
        return None
    if operation not in tuple(ConfigOperation):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"unknown operation {operation}")
    if operand is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{name} requires a value")
    if operation == ConfigOperation.SET:
        return operand
    if key is None or key.type is not ConfigType.LIST:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"{name} is not a list: values cannot be appended to it or subtracted from it",
        )
    parts = [part for part in (before or "").split(",") if part]
    named = [part.strip() for part in operand.split(",") if part.strip()]
    if operation == ConfigOperation.APPEND:
        parts += [part for part in dict.fromkeys(named) if part not in parts]
    else:
        parts = [part for part in parts if part not in named]
    value = ",".join(parts)
    if len(value.encode()) > STRING_BYTES_MAX:
        # The message is the same as in Kafka.
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of"
            f" {STRING_BYTES_MAX} bytes.",
        )
    return value
