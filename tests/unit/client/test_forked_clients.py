"""Clients in a forked child: each call raises an error that says what to do, and sends nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

import barnabas
from barnabas.client.connections.metadata_cache import PartitionInfo, TopicInfo
from barnabas.client.errors import ForkedClientError
from barnabas.client.facade import Client
from barnabas.client.share.share_consumer import ShareConsumer
from barnabas.client.user_code import UserCode

ADDRESS = "127.0.0.1:1"
TP = ("t", 0)

# Calls by name with arguments, for each client. The other public names do not use connections.
PRODUCER: dict[str, tuple[Any, ...]] = {
    "send": ("t", b"v"),
    "send_batch": ("t", []),
    "poll": (),
    "flush": (),
    "partitions_for": ("t",),
    "init_transactions": (),
    "begin_transaction": (),
    "send_offsets_to_transaction": ({TP: 1}, "g"),
    "prepare_transaction": (),
    "complete_transaction": (None,),
    "commit_transaction": (),
    "abort_transaction": (),
    "detach_transaction": (),
}
CONSUMER: dict[str, tuple[Any, ...]] = {
    "subscribe": (["t"],),
    "unsubscribe": (),
    "assign": ([TP],),
    "assignment": (),
    "subscription": (),
    "poll": (),
    "position": (TP,),
    "seek": (TP, 1),
    "seek_to_beginning": (),
    "seek_to_end": (),
    "seek_to_time": (1,),
    "commit": (),
    "commit_async": (),
    "committed": ([TP],),
    "pause": (TP,),
    "resume": (TP,),
    "beginning_offsets": ([TP],),
    "end_offsets": ([TP],),
    "offsets_for_times": ({TP: 1},),
    "partitions_for": ("t",),
    "list_topics": (),
}
SHARE_CONSUMER: dict[str, tuple[Any, ...]] = {
    "subscribe": (["t"],),
    "unsubscribe": (),
    "subscription": (),
    "poll": (),
    "commit_sync": (),
    "commit_async": (),
    "acknowledge_offset": ("t", 0, 1),
    "client_instance_id": (),
}
CLIENT: dict[str, tuple[Any, ...]] = {
    "topics": (),
    "describe_topics": (["t"],),
    "list_offsets": ({TP: "latest"},),
    "stream": ({TP: (0, 1)},),
    "producer": (),
    "commit_offsets": ("g", {TP: 1}),
    "committed": ("g",),
    "create_topic": ("t",),
    "delete_topics": (["t"],),
    "describe_cluster": (),
}
ADMIN: dict[str, tuple[Any, ...]] = {
    "list_topics": (),
    "describe_cluster": (),
    "list_groups": (),
    "delete_topics": (["t"],),
    "describe_quorum": (),
}


def producer_with_a_known_topic() -> barnabas.Producer:
    """Return a producer that has queued a record without any broker."""
    producer = barnabas.Producer(ADDRESS)
    metadata = producer._core.cluster.metadata
    metadata.topics["t"] = TopicInfo("t", bytes(16), False, {0: PartitionInfo(0, 1, 4)})
    producer.send("t", b"of the parent")
    return producer


def consumer_with_a_partition() -> barnabas.Consumer:
    consumer = barnabas.Consumer(bootstrap_servers=ADDRESS, group_id="g")
    consumer.assign([TP])
    return consumer


def other_outcomes(client: Any, calls: dict[str, tuple[Any, ...]]) -> list[str]:
    """Return the calls that did not raise ForkedClientError, with what they did."""
    found = []
    for name, arguments in calls.items():
        with UserCode() as code:
            getattr(client, name)(*arguments)
        if not isinstance(code.error, ForkedClientError):
            found.append(f"{name}: {code.error!r}")
    client.close()
    return found


@pytest.mark.parametrize(
    ("make", "calls"),
    [
        (producer_with_a_known_topic, PRODUCER),
        (consumer_with_a_partition, CONSUMER),
        (lambda: ShareConsumer(bootstrap_servers=ADDRESS, group_id="g"), SHARE_CONSUMER),
        (lambda: Client(ADDRESS), CLIENT),
        (lambda: barnabas.Admin(ADDRESS), ADMIN),
    ],
    ids=["producer", "consumer", "share consumer", "client", "admin"],
)
def test_each_call_in_a_forked_child_raises(
    make: Callable[[], Any], calls: dict[str, tuple[Any, ...]]
) -> None:
    client = make()
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(sink, json.dumps(other_outcomes(client, calls)).encode())
        os._exit(0)
    os.close(sink)
    with open(source) as file:
        assert json.loads(file.read()) == []
    os.waitpid(child, 0)
    if isinstance(client, barnabas.Producer):
        client.close(flush=False)
    else:
        client.close()


def test_the_parent_may_send_after_a_fork() -> None:
    producer = producer_with_a_known_topic()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    producer.send("t", b"of the parent")
    producer.close(flush=False)
    assert producer.failed == 2
