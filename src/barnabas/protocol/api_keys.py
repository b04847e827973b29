"""The APIs, their versions, and their message classes (imported on first use)."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, cast

from barnabas.protocol.api_table import API_ROWS, APIS_WITHOUT_TABLES, ApiKey, ApiRow
from barnabas.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message

__all__ = [
    "ApiKey",
    "ApiRow",
    "api_row",
    "is_flexible_version",
    "last_stable_version",
    "listeners",
    "request_class",
    "response_class",
    "schema_versions",
]


def api_row(api_key: int) -> ApiRow:
    """Return the properties of an API.

    Raises:
        ProtocolError: There is no API with this key.
    """
    row = API_ROWS.get(api_key)
    if row is None:
        raise ProtocolError(f"no API has the key {api_key}")
    return row


@cache
def request_class(api_key: int) -> type[Message]:
    """Return the request class of an API; its module is imported on first use.

    Raises:
        ProtocolError: There is no API with this key, or Barnabas has no field tables for it.
    """
    return _message_class(api_key, "Request")


@cache
def response_class(api_key: int) -> type[Message]:
    """Return the response class of an API, like `request_class`."""
    return _message_class(api_key, "Response")


def schema_versions(api_key: int) -> tuple[int, int]:
    """Return the first and last version that the codec supports.

    They include versions that Kafka 4.0 removed.
    """
    row = api_row(api_key)
    return row.first_version, row.last_version


def last_stable_version(api_key: int) -> int:
    """Return the last version that Kafka advertises without `unstable.api.versions.enable`."""
    row = api_row(api_key)
    return row.last_version - row.last_is_unstable


def listeners(api_key: int) -> tuple[str, ...]:
    """Return the kinds of listener ("broker", "controller") that serve the API in Kafka 4.4."""
    return api_row(api_key).listeners


def is_flexible_version(api_key: int, version: int) -> bool:
    """Return whether this version has compact lengths and tagged fields (KIP-482)."""
    first = api_row(api_key).flexible_from
    return first is not None and version >= first


def _message_class(api_key: int, kind: str) -> type[Message]:
    row = api_row(api_key)
    if api_key in APIS_WITHOUT_TABLES:
        raise ProtocolError(
            f"API {row.name} has no field tables: remove it from UNUSED_APIS in "
            "tools/import_schemas.py and run that tool"
        )
    module = importlib.import_module(f"barnabas.protocol.messages.{row.module}")
    return cast("type[Message]", getattr(module, row.name + kind))
