"""A map with a limit, and failed lookups of schemas, which are not repeated for a second.

A reader may skip thousands of records with the same unknown or invalid schema. Without the memory
of failures, each of these records would cause a request to the registry or another parse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from barnabas.serializers.errors import RegistryError, SchemaError

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock

    Failure: TypeAlias = SchemaError | RegistryError


K = TypeVar("K")
V = TypeVar("V")
# A schema that is registered meanwhile is found after this time.
_KEPT_MS = 1000.0
_SIZE_MAX = 1000


class BoundedCache(Generic[K, V]):
    """A cache of values that are expensive to compute. Threads may share it.

    Args:
        size_max: Limit of the number of entries.
    """

    __slots__ = ("_entries", "_size_max")

    def __init__(self, size_max: int) -> None:
        assert size_max > 0, size_max
        self._size_max = size_max
        # In the order of their insertion. Invariant: at most `size_max` entries.
        self._entries: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if it is absent."""
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        """Store a value."""
        entries = self._entries
        entries[key] = value
        while len(entries) > self._size_max:
            # `pop` with a default: another thread may have removed the same entry.
            entries.pop(next(iter(entries)), None)

    def clear(self) -> None:
        """Remove all values."""
        self._entries.clear()


class RecentFailures:
    """The errors of the last failed lookups by schema id. Threads may share it.

    Args:
        clock: Measures the time since a failure.
    """

    __slots__ = ("_clock", "_errors")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # The time of the failure (monotonic clock, ms), and a copy of the error.
        self._errors: BoundedCache[int, tuple[float, Failure]] = BoundedCache(_SIZE_MAX)

    def add(self, schema_id: int, error: Failure) -> None:
        """Store the error of a lookup, unless another attempt may succeed at once."""
        if isinstance(error, SchemaError) or not error.retriable:
            self._errors.put(schema_id, (self._clock.monotonic_ms(), _copied(error)))

    def check(self, schema_id: int) -> None:
        """Raise the error of a recent lookup of a schema.

        Raises:
            SchemaError: The schema is unknown, invalid or does not fit the reader's.
            RegistryError: The registry refused the lookup.
        """
        found = self._errors.get(schema_id)
        if found is not None and self._clock.monotonic_ms() - found[0] < _KEPT_MS:
            raise _copied(found[1])


def _copied(error: Failure) -> Failure:
    """Return an equal error without traceback, whose frames would keep the records in memory."""
    twin = error.__class__.__new__(error.__class__, *error.args)
    twin.__dict__.update(error.__dict__)
    return twin
