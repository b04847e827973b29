"""Parsing of lines, JSON lines and files by `barnabas produce`, and errors."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from barnabas.cli.records.delivery import Delivery, Limits, Options, input_chunks, json_record, runs
from barnabas.cli.records.formats import Progress, parse_formats
from barnabas.cli.records.produce import produce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

JSON = Options(from_json=True)
NOBODY = ("-b", "127.0.0.1:1", "-X", "default.api.timeout.ms=200")


def pairs(options: Options, *lines: bytes) -> list[tuple[bytes | None, bytes | None]]:
    return [record[:2] for run in runs(lines, options) for record in run.records]


def test_a_json_line_becomes_a_record() -> None:
    line = b'{"key":"k","value":{"a":1},"headers":[["h","v"],["h",null]],"timestamp":5}'
    headers = [("h", b"v"), ("h", None)]
    assert json_record(line, JSON) == ((b"k", b'{"a":1}', headers, 5), None)


def test_bytes_come_as_base64() -> None:
    record, partition = json_record(b'{"value_base64":"/w==","partition":3}', JSON)
    assert (record[1], partition) == (b"\xff", 3)


def test_options_are_defaults_for_missing_json_members() -> None:
    options = JSON._replace(key=b"k", headers=(("h", b"v"),), timestamp=7)
    assert json_record(b'{"value":"x"}', options) == ((b"k", b"x", [("h", b"v")], 7), None)
    own = b'{"value":"x","key":"own","timestamp":8,"partition":1}'
    assert json_record(own, options) == ((b"own", b"x", [("h", b"v")], 8), 1)


def test_a_line_of_kcat_is_read_as_json() -> None:
    line = b'{"offset":7,"ts":5,"headers":["a","b","n",null],"key":"k","payload":"v"}'
    record, _ = json_record(line, JSON)
    assert record == (b"k", b"v", [("a", b"b"), ("n", None)], 5)
    with pytest.raises(ValueError, match='"headers" is not a list of names and values'):
        json_record(b'{"payload":"v","headers":["a"]}', JSON)
    # A value comes first: "payload" is then a member of another program.
    assert json_record(b'{"value":"x","payload":"v"}', JSON)[0][1] == b"x"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{bad", "not a JSON line"),
        (b"[1]", 'object with "value"'),
        (b'{"value":1,"partition":"p"}', '"partition" is not an integer'),
        (b'{"value":1,"partition":true}', '"partition" is not an integer'),
        (b'{"value":1,"timestamp":"now"}', '"timestamp" is not an integer'),
        (b'{"value":1,"timestamp":1e30}', '"timestamp" is not an integer'),
        (b'{"value":1,"timestamp":-5}', '"timestamp" is not an integer'),
        (b'{"value":1,"headers":[1]}', '"headers" is neither'),
        (b'{"value":1,"headers":5}', '"headers" is neither'),
        (b'{"value_base64":"!"}', "not base64"),
        (b'{"value_base64":5}', "not base64"),
        (b'{"value":{"base64":[]}}', "not base64"),
    ],
)
def test_a_wrong_line_is_an_error_that_shows_it(line: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        list(runs([b'{"value":1}', line], JSON, first=7))
    assert str(raised.value).startswith("line 8: ")
    assert str(raised.value).endswith(f": {line.decode()}")


def test_only_the_beginning_of_a_long_wrong_line_is_shown() -> None:
    with pytest.raises(ValueError, match="line 1: ") as raised:
        list(runs([b"\xff" + b"x" * 100_000], JSON))
    assert str(raised.value).endswith(": \ufffd" + "x" * 79 + "…")


def test_records_before_a_wrong_line_are_not_lost() -> None:
    made = runs([b'{"value":1}', b"", b'{"value":2}', b"{bad", b'{"value":3}'], JSON)
    assert [record[1] for record in next(made).records] == [b"1", b"2"]
    with pytest.raises(ValueError, match="not a JSON line"):
        next(made)


def test_json_lines_of_one_partition_are_sent_together_in_order() -> None:
    lines = [b'{"value":%d,"partition":%d}' % pair for pair in ((1, 0), (2, 0), (3, 1), (4, 0))]
    made = [(run.partition, [r[1] for r in run.records]) for run in runs(lines, JSON)]
    assert made == [(0, [b"1", b"2"]), (1, [b"3"]), (0, [b"4"])]


def test_a_line_is_split_into_key_and_value_once() -> None:
    options = Options(separator=b":", key=b"none")
    assert pairs(options, b"a:b:c", b"plain", b":x", b"k:") == [
        (b"a", b"b:c"), (b"none", b"plain"), (b"", b"x"), (b"k", b""),
    ]  # fmt: skip
    assert pairs(options._replace(empty_is_null=True), b":x", b"k:", b"") == [
        (None, b"x"), (b"k", None), (b"none", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("how", "text", "data"),
    [
        ("string", "grüße", "grüße".encode()),
        ("integer", "-2", b"\xff\xff\xff\xfe"),
        ("double", "1.5", b"\x3f\xf8" + b"\0" * 6),
        ("boolean", "true", b"\1"),
        ("json", '{ "a": 1 }', b'{ "a": 1 }'),
        ("hex", "00 ff", b"\0\xff"),
        ("base64", "AP8=", b"\0\xff"),
        ("uuid", "123E4567-E89B-42D3-A456-426614174000", b"123e4567-e89b-42d3-a456-426614174000"),
    ],
)
def test_text_is_encoded_in_the_given_format(how: str, text: str, data: bytes) -> None:
    key, value = parse_formats([how], layouts=False)
    options = Options(separator=b"|", key_format=key, value_format=value)
    assert pairs(options, f"{text}|{text}".encode()) == [(data, data)]


@pytest.mark.parametrize(
    ("how", "text"),
    [("long", "x"), ("short", "99999"), ("boolean", "yes"), ("json", "{"), ("hex", "0"),
     ("base64", "!"), ("uuid", "1")],
)  # fmt: skip
def test_text_of_another_kind_is_an_error_that_shows_the_line(how: str, text: str) -> None:
    _, value = parse_formats([how], layouts=False)
    with pytest.raises(ValueError, match=rf"^line 1: the value cannot be .*: {re.escape(text)}$"):
        pairs(Options(value_format=value), text.encode())


def test_a_json_value_is_encoded_in_the_given_format() -> None:
    _, value = parse_formats(["value=long"], layouts=False)
    record, _ = json_record(b'{"value":7}', JSON._replace(value_format=value))
    assert record[1] == b"\0" * 7 + b"\7"
    with pytest.raises(ValueError, match="is not a long"):
        json_record(b'{"value":[7]}', JSON._replace(value_format=value))


@pytest.fixture
def pieces_of(tmp_path: Path) -> Callable[..., list[bytes]]:
    def cut(content: bytes, delimiter: bytes = b"\n", *, whole_files: bool = False) -> list[bytes]:
        path = tmp_path / "input"
        path.write_bytes(content)
        with path.open("rb") as file:
            chunks = list(input_chunks([file], delimiter, whole_files=whole_files))
        assert sum(chunk.size for chunk in chunks) == len(content)
        return [piece for chunk in chunks for piece in chunk.pieces]

    return cut


def test_input_is_split_at_the_delimiter(pieces_of: Callable[..., list[bytes]]) -> None:
    assert pieces_of(b"a\n\nb") == [b"a", b"", b"b"]
    assert pieces_of(b"a||b|c||", b"||") == [b"a", b"b|c"]
    assert pieces_of(b"a\nb\n", whole_files=True) == [b"a\nb\n"]
    long = b"x" * 1_000_000
    assert pieces_of(long + b"\n" + long) == [long, long]


def test_a_delimiter_split_over_two_reads_is_recognized() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file:
        chunks: Iterator[Any] = input_chunks([file], b"||", whole_files=False)
        os.write(writing, b"a|")
        os.write(writing, b"|b||")
        os.close(writing)
        assert [piece for chunk in chunks for piece in chunk.pieces] == [b"a", b"b"]
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file:
        chunks = input_chunks([file], b"||", whole_files=False)
        os.write(writing, b"0||a|")
        assert next(chunks).pieces == [b"0"]
        os.write(writing, b"|b||")
        assert next(chunks).pieces == [b"a", b"b"]
        os.close(writing)


class CountingProducer:
    """Counts its calls."""

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.asked: list[str] = []
        self.records = 0
        self.interrupt_at = interrupt_at

    def send_batch(self, _topic: str, records: list[Any], _partition: int | None) -> None:
        self.asked.append("send_batch")
        self.records += len(records)
        if self.records == self.interrupt_at:
            raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments, **_options: self.asked.append(name)


def delivered(
    tmp_path: Path, limits: Limits, interrupt_at: int | None = None
) -> tuple[Delivery, CountingProducer]:
    path = tmp_path / "lines"
    path.write_bytes(b"1\n2\n3\n")
    producer: Any = CountingProducer(interrupt_at)
    delivery = Delivery(producer, "t", Options(), limits, Progress())
    with path.open("rb") as file:
        delivery.run(input_chunks([file], b"\n", whole_files=False))
    return delivery, producer


def test_deliveries_are_polled_during_continuous_input(tmp_path: Path) -> None:
    delivery, producer = delivered(tmp_path, Limits())
    assert delivery.error is None
    assert producer.asked[:2] == ["send_batch", "poll"]
    assert producer.asked[-1] == "close"
    assert producer.records == 3


def test_the_requested_number_of_records_is_not_exceeded(tmp_path: Path) -> None:
    assert delivered(tmp_path, Limits(records_max=2))[1].records == 2


def test_a_rate_sends_in_slices(tmp_path: Path) -> None:
    _, producer = delivered(tmp_path, Limits(rate=20))
    assert producer.asked.count("send_batch") == 3


def test_an_interrupt_ends_the_reading_and_waits_for_sent_records(tmp_path: Path) -> None:
    delivery, producer = delivered(tmp_path, Limits(rate=20), interrupt_at=2)
    assert isinstance(delivery.interrupt, KeyboardInterrupt)
    assert producer.records == 2
    assert producer.asked[-1] == "close"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-H", "=x"), "write NAME=VALUE"),
        (("-D", ""), "-W sends each file as one record"),
        (("-K", ""), "input cannot be split at an empty text"),
        (("--from-json", "-K", ":"), "--from-json goes with neither"),
        (("--tee", "--json"), "both write to standard output"),
        (("-s", ">i"), "known formats: string, json"),
        (("-s", "key=long", "--key", "x"), "--key x"),
        (("--timestamp", "noon"), "--timestamp noon"),
    ],
)
def test_wrong_usage_is_reported_before_any_connection(words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(produce, ["t", *words, *NOBODY])
    assert done.exit_code == 2
    assert said in done.output
