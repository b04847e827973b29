"""Avro schemas of the registry beside Java's parser and Java's rules of compatibility."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.registry.schemas import InvalidSchemaError, ParsedSchema, parse
from jvm.drawn_schemas import SchemaPair, damaged_json, drawn_pairs
from jvm.maven import TIMEOUT_S, class_path

SOURCE = Path(__file__).with_name("AvroSchemas.java")
# `make nightly` compares more.
COUNT, NIGHTLY_COUNT = 500, 1500


def drawn(count: int, damage: bool) -> list[SchemaPair]:
    """Return pairs; half of the damaged ones are invalid."""
    rng = random.Random(7)
    pairs = [pair for pair in drawn_pairs(7, 3 * count) if pair.kind == "AVRO"]
    if not damage:
        return pairs
    return [pair._replace(reader=damaged_json(rng, pair.reader)) for pair in pairs]


@pytest.fixture(scope="module")
def java() -> Callable[[list[SchemaPair]], list[list[str]]]:
    """Return what Java says about pairs: both canonical texts, and the incompatibilities."""

    def ask(pairs: list[SchemaPair]) -> list[list[str]]:
        words = ["java", "-Xmx256m", "-cp", class_path("avro"), str(SOURCE)]
        lines = "".join(f"{pair.writer}\t{pair.reader}\n" for pair in pairs)
        done = subprocess.run(
            words, input=lines, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
        return [line.split("\t") for line in done.stdout.splitlines()]

    return ask


def ours(pair: SchemaPair) -> list[str]:
    """Return the same from Barnabas."""
    writer, reader = _parsed(pair.writer), _parsed(pair.reader)
    texts = ["!" if each is None else each.canonical for each in (writer, reader)]
    if writer is None or reader is None:
        return [*texts, ""]
    try:
        found = reader.differences(writer)
    except InvalidSchemaError:
        return [*texts, "!"]
    return [*texts, ";".join(f"{each.kind} {each.path} {each.info}" for each in found)]


def _parsed(text: str) -> ParsedSchema | None:
    try:
        return parse("AVRO", text)
    except InvalidSchemaError:
        return None


@pytest.mark.parametrize("damage", [False, True], ids=["valid", "damaged"])
def test_texts_and_differences_are_those_of_java(
    java: Callable[[list[SchemaPair]], list[list[str]]], damage: bool, pytestconfig: pytest.Config
) -> None:
    count = NIGHTLY_COUNT if pytestconfig.option.nightly else COUNT
    pairs = drawn(count, damage)
    assert len(pairs) == count
    expected = java(pairs)
    found = [ours(pair) for pair in pairs]
    different = [
        json.dumps([*pair, one, other])
        for pair, one, other in zip(pairs, found, expected, strict=True)
        if one != other
    ]
    assert not different[:3]
    assert sum(bool(each[2]) for each in expected) > count // 20
