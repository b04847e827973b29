"""Numbers for JSON values: equal values have equal numbers."""

from __future__ import annotations

from typing import Any


class ValueNumbers:
    """Numbers of values; each object and list is read once."""

    def __init__(self) -> None:
        self._by_key: dict[Any, int] = {}
        # By identity. The values are kept, so that no other one gets their identity.
        self._known: dict[int, tuple[Any, int]] = {}

    def of(self, value: Any) -> int:
        """Return the number of a value."""
        if not isinstance(value, dict | list):
            return self._number((type(value) is bool, value))
        known = self._known.get(id(value))
        if known is None:
            if isinstance(value, dict):
                key: Any = ("{", *sorted((name, self.of(each)) for name, each in value.items()))
            else:
                key = ("[", *map(self.of, value))
            known = self._known[id(value)] = (value, self._number(key))
        return known[1]

    def _number(self, key: Any) -> int:
        return self._by_key.setdefault(key, len(self._by_key))
