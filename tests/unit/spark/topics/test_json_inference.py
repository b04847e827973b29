"""Columns of JSON values: types, conflicts, and samples without columns."""

from __future__ import annotations

import pytest

from barnabas.spark.topics.json_inference import InferenceError, infer_columns


@pytest.mark.parametrize(
    ("values", "ddl"),
    [
        (['{"a": 1}'], "a BIGINT"),
        (['{"b": true, "a": 1.5}'], "a DOUBLE, b BOOLEAN"),
        (['{"a": "2026-01-31"}'], "a STRING"),
        (['{"a": null}', "{}"], "a STRING"),
        (['{"a": [1, null]}'], "a ARRAY<BIGINT>"),
        (['{"a": []}'], "a ARRAY<STRING>"),
        (['{"a": {"c": 1, "b": [{}, {"d": 1}]}}'],
         "a STRUCT<b: ARRAY<STRUCT<d: BIGINT>>, c: BIGINT>"),
        (['{"a": {}, "b": 1, "c": [{}]}'], "b BIGINT"),
        (['{"a": 12345678901234567890}'], "a DECIMAL(20,0)"),
        (['{"a": 1e3}'], "a DOUBLE"),
        (['{"a": 1' + "0" * 40 + "}"], "a DOUBLE"),
        (['{"a b": 1, "c`d": 1}'], "`a b` BIGINT, `c``d` BIGINT"),
    ],
)  # fmt: skip
def test_columns_have_the_types_of_their_values(values: list[str], ddl: str) -> None:
    found = infer_columns(each.encode() for each in values)
    assert found.ddl() == ddl
    assert found.widened == ()


@pytest.mark.parametrize(
    ("values", "ddl", "place", "kinds"),
    [
        (['{"a": 1}', '{"a": 1.5}'], "a DOUBLE", "a", "BIGINT and DOUBLE"),
        (['{"a": 1}', '{"a": "x"}'], "a STRING", "a", "BIGINT and STRING"),
        (['{"a": true}', '{"a": 1}'], "a STRING", "a", "BIGINT and BOOLEAN"),
        (['{"a": {"b": 1}}', '{"a": [1]}'], "a STRING", "a", "objects and arrays"),
        (['{"a": {"b": 1}}', '{"a":{"b":""}}'], "a STRUCT<b: STRING>", "a.b", "BIGINT and STRING"),
        (['{"a": [1, "x"]}'], "a ARRAY<STRING>", "a[]", "BIGINT and STRING"),
        (['{"a": 1}', '{"a": 1234567890123456789012}'], "a DECIMAL(22,0)", "a",
         "BIGINT and DECIMAL(22,0)"),
    ],
)  # fmt: skip
def test_conflicts_widen_and_are_told(values: list[str], ddl: str, place: str, kinds: str) -> None:
    found = infer_columns(each.encode() for each in values)
    assert found.ddl() == ddl
    [sentence] = found.widened
    assert sentence.startswith(f"{place} is ")
    assert sentence.endswith(f", because its values are {kinds}")


def test_times_are_text_unless_they_are_asked_for() -> None:
    values = [
        b'{"at": "2026-01-31T12:00:00Z", "day": "2026-01-31", "local": "2026-01-31T12:00:00"}',
        b'{"at": "2026-02-01T12:00:00.5+02:00", "day": "2026-02-01", "word": "20260131"}',
    ]
    assert infer_columns(values).ddl() == "at STRING, day STRING, local STRING, word STRING"
    found = infer_columns(values, with_times=True)
    assert found.ddl() == "at TIMESTAMP, day DATE, local TIMESTAMP_NTZ, word STRING"


def test_values_that_are_no_objects_are_counted() -> None:
    deep = b"[" * 100_000
    found = infer_columns([b'{"a": 1}', b"[1]", b"text", b"\xff", deep, b"7"])
    assert (found.ddl(), found.objects, found.others) == ("a BIGINT", 1, 5)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([], "no value to infer"),
        ([b"text", b"[]"], "none of 2 sampled values is a JSON object"),
        ([b"{}", b'{"a": {}}'], "no fields"),
        (
            [b"{" + b",".join(b'"k%d": 1' % n for n in range(2001)) + b"}"],
            "more than 2000 different fields.*MAP<STRING",
        ),
    ],
)
def test_a_sample_without_columns_is_an_error(values: list[bytes], words: str) -> None:
    with pytest.raises(InferenceError, match=words):
        infer_columns(values)
