"""Uses each required package of Barnabas once; test_installs.py runs it in new environments.

It imports nothing but Barnabas and the standard library.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import urllib.request

import barnabas
from barnabas.testing import BrokerProcess, SecuredBroker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def read_all(bootstrap: str, protocol: str) -> list[bytes]:
    """Read the records of all codecs by a pattern of topics, as a member of a group."""
    keys = {"group_protocol": protocol, "auto_offset_reset": "earliest"}
    with barnabas.Consumer(bootstrap_servers=bootstrap, group_id=protocol, **keys) as consumer:
        pattern = "^ord[a-z]+$"
        if protocol == "consumer":
            consumer.subscribe(barnabas.SubscriptionPattern(pattern))
        else:
            consumer.subscribe(pattern=pattern)
        records = iter(consumer)
        return [bytes(next(records).value or b"") for _ in CODECS]


def use_an_open_broker() -> None:
    """Records, groups, patterns, metrics and a table on a terminal."""
    with BrokerProcess(settings={"metrics.listener": "127.0.0.1:0"}) as broker:
        broker.create_topic("orders")
        for codec in CODECS:
            with barnabas.Producer(broker.bootstrap, compression_type=codec) as producer:
                producer.send("orders", codec.encode() * 100).result()
        for protocol in ("classic", "consumer"):
            found = read_all(broker.bootstrap, protocol)
            assert sorted(found) == sorted(codec.encode() * 100 for codec in CODECS), found
        with urllib.request.urlopen(f"http://{broker.metrics_address}/metrics") as response:
            text = response.read().decode()
        assert "kafka_server_brokertopicmetrics_messagesin_total" in text, text[:500]
        assert "orders" in on_a_terminal("topics", "list", "-b", broker.bootstrap)


def on_a_terminal(*words: str) -> str:
    """Return what a command writes to a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "barnabas", *words]
    done = subprocess.run(command, stdout=theirs, check=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0
    return os.read(ours, 65536).decode()


def use_a_secured_broker() -> None:
    """Certificates, TLS and logins."""
    with SecuredBroker() as broker:
        broker.create_topic("orders")
        writer = broker.add_user("writer", produce="orders")
        with barnabas.Producer(**writer.barnabas) as producer:
            producer.send("orders", b"one order").result()


if __name__ == "__main__":
    use_an_open_broker()
    use_a_secured_broker()
    print("done with", barnabas.__version__, "of", os.path.dirname(barnabas.__file__))
