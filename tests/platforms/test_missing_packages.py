"""Without the packages of single features, a broker and a client work, and errors name them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing.broker_process import BrokerProcess
from platforms.masking import LINUX, masked

# The modules of required packages that a start, a write and a read do without.
NEEDLESS = (
    *("uvloop", "click", "rich", "cramjam", "prometheus_client", "h11", "re2", "xxhash"),
    "cryptography",
)
WRITE_AND_READ = """
import sys
from barnabas import Consumer, Producer

for compression in ("none", "gzip"):
    with Producer(sys.argv[1], compression_type=compression) as producer:
        producer.send("t", compression.encode(), partition=0)
config = {"bootstrap_servers": sys.argv[1], "group_id": "g", "auto_offset_reset": "earliest"}
with Consumer("t", **config) as consumer:
    values = []
    while len(values) < 2:
        values += [record.value for record in consumer.poll(1.0)]
print(values)
"""
PRODUCE = """
from barnabas import Producer

Producer("127.0.0.1:1", compression_type="zstd")
"""
COMPILE = "from barnabas.settings import pattern; pattern.compile_with_captures('a.*b')"
HASH = "from barnabas.coordinator.group.topics import hash_topic; hash_topic('t', bytes(16), [])"
START = ("-m", "barnabas", "start", "--temporary", "--port", "0")
SECURED = (
    *("-m", "barnabas", "start", "--temporary", "--set", "listeners=SSL://127.0.0.1:0"),
    *("--set", "ssl.keystore.type=PKCS12", "--set", f"ssl.keystore.location={__file__}"),
)


def test_a_plain_broker_and_client_need_few_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in masked(LINUX, tmp_path, without=NEEDLESS).items():
        monkeypatch.setenv(name, value)
    with BrokerProcess(tmp_path / "broker") as broker:
        words = [sys.executable, "-c", WRITE_AND_READ, broker.bootstrap]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("[b'none', b'gzip']\n", "")
        assert "Traceback" not in broker.log()


@pytest.mark.parametrize(
    ("module", "words", "message"),
    [
        ("cramjam", ("-c", PRODUCE), "the compression zstd needs"),
        ("re2", ("-c", COMPILE), "a regular expression needs the package google-re2"),
        ("xxhash", ("-c", HASH), "a consumer group needs"),
        ("click", ("-m", "barnabas", "topics", "list"), "error: this command needs"),
        ("h11", (*START, "--metrics", "127.0.0.1:0"), "error: the metrics listener needs"),
        (
            "prometheus_client",
            (*START, "--metrics", "127.0.0.1:0"),
            "error: the metrics listener needs the package prometheus-client",
        ),
        ("cryptography", SECURED, "error: a PKCS12 store needs"),
        ("msgspec", START, "error: this command needs"),
    ],
    ids=lambda each: each if isinstance(each, str) and each.isidentifier() else "",
)
def test_the_error_names_the_missing_package(
    module: str, words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    environment = {**os.environ, **masked(LINUX, tmp_path, without=[module])}
    command = [sys.executable, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert message in last
    assert "pip install" in last
