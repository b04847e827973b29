"""Structs: constructor, equality, printing, defaults."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import traceback

import pytest

from barnabas.protocol.codec import decode
from barnabas.protocol.decoding import compile_decoder
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.schema import INT32, Struct, field, version_range


class Pair(Struct):
    left: int = field(INT32, "0+")
    right: int = field(INT32, "0+", default=7)


def test_constructor_takes_keywords_and_fills_defaults() -> None:
    assert Pair(left=1).right == 7


def test_constructor_requires_fields_without_a_default() -> None:
    with pytest.raises(TypeError, match="left"):
        Pair(right=1)  # type: ignore[call-arg]


def test_constructor_refuses_unknown_fields() -> None:
    with pytest.raises(TypeError, match="middle"):
        Pair(left=1, middle=2)  # type: ignore[call-arg]


def test_structs_are_equal_by_value() -> None:
    assert Pair(left=1) == Pair(left=1, right=7)
    assert Pair(left=1) != Pair(left=2)
    assert Pair(left=1) != 1


def test_printing_shows_every_field() -> None:
    assert repr(Pair(left=1)) == "Pair(left=1, right=7)"


def test_misspelt_attributes_are_refused() -> None:
    with pytest.raises(AttributeError):
        Pair(left=1).lift = 3  # type: ignore[attr-defined]


def test_list_defaults_are_not_shared() -> None:
    first = FetchTopic(partitions=[])
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[first])
    request.forgotten_topics_data.append(object())  # type: ignore[arg-type]
    other = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[first])
    assert other.forgotten_topics_data == []


def test_a_shared_default_struct_is_write_protected() -> None:
    data = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=None)
    assert data.diverging_epoch == EpochEndOffset()
    with pytest.raises(AttributeError, match="EpochEndOffset"):
        data.diverging_epoch.epoch = 3
    data.diverging_epoch = EpochEndOffset(epoch=3)
    assert data.diverging_epoch.epoch == 3


def test_omitted_structs_share_one_default() -> None:
    one = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=None)
    other = PartitionData(partition_index=1, error_code=0, high_watermark=0, records=None)
    assert one.diverging_epoch is other.diverging_epoch is EpochEndOffset.default_instance()


def test_structs_can_be_copied_and_pickled() -> None:
    data = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=b"x")
    assert copy.deepcopy(data) == data
    assert copy.copy(data) == data
    assert pickle.loads(pickle.dumps(data)) == data
    assert copy.deepcopy(data).diverging_epoch is data.diverging_epoch


def test_version_ranges_are_parsed_as_in_the_schemas() -> None:
    assert version_range("3") == (3, 3)
    assert version_range("3-7") == (3, 7)
    assert version_range("3+") == (3, 32767)
    assert version_range("none") is None


def test_importing_a_message_compiles_nothing() -> None:
    script = (
        "import linecache; from barnabas.protocol.messages import fetch, produce, metadata;"
        "print(sum('barnabas.protocol' in name for name in linecache.cache))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )
    assert done.stdout.strip() == "0"


def test_tracebacks_show_the_generated_line() -> None:
    # Another test of this process may have cleared the cache of source lines.
    compile_decoder(ProduceRequest, 9)
    with pytest.raises(ProtocolError) as caught:
        decode(ProduceRequest, 9, b"\x00\x00")
    cause = caught.value.__cause__
    assert cause is not None
    text = "".join(traceback.format_exception(cause))
    assert "ProduceRequest v9 decoder" in text
    assert "(view, pos)" in text


def test_structs_of_a_request_have_short_constructors() -> None:
    made = FetchPartition(partition=1, fetch_offset=2, partition_max_bytes=3)
    assert (made.current_leader_epoch, made.log_start_offset) == (-1, -1)
