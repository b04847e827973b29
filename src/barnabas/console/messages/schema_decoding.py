"""Keys and values with a schema of a registry, as JSON.

The console asks the registry in threads that nothing else uses, and never waits long for it. A
registry that does not answer is not asked again for ten seconds. What cannot be decoded is shown as
bytes, with the reason.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.console.messages.decoded import FULL_BYTES, decode_plain, decoded_value
from barnabas.console.threads import Threads
from barnabas.serializers.any_schema import AnyDeserializer
from barnabas.serializers.caches import BoundedCache
from barnabas.serializers.errors import RegistryError, SchemaError
from barnabas.serializers.lookups import SchemaLookup
from barnabas.serializers.schema import schema_id_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.console.messages.decoded import Decoded
    from barnabas.runtime.clock import Clock
    from barnabas.serializers.registry import SchemaRegistry

# Lookups for one set of records; a record with any other id is shown as bytes.
_LOOKUPS_MAX = 20
# A failed lookup is not repeated for this time (ms).
_FAILURE_MS = 10_000
_FAILURES_MAX = 1000
# After a record that took longer to decode (ms), those of its schema stay bytes for the same time.
_SLOW_MS = 1000
_REASON_CHARACTERS = 200
# Sets of records whose schemas are looked up at once; others wait.
_THREADS = 2
# How long a page waits for its schemas (s).
_LOOKUP_S = 5.0


class SchemaDecoder:
    """Decodes keys and values by their schemas.

    Args:
        registry: The registry.
        clock: Measures the time since a failure.
        lookup_s: How long a page waits for its schemas (seconds).
    """

    def __init__(self, registry: SchemaRegistry, clock: Clock, lookup_s: float = _LOOKUP_S) -> None:
        self._deserializer = AnyDeserializer(registry)
        self._clock = clock
        self._lookup_s = lookup_s
        self._threads = Threads(_THREADS)
        # When the registry did not answer in time (ms); None while it does.
        self._silent_ms: float | None = None
        # By schema id: the time (ms) of a failed lookup or a slow record, and the reason.
        self._failures: BoundedCache[int, tuple[float, str]] = BoundedCache(_FAILURES_MAX)

    async def look_up(self, parts: Iterable[bytes | None]) -> None:
        """Look up the schemas of keys and values; failures are kept as reasons."""
        missing: dict[int, SchemaLookup] = {}
        for data in parts:
            found = self._missing(data)
            if found is not None and len(missing) < _LOOKUPS_MAX:
                missing.setdefault(*found)
        if missing and not self._is_silent:
            running = self._threads.run(lambda: self._run(missing))
            await asyncio.wait((running,), timeout=self._lookup_s)
            if running.done():
                return
            self._silent_ms = self._clock.monotonic_ms()
        for schema_id in missing:
            reason = f"the registry does not answer within {self._lookup_s:g} s"
            self._failures.put(schema_id, (self._clock.monotonic_ms(), reason))

    @property
    def _is_silent(self) -> bool:
        now_ms, silent_ms = self._clock.monotonic_ms(), self._silent_ms
        return silent_ms is not None and now_ms - silent_ms < _FAILURE_MS

    def close(self) -> None:
        """Wait for look-ups that run."""
        self._threads.close()

    def decode(self, data: bytes) -> Decoded | None:
        """Return a key or a value as JSON, or as bytes with the reason if it cannot be decoded.

        Returns:
            None if the bytes have no schema.
        """
        if not _may_have_schema(data):
            return None
        plain = decode_plain(data)
        schema_id = schema_id_of(data)
        started_ms = self._clock.monotonic_ms()
        failure = self._recent_failure(schema_id)
        if failure:
            return plain.noted(failure)
        try:
            value = self._deserializer.without_blocking(data)
            return decoded_value(value, data, f"schema {schema_id}")
        except SchemaLookup:
            known = self._failures.get(schema_id)
            reason = "the registry was not asked for its schema" if known is None else known[1]
            return plain.noted(reason)
        except (SchemaError, TypeError, ValueError, RecursionError) as error:
            return plain.noted(str(error)[:_REASON_CHARACTERS])
        finally:
            ended_ms = self._clock.monotonic_ms()
            if ended_ms - started_ms > _SLOW_MS:
                reason = f"records of schema {schema_id} take too long to decode: wait ten seconds"
                self._failures.put(schema_id, (ended_ms, reason))

    def _recent_failure(self, schema_id: int) -> str:
        """Return why records of this schema are not decoded now; "" if they are."""
        failure = self._failures.get(schema_id)
        is_recent = failure is not None and self._clock.monotonic_ms() - failure[0] < _FAILURE_MS
        return failure[1] if failure is not None and is_recent else ""

    def _missing(self, data: bytes | None) -> tuple[int, SchemaLookup] | None:
        """Return the schema id of a key or value, and its lookup if it is needed."""
        if data is None or not _may_have_schema(data):
            return None
        schema_id = schema_id_of(data)
        if self._recent_failure(schema_id):
            return None
        if self._deserializer.knows(schema_id):
            return None
        return schema_id, SchemaLookup(lambda: self._deserializer.look_up(schema_id))

    def _run(self, missing: dict[int, SchemaLookup]) -> None:
        """Run lookups in a thread. After an error of the registry, the others fail like it."""
        unreachable = ""
        for schema_id, lookup in missing.items():
            reason = unreachable
            if not unreachable:
                try:
                    lookup.run()
                    continue
                except RegistryError as error:
                    unreachable = reason = str(error)
                except (SchemaError, ModuleNotFoundError) as error:
                    reason = str(error)
            failed_at = self._clock.monotonic_ms()
            self._failures.put(schema_id, (failed_at, reason[:_REASON_CHARACTERS]))


def _may_have_schema(data: bytes) -> bool:
    """Return whether bytes may begin with a schema id, and are few enough to decode on the loop."""
    return 5 <= len(data) <= FULL_BYTES and data[0] == 0 and data[1] < 0x80
