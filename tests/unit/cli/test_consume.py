"""`barnabas consume`: its output, its formats of places, and its usage errors."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import click
import pytest
from click.testing import CliRunner

from barnabas.cli.records.consume import consume
from barnabas.cli.records.formats import Progress, parse_formats
from barnabas.cli.records.printer import Printer, RecordFilter, check_reader, json_lines
from barnabas.cli.records.source import Chunk, ErrorPolicy, Place, PlaceKind, check_end, parse_place
from barnabas.cli.records.templates import Reading, compile_template, value_lines
from barnabas.client.errors import RecordDeserializationError
from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.client.topic_partition import TopicPartition

TP = TopicPartition("t", 3)
RECORD = ConsumerRecord("t", 3, 42, 1000, 0, b"key", b"value", [("a", b"b"), ("c", None)])
EMPTY = RECORD._replace(key=None, value=None, headers=[])
AS_BYTES = Reading()
NOBODY = ("-b", "127.0.0.1:1", "-X", "default.api.timeout.ms=200")


def printed(template: str, *records: ConsumerRecord, reading: Reading = AS_BYTES) -> bytes:
    return compile_template(template, reading)(TP)(records)


def reading(*specs: str, null: bytes = b"") -> Reading:
    return Reading(*parse_formats(specs, layouts=True), null)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("%s\\n", b"value\n"),
        ("%t %p:%o at %T", b"t 3:42 at 1000"),
        ("%k(%K)=%s(%S)", b"key(3)=value(5)"),
        ("%h\\t100%%", b"a=b,c=NULL\t100%"),
        ("\\\\n\\x1f\\q", b"\\n\x1f\\q"),
        ("%I", b"1970-01-01T00:00:01.000Z"),
        ("%R%s", b"\0\0\0\5value"),
        ("%o%%%s\\r", b"42%value\r"),
    ],
)
def test_a_template_prints_a_record(template: str, text: bytes) -> None:
    assert printed(template, RECORD) == text


def test_a_time_after_the_last_year_of_the_calendar_names_the_record() -> None:
    far = RECORD._replace(timestamp=10**16)
    assert printed("%T", far) == b"10000000000000000"
    with pytest.raises(RecordDeserializationError, match=r"t-3: the timestamp .* at offset 42"):
        printed("%I", far)


def test_nulls_are_printed_as_empty_or_as_the_given_text() -> None:
    assert printed("%o:%k=%s(%S) ", RECORD, EMPTY, RECORD) == (
        b"42:key=value(5) 42:=(-1) 42:key=value(5) "
    )
    assert printed("%o:%k=%s ", RECORD, EMPTY, reading=Reading(null=b"NULL")) == (
        b"42:key=value 42:NULL=NULL "
    )
    assert value_lines(b"-", b";")([RECORD, EMPTY]) == b"value;-;"
    assert value_lines(b"-", b"\0")([RECORD, RECORD]) == b"value\0value\0"


def test_an_unknown_letter_is_an_error_that_names_it() -> None:
    with pytest.raises(click.UsageError, match="%q"):
        compile_template("%q", Reading())


@pytest.mark.parametrize(
    ("how", "data", "text"),
    [
        ("string", "grüße".encode(), "grüße".encode()),
        ("long", b"\0" * 7 + b"\7", b"7"),
        ("double", b"\x3f\xf8" + b"\0" * 6, b"1.5"),
        ("boolean", b"\1", b"true"),
        ("json", b'{ "a": [1] }', b'{"a":[1]}'),
        ("hex", b"\0\xff", b"00ff"),
        ("base64", b"\0\xff", b"AP8="),
        ("uuid", b"123E4567-e89b-42d3-a456-426614174000", b"123e4567-e89b-42d3-a456-426614174000"),
        (">ib", b"\0\0\0\1\xff", b"1-1"),
        ("<Hcs", b"\1\0xyz", b"1xyz"),
        (">i$", b"\0\0\0\1", b"1"),
    ],
)
def test_values_are_decoded_in_the_given_format(how: str, data: bytes, text: bytes) -> None:
    record = RECORD._replace(value=data)
    assert printed("%s", record, reading=reading(f"value={how}")) == text


@pytest.mark.parametrize(("how", "data"), [("long", b"1"), (">q", b"1"), (">b$", b"12")])
def test_a_record_of_another_format_is_named(how: str, data: bytes) -> None:
    with pytest.raises(RecordDeserializationError, match=r"t-3: the key .* offset 42"):
        printed("%k", RECORD._replace(key=data), reading=reading(f"key={how}"))


def test_a_json_line_has_all_fields_and_nested_values_on_request() -> None:
    record = RECORD._replace(key=b"\xff", value=b'{"a":1}', headers=[("h", b"\xff"), ("n", None)])
    plain: dict[str, Any] = {
        "topic": "t",
        "partition": 3,
        "offset": 42,
        "timestamp": 1000,
        "timestamp_type": "create",
        "key_base64": "/w==",
        "value": '{"a":1}',
        "headers": [["h", {"base64": "/w=="}], ["n", None]],
    }
    assert json.loads(json_lines(Reading())(TP)([record])) == plain
    nested = json.loads(json_lines(reading("value=json"))(TP)([record]))
    assert nested == {**plain, "value": {"a": 1}}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", Place(PlaceKind.BEGINNING)),
        ("latest", Place(PlaceKind.END)),
        ("start", Place(PlaceKind.BEGINNING)),
        ("17", Place(PlaceKind.OFFSET, 17)),
        ("-5", Place(PlaceKind.BEFORE_END, 5)),
        ("@1000", Place(PlaceKind.TIME, 1000)),
        ("s@1000", Place(PlaceKind.TIME, 1000)),
        ("1970-01-01T00:00:01+00:00", Place(PlaceKind.TIME, 1000)),
    ],
)
def test_a_position_has_several_formats(text: str, place: Place) -> None:
    assert parse_place(text, "--from") == place


def test_a_relative_time_is_before_now() -> None:
    hour, minute = (parse_place(text, "--from").number for text in ("1h", "@-1m"))
    assert 58 * 60_000 <= minute - hour <= 60 * 60_000


def test_invalid_positions_and_future_ends_are_refused() -> None:
    with pytest.raises(click.UsageError, match="--to noon: write beginning"):
        parse_place("noon", "--to")
    with pytest.raises(click.UsageError, match="in the future"):
        check_end(parse_place("2999-01-01", "--to"))


def test_only_records_that_match_the_expressions_are_printed() -> None:
    other = RECORD._replace(key=b"other")
    records = [RECORD, EMPTY, other]
    assert list(RecordFilter(key=re.compile(b"^k")).matching(records)) == [RECORD]
    assert list(RecordFilter(value=re.compile(b"al")).matching(records)) == [RECORD, other]
    both = RecordFilter(key=re.compile(b"o"), value=re.compile(b"x"))
    assert list(both.matching(records)) == []


def test_a_closed_output_is_detected_without_writing() -> None:
    reading, writing = os.pipe()
    try:
        check_reader(writing)
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            check_reader(writing)
    finally:
        os.close(writing)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-g", ""), "--group needs a name"),
        (("--from", "1", "--from-beginning"), "give one of --from"),
        (("--json", "-f", "%s"), "give --format, --json"),
        (("--json", "-D", ";"), "--delimiter goes with neither"),
        (("--json", "-D", ""), "--delimiter goes with neither"),
        (("-s", "keys=long"), "write FORMAT, key=FORMAT or value=FORMAT"),
        (("-s", "tall"), "known formats: string, json"),
        (("--grep", "("), "not a regular expression"),
        (("--grep-key", "["), "not a regular expression"),
        (("-f", "%x"), "unknown letter %x"),
    ],
)
def test_wrong_usage_is_reported_before_any_connection(words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(consume, ["t", *words, *NOBODY])
    assert done.exit_code == 2
    assert said in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--share", ""), "--share needs a name"),
        (("--share", "s", "--group", "g"), "either --group or --share"),
        (("--share", "s", "--from", "beginning"), "--share goes with none of"),
        (("--share", "s", "--to", "5"), "--share goes with none of"),
        (("--share", "s", "-p", "0"), "--share goes with none of"),
        (("--share", "s", "-e"), "--share goes with none of"),
    ],
)
def test_options_that_a_share_group_does_not_support_are_refused(
    words: tuple[str, ...], message: str
) -> None:
    done = CliRunner().invoke(consume, ["t", *words, *NOBODY])
    assert done.exit_code == 2
    assert message in done.output


class QuietSource:
    """A source whose polls return the given chunks, one after the other."""

    trouble = None
    obstacle = None

    def __init__(self, *polls: list[Chunk]) -> None:
        self._polls = list(polls)

    @property
    def is_finished(self) -> bool:
        return not self._polls

    def poll(self, _timeout_ms: float) -> list[Chunk]:
        return self._polls.pop(0)

    def commit(self, _printed: object) -> None:
        """There is no group."""


@pytest.mark.parametrize(
    ("polls", "told"),
    [
        ([[], [], [], []], "waiting\n"),
        ([[]], ""),
        ([[Chunk(TP, [RECORD], 43)], [], [], []], ""),
    ],
)
def test_the_user_is_told_once_that_no_record_has_arrived(
    polls: list[list[Chunk]], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    render = compile_template("%s\\n", AS_BYTES)
    errors = ErrorPolicy(skip=False)
    Printer(QuietSource(*polls), render, RecordFilter(), Progress(), errors, "waiting").run()
    assert capfd.readouterr().err == told
