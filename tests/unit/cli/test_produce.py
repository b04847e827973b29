"""JSON lines of `barnabas produce`: what is taken, and what is said of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.cli.produce import Options, _deliver, _json_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OPTIONS = Options(None, None, [], empty_is_null=False, from_json=True, partition=None)


def test_a_line_becomes_a_record() -> None:
    line = b'{"key":"k","value":{"a":1},"headers":[["h","v"],["h",null]],"timestamp":5}'
    headers = [("h", b"v"), ("h", None)]
    assert _json_record(line, OPTIONS) == ((b"k", b'{"a":1}', headers, 5), None)


def test_bytes_come_as_base64() -> None:
    record, partition = _json_record(b'{"value_base64":"/w==","partition":3}', OPTIONS)
    assert (record[1], partition) == (b"\xff", 3)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{bad", "not a JSON line"),
        (b"[1]", 'object with "value"'),
        (b'{"value":1,"partition":"p"}', '"partition" is no whole number'),
        (b'{"value":1,"partition":true}', '"partition" is no whole number'),
        (b'{"value":1,"timestamp":"now"}', '"timestamp" is no whole number'),
        (b'{"value":1,"timestamp":1e30}', '"timestamp" is no whole number'),
        (b'{"value":1,"timestamp":-5}', '"timestamp" is no whole number'),
        (b'{"value":1,"headers":[1]}', '"headers" is neither'),
        (b'{"value":1,"headers":5}', '"headers" is neither'),
        (b'{"value_base64":"!"}', "not base64"),
        (b'{"value_base64":5}', "not base64"),
        (b'{"value":{"base64":[]}}', "not base64"),
    ],
)
def test_a_wrong_line_is_an_error_that_shows_it(line: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        _json_record(line, OPTIONS)
    assert repr(line) in str(raised.value)


class CountingProducer:
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def send_batch(self, *_arguments: object) -> None:
        self.asked.append("send_batch")

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments, **_options: self.asked.append(name)


def test_lines_are_polled_out_though_input_makes_no_pause(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"1\n2\n")
    producer: Any = CountingProducer()
    with path.open("rb") as file:
        assert _deliver(producer, "t", [file], OPTIONS._replace(from_json=False)) is None
    assert producer.asked[:2] == ["send_batch", "poll"]
    assert producer.asked[-1] == "close"
