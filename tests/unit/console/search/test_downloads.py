"""Results of a search as files."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import csv
import io
import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.console.forms import FormError
from barnabas.console.messages.masking import MaskRule
from barnabas.console.messages.one_record import Fate
from barnabas.console.messages.reading import LargeReads, RecordReader
from barnabas.console.search.columns import parse_columns
from barnabas.console.search.downloads import Download, DownloadLimits
from barnabas.console.search.expressions import ExpressionFilter
from barnabas.console.search.file_formats import (
    TooLargeForParquetError,
    harmless,
    make_writer,
)
from barnabas.console.search.jobs import Search, make_plan
from barnabas.console.search.ranges import Place
from barnabas.console.search.scan import Scan
from barnabas.console.search.streams import SlowClientError
from barnabas.console.search.zones import UTC_ZONE
from barnabas.runtime.clock import Clock
from unit.console.search.records import TOPIC, LogConsumer, conditions, decoded, raw, view
from unit.storage.storage_fixtures import ManualClock

DEFAULTS = DownloadLimits()
FORMATS = ("jsonl", "csv", "parquet")


def written(name: str, columns: str, *records: Any, truncated: str = "") -> bytes:
    writer = make_writer(name, parse_columns(columns), UTC_ZONE)
    return b"".join((*writer.write(records), *writer.end(truncated)))


def rows_of(name: str, data: bytes) -> list[dict[str, Any]]:
    match name:
        case "jsonl":
            return [json.loads(line) for line in data.splitlines()]
        case "csv":
            return list(csv.DictReader(io.StringIO(data.decode(), newline="")))
        case _:
            found: list[dict[str, Any]] = pq.read_table(io.BytesIO(data)).to_pylist()
            return found


HEADERS = [("trace", b"1"), ("bytes", b"\xff"), ("null", None)]
RECORD = decoded(
    b'{"a": [1, 2.5], "b": "x\\ny"}', key=b"k", headers=HEADERS, offset=5, timestamp=1000
)


def test_json_lines_have_decoded_json_texts_and_bytes() -> None:
    [row, empty] = rows_of("jsonl", written("jsonl", "", RECORD, decoded(None, timestamp=-1)))
    assert row == {
        "partition": 0, "offset": 5, "time": "1970-01-01T00:00:01.000Z", "timestamp": 1000,
        "size": RECORD.size, "key": "k", "value": {"a": [1, 2.5], "b": "x\ny"},
        "headers": [["trace", "1"], ["bytes", {"base64": "/w=="}], ["null", None]],
        "transaction": None,
    }  # fmt: skip
    assert (empty["time"], empty["key"], empty["value"]) == (None, None, None)


def test_csv_has_a_header_and_texts() -> None:
    [row] = rows_of("csv", written("csv", "", RECORD))
    assert row == {
        "partition": "0", "offset": "5", "time": "1970-01-01T00:00:01.000Z", "timestamp": "1000",
        "size": str(RECORD.size), "key": "k", "value": '{"a": [1, 2.5], "b": "x\\ny"}',
        "headers": '[["trace", "1"], ["bytes", "/w=="], ["null", null]]',
        "transaction": "",
    }  # fmt: skip


def test_parquet_has_numbers_times_and_texts() -> None:
    [row, empty] = rows_of("parquet", written("parquet", "", RECORD, decoded(None, timestamp=-1)))
    assert row["time"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert (row["partition"], row["offset"], row["size"]) == (0, 5, RECORD.size)
    assert json.loads(row["value"]) == {"a": [1, 2.5], "b": "x\ny"}
    assert (empty["time"], empty["value"]) == (None, None)


@pytest.mark.parametrize("name", FORMATS)
def test_columns_of_the_list_are_those_of_the_file(name: str) -> None:
    columns = "offset,value.a[1],value.b,value.none,headers.trace"
    [row] = rows_of(name, written(name, columns, RECORD))
    assert list(row) == columns.split(",")
    assert [str(each or "") for each in row.values()] == ["5", "2.5", "x\ny", "", "1"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_says_what_became_of_transactions(name: str) -> None:
    records = [RECORD._replace(fate=fate) for fate in (Fate.ABORTED, Fate.OPEN, Fate.NONE)]
    rows = rows_of(name, written(name, "", *records))
    assert [row["transaction"] or None for row in rows] == ["aborted", "open", None]


@pytest.mark.parametrize("name", FORMATS)
def test_masked_parts_are_in_no_file(name: str) -> None:
    rules = (MaskRule("*", "value", ("secret",)), MaskRule("*", "header"), MaskRule("*", "key"))
    value = b'{"secret": "hidden", "open": "shown"}'
    record = decoded(value, *rules, key=b"hidden", headers=[("trace", b"hidden")])
    for columns in ("", "value.secret,value.open,headers.trace,key,value,headers"):
        text = str(rows_of(name, written(name, columns, record)))
        assert "shown" in text
        assert "hidden" not in text


def test_a_file_that_ends_early_says_so() -> None:
    assert rows_of("jsonl", written("jsonl", "", truncated="why"))[-1] == {"truncated": "why"}
    assert rows_of("csv", written("csv", "", truncated="why"))[-1]["partition"] == "truncated: why"
    parquet = pq.read_metadata(io.BytesIO(written("parquet", "", truncated="why")))
    assert parquet.metadata[b"truncated"] == b"why"


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(FormError, match="jsonl, csv or parquet"):
        make_writer("xlsx", (), UTC_ZONE)


@given(
    st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20)
    | st.text("=+-@\t\r0123456789.eE", max_size=12)
)
def test_no_cell_of_a_csv_file_is_a_formula(text: str) -> None:
    record = decoded(msgspec.json.encode({"a": text}), key=text.encode())
    data = written("csv", "key,value.a", record)
    _, row = csv.reader(io.StringIO(data.decode(), newline=""))
    for cell in row:
        if cell.startswith(("=", "+", "-", "@", "\t", "\r")):
            assert float(cell) == float(text)
        else:
            assert cell in (text, f"'{text}")
    assert harmless("-1.5e3") == "-1.5e3"
    assert harmless("-1+cmd|' /C calc'!A0") == "'-1+cmd|' /C calc'!A0"


async def parts_of(
    consumer: Any,
    place: Place,
    limits: DownloadLimits,
    turns: LargeReads,
    clock: Clock,
    **fields: str,
) -> AsyncGenerator[bytes]:
    """Yield the parts of a download with partitions and offsets as JSON lines."""
    search = Search(
        topic=TOPIC, partition=None, place=place, conditions=conditions(**fields),
        columns=(), limit=4, isolation="read_committed", view=view(), owner=None, address={},
    )  # fmt: skip
    plan, _ = await make_plan(consumer, search, window=6)
    expressions = ExpressionFilter(60.0)
    writer = make_writer("jsonl", parse_columns("partition,offset"), UTC_ZONE)
    download = Download(search, writer, clock, limits)
    reader = RecordReader(lambda **_: consumer, turns, "read_committed")
    scan = Scan(reader, search.view, search.conditions, expressions)
    try:
        async with contextlib.aclosing(download.parts(plan, scan)) as parts:
            async for part in parts:
                yield part
    finally:
        expressions.close()


def consumer_of(logs: dict[int, list[ConsumerRecord]]) -> Any:
    ends = {number: part[-1].offset + 1 if part else 0 for number, part in logs.items()}
    return LogConsumer(logs, ends)


def downloaded(
    logs: dict[int, list[ConsumerRecord]],
    place: Place,
    limits: DownloadLimits = DEFAULTS,
    **fields: str,
) -> list[dict[str, Any]]:
    async def run() -> bytes:
        parts = parts_of(consumer_of(logs), place, limits, LargeReads(), ManualClock(), **fields)
        return b"".join([part async for part in parts])

    return rows_of("jsonl", asyncio.run(run()))


def logs() -> dict[int, list[ConsumerRecord]]:
    """Two partitions; each third record has the value `yes`."""
    return {
        number: [
            raw(b"no" if n % 3 else b"yes", offset=n, partition=number, timestamp=2 * n + number)
            for n in range(30)
        ]
        for number in range(2)
    }


def test_a_download_has_all_matches_from_the_place_on() -> None:
    rows = downloaded(logs(), Place("offset", 10), value="yes")
    assert sorted((row["partition"], row["offset"]) for row in rows) == [
        (number, n) for number in range(2) for n in range(12, 30, 3)
    ]


def test_a_download_of_the_newest_has_as_many_as_the_list() -> None:
    rows = downloaded(logs(), Place(), value="yes")
    assert [(row["partition"], row["offset"]) for row in rows] == [
        (1, 27),
        (0, 27),
        (1, 24),
        (0, 24),
    ]


def test_the_newest_are_written_in_order_however_large_they_are() -> None:
    size = 3 * 1024 * 1024
    large = {0: [raw(bytes([65 + n]) * size, offset=n, timestamp=n) for n in range(6)]}
    rows = downloaded(large, Place())
    assert [row["offset"] for row in rows] == [5, 4, 3, 2]


LARGE_TEXT = '=a"b\\ü' * 300_000
LARGE = {"text": LARGE_TEXT.encode(), "bytes": bytes(range(256)) * 8_000}


@pytest.mark.parametrize("name", ["jsonl", "csv"])
@pytest.mark.parametrize("kind", LARGE)
def test_large_values_are_whole_and_written_in_pieces(name: str, kind: str) -> None:
    data = LARGE[kind]
    record = decoded(data, key=data, headers=[("h", data)])
    writer = make_writer(name, (), UTC_ZONE)
    pieces = [*writer.write([record, RECORD]), *writer.end("")]
    assert max(map(len, pieces)) < 1024 * 1024
    csv.field_size_limit(100_000_000)
    row, small = rows_of(name, b"".join(pieces))
    assert small["offset"] in (5, "5")
    found = [row["key"], row["value"]]
    if name == "csv":
        wanted = base64.b64encode(data).decode() if kind == "bytes" else f"'{LARGE_TEXT}"
        assert found == [wanted, wanted]
        assert json.loads(row["headers"])[0][1] == wanted.removeprefix("'")
        return
    wanted_json: Any = {"base64": base64.b64encode(data).decode()}
    wanted_json = LARGE_TEXT if kind == "text" else wanted_json
    assert found == [wanted_json, wanted_json]
    assert row["headers"] == [["h", wanted_json]]


def test_large_values_of_parquet_have_row_groups_of_their_own_and_no_dictionary() -> None:
    large = decoded(b"x" * 3_000_000)
    metadata = pq.read_metadata(
        io.BytesIO(written("parquet", "key,value", large, large, RECORD, RECORD))
    )
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert [each.num_rows for each in groups] == [1, 1, 2]
    assert [groups[0].column(number).has_dictionary_page for number in (0, 1)] == [True, False]


def test_a_value_that_is_too_large_for_parquet_ends_the_file_with_advice() -> None:
    writer = make_writer("parquet", (), UTC_ZONE)
    with pytest.raises(TooLargeForParquetError, match="choose JSON lines or CSV"):
        list(writer.write([decoded(bytes(5 * 1024 * 1024))]))


@pytest.mark.parametrize(
    ("limits", "count", "reason"),
    [
        (DownloadLimits(messages=5), 5, "the limit is 5 messages"),
        (DownloadLimits(messages=59), 59, "the limit is 59 messages"),
        (DownloadLimits(size=1), 7, "the limit is 1 bytes"),
    ],
)
def test_a_download_ends_at_its_limits(limits: DownloadLimits, count: int, reason: str) -> None:
    *rows, last = downloaded(logs(), Place("beginning"), limits)
    assert len(rows) == count
    assert last == {"truncated": reason}


def test_a_download_that_has_exactly_as_many_messages_as_its_limit_is_whole() -> None:
    assert len(downloaded(logs(), Place("beginning"), DownloadLimits(messages=60))) == 60


def test_a_filter_that_fails_ends_a_download_with_its_reason() -> None:
    [last] = downloaded(logs(), Place("beginning"), filter="value.n >")
    assert "line 1, column 10" in last["truncated"]


def test_a_client_that_reads_slowly_delays_no_other_download() -> None:
    async def run() -> None:
        clock, turns = ManualClock(), LargeReads(turn_s=60.0)

        def begin(place: Place) -> AsyncGenerator[bytes]:
            return parts_of(consumer_of(logs()), place, DEFAULTS, turns, clock)

        slow = [begin(Place("beginning")), begin(Place())]
        first = [await anext(each) for each in slow]
        others = [b"".join([part async for part in begin(Place("beginning"))]) for _ in range(2)]
        assert [other.count(b"offset") for other in others] == [60, 60]
        rest = [b"".join([part async for part in each]) for each in slow]
        assert [(a + b).count(b"offset") for a, b in zip(first, rest, strict=True)] == [60, 4]

    asyncio.run(run())


@pytest.mark.parametrize(("seconds", "is_closed"), [(12, False), (14, True)])
def test_a_client_that_exceeds_the_time_limit_is_closed(seconds: int, is_closed: bool) -> None:
    async def run() -> None:
        clock, limits = ManualClock(), DownloadLimits(seconds=10.0, reading_s=3.0)
        slow = parts_of(consumer_of(logs()), Place("beginning"), limits, LargeReads(), clock)
        await anext(slow)
        clock.now_ms += seconds * 1000
        if is_closed:
            with pytest.raises(SlowClientError, match="within its time limit"):
                await anext(slow)
        else:
            rest = rows_of("jsonl", b"".join([part async for part in slow]))
            assert rest == [{"truncated": "the limit is 10 s"}]

    asyncio.run(run())


def test_a_file_ends_early_if_too_much_of_one_fetch_waits_for_the_client() -> None:
    *rows, last = downloaded(logs(), Place("beginning"), DownloadLimits(spooled=10))
    assert len(rows) == 7
    assert last == {"truncated": "the limit is 10 bytes of one fetch in the file"}
