"""Debian's kcat (librdkafka 2.0.2) lists, produces and consumes."""

from __future__ import annotations

import json

import pytest

from conformance.kcat_command import kcat
from jvm.maven import need


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    need("kcat")


def test_kcat_lists_brokers_and_topics(bootstrap: str, topic: str) -> None:
    listed = json.loads(kcat(bootstrap, "-L", "-J"))
    assert len(listed["brokers"]) == 1
    (found,) = [each for each in listed["topics"] if each["topic"] == topic]
    assert found["partitions"][0]["leader"] == listed["brokers"][0]["id"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_reads_its_own_records(bootstrap: str, topic: str, codec: str) -> None:
    lines = "".join(f"line {number}\n" for number in range(500))
    kcat(bootstrap, "-P", "-t", topic, "-z", codec, text=lines)
    assert kcat(bootstrap, "-C", "-t", topic, "-e", "-q") == lines


def test_kcat_handles_keys_headers_and_offsets(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-K", ":", "-H", "from=kcat", text="a:1\nb:2\n")
    found = kcat(bootstrap, "-C", "-t", topic, "-e", "-q", "-f", "%o %k=%s %h\n")
    assert found == "0 a=1 from=kcat\n1 b=2 from=kcat\n"


def test_kcat_reads_from_an_offset_and_from_the_end(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, text="".join(f"{n}\n" for n in range(10)))
    assert kcat(bootstrap, "-C", "-t", topic, "-o", "7", "-e", "-q") == "7\n8\n9\n"
    assert kcat(bootstrap, "-C", "-t", topic, "-o", "-2", "-e", "-q") == "8\n9\n"


def test_kcat_finds_offsets_by_time(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, text="x\n")
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:1") == f"{topic} [0] offset 0\n"
