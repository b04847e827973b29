"""Names of users in the tags of metrics (Kafka: Sanitizer)."""

from __future__ import annotations

from typing import Final

_SAFE: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_")


def sanitized_user(name: str) -> str:
    """Return a name with percent-encoded UTF-8 bytes, but for letters, digits, `.`, `-` and `_`."""
    data = name.encode("utf-8", "replace")
    return "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in data)
