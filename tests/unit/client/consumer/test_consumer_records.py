"""Records of a poll are freed partition by partition while they are read as columns."""

from __future__ import annotations

import subprocess
import sys
import weakref

import pytest

from barnabas.client.consumer.consumer_records import ConsumerRecords
from barnabas.client.consumer.partition_records import PartitionRecords
from barnabas.client.topic_partition import TopicPartition


class Watched(PartitionRecords):
    """One that can be seen to be freed: it has no slots."""


def make_parts() -> dict[TopicPartition, PartitionRecords]:
    return {tp: Watched(tp, ()) for tp in (TopicPartition("t", number) for number in range(3))}


def test_batches_are_returned_in_order_on_each_call() -> None:
    parts = make_parts()
    records = ConsumerRecords(parts, {})
    for _ in range(2):
        assert list(records.batches()) == list(parts.values())


def test_a_batch_is_freed_when_the_next_one_is_requested() -> None:
    batches = ConsumerRecords(make_parts(), {}).batches()
    part = next(batches)
    first = weakref.ref(part)
    part = next(batches)
    assert first() is None
    assert part.partition == 1


@pytest.mark.parametrize(("method", "package"), [("to_arrow", "pyarrow"), ("to_pandas", "pandas")])
def test_a_missing_package_is_an_error_that_names_the_extra(method: str, package: str) -> None:
    program = f"""
import sys
class NotInstalled:
    def find_spec(self, name, *_):
        if name == {package!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, NotInstalled())
from barnabas.client.consumer.consumer_records import ConsumerRecords
ConsumerRecords({{}}, {{}}).{method}()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert f"{method}() needs the package {package}" in done.stderr
    assert "pip install pyarrow pandas" in done.stderr
