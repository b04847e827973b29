"""Records are decoded for a page, and large ones in a thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.console.messages.formats import Decoders
from barnabas.console.messages.masking import NO_MASKS
from barnabas.console.messages.record_view import DecodedRecord, RecordView, record_size


def record(offset: int, value: bytes) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 0, 0, b"key", value, [("name", b"x"), ("n", None)])


@pytest.mark.parametrize(("size", "is_on_loop"), [(100, True), (50_000, False)])
def test_the_event_loop_decodes_small_records_only(size: int, is_on_loop: bool) -> None:
    threads = set()

    def fits(found: DecodedRecord) -> bool:
        threads.add(threading.get_ident())
        return found.offset == 1

    view = RecordView(Decoders(), NO_MASKS)
    records = [record(offset, b"x" * size) for offset in range(3)]
    [found] = asyncio.run(view.decode_all(records, fits))
    assert found.offset == 1
    assert (threads == {threading.get_ident()}) == is_on_loop


def test_all_records_are_shown_in_order() -> None:
    view = RecordView(Decoders(), NO_MASKS)
    shown = asyncio.run(view.show_all([record(0, b"x" * 9_000), record(1, b"b")], 10))
    assert [each.value.text for each in shown] == ["x" * 10, "b"]


def test_the_size_of_a_record_is_that_of_its_parts() -> None:
    assert record_size(record(0, b"1234")) == 3 + 4 + len("name") + 1 + len("n")
    decoded = RecordView(Decoders(), NO_MASKS).decode(record(0, b"1234"))
    assert decoded.size == record_size(record(0, b"1234"))
