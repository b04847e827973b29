"""Schemas are examined in child processes, within limits of time."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.registry.examination import SchemaExaminer, TextCache
from barnabas.registry.operations import ExaminedSchema, SchemaText
from barnabas.registry.schemas import InvalidSchemaError

STRING, INT = SchemaText("AVRO", ' "string" '), SchemaText("AVRO", '"int"')


def test_schemas_are_parsed_compared_and_formatted() -> None:
    async def test() -> None:
        examiner = SchemaExaminer(asyncio.get_running_loop())
        assert await examiner.parse(STRING, normalize=False) == ExaminedSchema('"string"', ())
        assert await examiner.check("BACKWARD", STRING, [INT]) != []
        assert await examiner.check("BACKWARD", STRING, [STRING]) == []
        assert await examiner.format(STRING, "resolved") == '"string"'
        with pytest.raises(InvalidSchemaError):
            await examiner.parse(SchemaText("AVRO", "{"), normalize=False)
        examiner.close()

    asyncio.run(test())


def test_an_examination_without_end_costs_its_sender_only() -> None:
    async def test() -> None:
        examiner = SchemaExaminer(asyncio.get_running_loop())
        await examiner.warm_up()
        # No child answers within this time.
        examiner.limit_s = 0.0
        with pytest.raises(InvalidSchemaError, match="too complex: its examination takes more"):
            await examiner.parse(INT, normalize=False)
        examiner.limit_s = 60.0
        both = (examiner.parse(INT, normalize=False), examiner.parse(STRING, normalize=False))
        assert [each.text for each in await asyncio.gather(*both)] == ['"int"', '"string"']
        examiner.close()

    asyncio.run(test())


def test_a_known_schema_is_not_examined_again() -> None:
    async def test() -> None:
        examiner = SchemaExaminer(asyncio.get_running_loop())
        first = await examiner.parse(STRING, normalize=False)
        # Without children, and without time for a new one.
        examiner.close()
        examiner.limit_s = 0.0
        assert await examiner.parse(STRING, normalize=False) == first
        with pytest.raises(InvalidSchemaError):
            await examiner.parse(STRING, normalize=True)
        examiner.close()

    asyncio.run(test())


def test_a_cache_drops_the_results_that_were_not_used_for_the_longest_time() -> None:
    cache: TextCache[str, int] = TextCache(40_000)
    for number, name in enumerate("abc"):
        cache.put(name, number, 10_000)
    assert cache.get("a") == 0
    cache.put("d", 3, 10_000)
    assert [cache.get(name) for name in "abcd"] == [0, None, 2, 3]


def test_a_cache_keeps_no_result_above_its_limit() -> None:
    cache: TextCache[str, int] = TextCache(40_000)
    cache.put("a", 1, 50_000)
    assert cache.get("a") is None
    cache.put("b", 2, 30_000)
    assert cache.get("b") == 2


def test_a_cache_has_a_limit_for_short_texts_too() -> None:
    cache: TextCache[int, int] = TextCache(40_000)
    for number in range(1_000):
        cache.put(number, number, 0)
    assert sum(cache.get(number) is not None for number in range(1_000)) == 40
