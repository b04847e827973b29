"""Parsing and comparing of schemas in child processes, each with a limit of time and memory.

The work is Python code that would hold the interpreter's lock, so threads would delay all requests.
A schema that takes too long costs its sender an error: the child is killed, and the next request
starts another one. Results of valid schemas are cached, because each producer registers its schema
again when it starts.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from barnabas.registry.operations import ExaminedSchema, SchemaText
from barnabas.registry.schemas import InvalidSchemaError, check_level, parse
from barnabas.registry.shares import FairTurns, client_address
from barnabas.runtime.bounded_calls import BoundedCalls
from barnabas.runtime.offload import OffloadError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from barnabas.registry.schemas import ParsedSchema

_log = logging.getLogger(__name__)
_K = TypeVar("_K")
_V = TypeVar("_V")

# Children at work at the same time; further requests wait, and their clients get turns.
_CHILDREN = 2
_LIMIT_S = 5.0
# The first child imports the libraries, which takes long on a busy machine.
_WARM_UP_S = 60.0
_MEMORY_BYTES = 1 << 30
# An idle child stays for an hour: a new one needs some 100 ms to import the libraries.
_IDLE_S = 3600.0
# Limits for the texts of cached results, in characters. A parsed schema needs some 30 bytes for
# each character of its text.
_CACHED_CHARACTERS = 8 << 20
_PARSED_CHARACTERS = 4 << 20
# Counted for each cached result besides its texts.
_ENTRY_CHARACTERS = 1_000
_TOO_COMPLEX = "the schema is too complex"


class _Parse(NamedTuple):
    schema: SchemaText
    normalize: bool


class _Format(NamedTuple):
    schema: SchemaText
    name: str


class _Check(NamedTuple):
    level: str
    new: SchemaText
    earlier: tuple[SchemaText, ...]


class TextCache(Generic[_K, _V]):
    """Results that are used again, with a limit for the length of their texts.

    Args:
        characters: The limit. The results that were not used for the longest time are dropped.
    """

    def __init__(self, characters: int) -> None:
        self._left = characters
        # Each result with its length, the least recently used first.
        self._found: OrderedDict[_K, tuple[_V, int]] = OrderedDict()

    def get(self, key: _K) -> _V | None:
        """Return a result; None without one."""
        found = self._found.get(key)
        if found is None:
            return None
        self._found.move_to_end(key)
        return found[0]

    def put(self, key: _K, value: _V, characters: int) -> None:
        """Keep a result.

        Args:
            key: Finds the result.
            value: The result.
            characters: The length of its texts.
        """
        self._drop(key)
        counted = characters + _ENTRY_CHARACTERS
        self._found[key] = (value, counted)
        self._left -= counted
        while self._left < 0:
            self._drop(next(iter(self._found)))

    def _drop(self, key: _K) -> None:
        _, characters = self._found.pop(key, (None, 0))
        self._left += characters


# Parsed schemas of a child process.
_PARSED: TextCache[SchemaText, ParsedSchema] = TextCache(_PARSED_CHARACTERS)


class SchemaExaminer:
    """Runs the parser in child processes; implements `Examiner`.

    Args:
        loop: The running event loop.
        limit_s: How long the examination of one schema may take (seconds).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_s: float = _LIMIT_S) -> None:
        self.limit_s = limit_s
        self._calls = BoundedCalls(loop, _MEMORY_BYTES, _IDLE_S)
        self._turns = FairTurns(_CHILDREN)
        self._cache: TextCache[_Parse, ExaminedSchema] = TextCache(_CACHED_CHARACTERS)

    def close(self) -> None:
        """End the child processes."""
        self._calls.close()

    async def warm_up(self) -> None:
        """Start a child and let it import the libraries."""
        await self._run(_Parse(SchemaText("AVRO", '"string"'), normalize=False), _WARM_UP_S)

    async def parse(self, schema: SchemaText, *, normalize: bool) -> ExaminedSchema:
        """Return the canonical or the normalized form of a schema."""
        job = _Parse(schema, normalize)
        # The hash of nested references may take long, and such schemas are rare.
        is_cached = not any(each.references for each in schema.references)
        known = self._cache.get(job) if is_cached else None
        if known is not None:
            return known
        found = await self._run(job)
        assert isinstance(found, ExaminedSchema)
        if is_cached:
            self._cache.put(job, found, len(schema.text) + len(found.text))
        return found

    async def format(self, schema: SchemaText, name: str) -> str:
        """Return the text of a schema in the format with this name."""
        return str(await self._run(_Format(schema, name)))

    async def check(self, level: str, new: SchemaText, earlier: Sequence[SchemaText]) -> list[str]:
        """Return why a new schema breaks a compatibility level; empty if it does not."""
        found = await self._run(_Check(level, new, tuple(earlier)))
        assert isinstance(found, list)
        return found

    async def _run(self, job: _Parse | _Format | _Check, limit_s: float | None = None) -> object:
        limit_s = self.limit_s if limit_s is None else limit_s
        async with self._turns.turn(client_address.get()):
            try:
                return await self._calls.run(_result, job, limit_s)
            except TimeoutError:
                _log.warning("the examination of a schema was stopped: seconds=%g", limit_s)
                raise InvalidSchemaError(
                    f"{_TOO_COMPLEX}: its examination takes more than {limit_s:g} s"
                ) from None
            except OffloadError as error:
                raise InvalidSchemaError(f"{_TOO_COMPLEX}: {error}") from None
            except (MemoryError, RecursionError) as error:
                raise InvalidSchemaError(f"{_TOO_COMPLEX}: {type(error).__name__}") from None


def _result(job: object) -> object:
    """Do a job in the child process."""
    match job:
        case _Parse(schema, normalize):
            parsed = _parsed(schema)
            if normalize:
                parsed = parsed.normalized()
            references = tuple(each.reference for each in parsed.references)
            return ExaminedSchema(parsed.canonical, references)
        case _Format(schema, name):
            return _parsed(schema).formatted(name)
        case _Check(level, new, earlier):
            return check_level(level, _parsed(new), [_parsed(each) for each in earlier])
        case _:
            raise AssertionError(type(job))


def _parsed(schema: SchemaText) -> ParsedSchema:
    if schema.references:
        return parse(*schema)
    known = _PARSED.get(schema)
    if known is None:
        known = parse(*schema)
        _PARSED.put(schema, known, len(schema.text))
    return known
