"""`barnabas why` with three brokers of each kind, using only their responses."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from barnabas.client.facade import Client
from barnabas.client.topic_partition import TopicPartition
from barnabas.testing.cluster_process import ClusterProcess
from conformance.cli_shell import Shell
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance

SECONDS = 60


@pytest.fixture
def shell(three_brokers: ClusterProcess) -> Shell:
    """A shell whose topic has three partitions of three replicas, with ten records each."""
    made = Shell(three_brokers.bootstrap)
    with Client(three_brokers.bootstrap) as client:
        client.create_topic(made.topic, 3, 3, {"min.insync.replicas": "2"})
        with client.producer() as producer:
            for number in range(3):
                producer.send_batch(made.topic, [(None, b"x", [], None)] * 10, number)
    return made


def why(shell: Shell, *words: str) -> dict[str, list[dict[str, Any]]]:
    """Return the reasons by subject."""
    done = shell.run_in_process("why", *words, "--json", "--seconds", "0.5")
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["well"] else 1)
    return {each["subject"]: each["reasons"] for each in found["answers"]}


def kinds(reasons: list[dict[str, Any]]) -> list[str]:
    return [reason["kind"] for reason in reasons]


def await_reason(current_kinds: Callable[[], list[str]], kind: str) -> None:
    seen: list[str] = []

    def is_found() -> bool:
        seen[:] = current_kinds()
        return kind in seen

    eventually(is_found, lambda: seen)


def test_a_healthy_partition_is_reported_as_healthy(shell: Shell) -> None:
    def all_are_well() -> bool:
        found = why(shell, "--topic", shell.topic)
        assert list(found) == [f"{shell.topic}-{number}" for number in range(3)]
        return all("well" in kinds(reasons) for reasons in found.values())

    eventually(all_are_well)


@pytest.mark.parametrize(
    ("offset", "kind"), [(0, "below-log-start"), (7, "readable"), (10, "not-written")]
)
def test_an_offset_is_deleted_readable_or_not_written(shell: Shell, offset: int, kind: str) -> None:
    with Client(shell.environment["BARNABAS_BOOTSTRAP"]) as client:
        client.admin.delete_records({TopicPartition(shell.topic, 0): 3})
    where = f"{shell.topic}:0@{offset}"
    eventually_equal(lambda: [kinds(each) for each in why(shell, where).values()], [[kind]])


def test_a_paused_follower_holds_back_the_high_watermark_until_it_leaves_the_isr(
    shell: Shell, three_brokers: ClusterProcess
) -> None:
    with Client(three_brokers.bootstrap, acks="1", enable_idempotence=False) as client:
        controller = client.admin.describe_quorum().leader_id
        partitions = client.describe_topics([shell.topic])[shell.topic].partitions
        hanging = next(n for n in (1, 2, 3) if n != controller and n != partitions[0].leader)
        producer = client.producer()
        three_brokers.node(hanging).pause()
        try:
            producer.send_batch(shell.topic, [(None, b"x", [], None)] * 5, 0)
            producer.flush()
            words = (f"{shell.topic}:0", "-X", "request.timeout.ms=500")
            await_reason(lambda: kinds(why(shell, *words)[f"{shell.topic}-0"]), "replica-fenced")

            def is_committed() -> bool:
                shown = shell.json("partitions", "show", shell.topic)[0]
                return hanging not in shown["isr"] and shown["high_watermark"] == 15

            eventually(is_committed)
        finally:
            three_brokers.node(hanging).resume()
        await_reason(lambda: kinds(why(shell, words[0])[f"{shell.topic}-0"]), "well")


def test_a_stalled_high_watermark_is_explained(shell: Shell, three_brokers: ClusterProcess) -> None:
    """Collect the facts in this process: a paused broker stays in the ISR for seconds only."""
    from barnabas.cli.why.gather import MetricFacts, gather_partitions
    from barnabas.cli.why.partition_reasons import partition_reasons

    tp = TopicPartition(shell.topic, 0)
    acks = {"acks": "1", "enable_idempotence": False}
    written = 10
    with (
        Client(three_brokers.bootstrap, **acks) as writer,
        Client(three_brokers.bootstrap, request_timeout_ms=500) as client,
        writer.producer() as producer,
    ):

        def write(count: int) -> None:
            nonlocal written
            producer.send_batch(tp.topic, [(None, b"x", [], None)] * count, 0)
            producer.flush()
            written += count

        def explained_while_paused() -> Any:
            """Return facts, paused broker and reason; False if it left the ISR too early."""
            write(1)
            eventually_equal(lambda: writer.list_offsets({tp: "latest"})[tp].offset, written)
            await_reason(lambda: kinds(why(shell, f"{tp.topic}:0")[str(tp)]), "well")
            controller = writer.admin.describe_quorum().leader_id
            leader = writer.describe_topics([tp.topic])[tp.topic].partitions[0].leader
            hanging = next(n for n in (1, 2, 3) if n not in (controller, leader))
            three_brokers.node(hanging).pause()
            try:
                write(5)
                (facts,) = gather_partitions(client, [tp.topic], [tp], 0.2, MetricFacts())
            finally:
                three_brokers.node(hanging).resume()
            found = [r for r in partition_reasons(facts) if r.kind == "isr-member-away"]
            return found and facts.high_watermark != facts.end and (facts, hanging, found[0])

        facts, hanging, reason = eventually(explained_while_paused)
    assert f"broker {hanging} is in the ISR" in reason.what
    assert "5 records are not committed, the oldest was written" in reason.what
    assert facts.end == written
    assert facts.high_watermark == written - 5
    await_reason(lambda: kinds(why(shell, f"{tp.topic}:0")[str(tp)]), "well")


def test_a_partition_without_its_only_replica_is_reported(
    shell: Shell, three_brokers: ClusterProcess
) -> None:
    controller = shell.json("quorum", "describe")["leader"]
    node = three_brokers.node(next(n for n in (1, 2, 3) if n != controller))
    single = f"{shell.topic}-single"
    assert shell.run_in_process("topics", "create", single, "-r", "1").returncode == 0
    spec = f"{single}:0={node.node_id}"
    assert shell.run_in_process("partitions", "reassign", "-r", spec, "--execute").returncode == 0
    node.kill()
    try:
        seen: dict[str, list[dict[str, Any]]] = {}

        def is_gone() -> bool:
            seen.clear()
            seen.update(why(shell, f"{single}:0"))
            reasons = kinds(seen[f"{single}-0"]), kinds(seen.get("the cluster", []))
            return reasons == (["no-leader"], ["brokers-fenced", "machine"])

        eventually(is_gone, lambda: seen)
        assert f"start broker {node.node_id}" in seen[f"{single}-0"][0]["remedy"]
        subject = f"{single}-0 at 5"
        await_reason(lambda: kinds(why(shell, f"{single}:0@5")[subject]), "no-leader")
    finally:
        node.start()
    # A topic with one replica does not lack replicas, even if min.insync.replicas is 2.
    words = ("topic", single, "min.insync.replicas=2")
    assert shell.run_in_process("configs", "set", *words).returncode == 0
    await_reason(lambda: kinds(why(shell, f"{single}:0")[f"{single}-0"]), "well")


# Groups


def consumer(shell: Shell, **config: Any) -> Consumer:
    settings = {
        "bootstrap.servers": shell.environment["BARNABAS_BOOTSTRAP"],
        "group.id": shell.topic,
        "auto.offset.reset": "earliest",
        "client.id": "reader",
        "enable.auto.commit": False,
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    return Consumer(settings)


def read_some(reader: Consumer, count: int) -> None:
    for _ in range(count):
        eventually(lambda: (m := reader.poll(0.5)) is not None and m.error() is None)


def test_a_missing_an_empty_and_a_finished_group_are_reported(shell: Shell) -> None:
    subject = f"group {shell.topic}"

    def found() -> list[str]:
        return kinds(why(shell, "--group", shell.topic)[subject])

    # The first group of a cluster creates the topic of committed offsets.
    eventually_equal(found, ["no-such-group"])
    partitions = [TopicPartition(shell.topic, number) for number in range(3)]
    with Client(shell.environment["BARNABAS_BOOTSTRAP"]) as client:
        client.commit_offsets(shell.topic, dict.fromkeys(partitions, 4))
        eventually_equal(found, ["no-members"])
        # If a group and a topic have the same name, both are explained.
        assert subject in why(shell, shell.topic)
        assert f"{shell.topic}-0" in why(shell, shell.topic)
        client.commit_offsets(shell.topic, dict.fromkeys(partitions, 10))
        eventually_equal(
            lambda: [each["verdict"] for each in why(shell, "--group", shell.topic)[subject]],
            ["note", "ok"],
        )
        client.commit_offsets(shell.topic, dict.fromkeys(partitions, 99))
        eventually_equal(lambda: found()[1:], ["beyond-end"] * 3)
        client.admin.delete_records({partitions[0]: 5})
        client.commit_offsets(shell.topic, dict.fromkeys(partitions, 4))
        await_reason(found, "below-log-start")


def test_a_member_that_does_not_commit_is_named(shell: Shell) -> None:
    reader = consumer(shell)
    try:
        reader.subscribe([shell.topic, f"{shell.topic}-missing"])
        read_some(reader, 5)
        subject = f"group {shell.topic}"

        def reasons() -> list[dict[str, Any]]:
            return why(shell, "--group", shell.topic)[subject]

        await_reason(lambda: kinds(reasons()), "never-committed")
        reader.commit(asynchronous=False)
        stalled = eventually(lambda: [r for r in reasons() if r["kind"] == "reader-stalled"])
        assert "reader at 127.0.0.1" in stalled[0]["what"]
    finally:
        reader.close()


def test_a_rebalance_that_waits_for_a_member_is_reported(shell: Shell) -> None:
    subject = f"group {shell.topic}"
    first = consumer(shell)
    second = consumer(shell)
    try:
        first.subscribe([shell.topic])
        read_some(first, 1)
        # The first member must rejoin, which it does when it polls.
        second.subscribe([shell.topic])

        def found(*polled: Consumer) -> list[str]:
            for each in polled:
                each.poll(0.1)
            return kinds(why(shell, "--group", shell.topic)[subject])

        await_reason(lambda: found(second), "rebalance-preparing")
        eventually(lambda: not found(first, second)[0].startswith("rebalance"))
    finally:
        second.close()
        first.close()


def test_an_open_transaction_is_named(shell: Shell, three_brokers: ClusterProcess) -> None:
    name = f"{shell.topic}-{os.getpid()}"
    producer = Producer({"bootstrap.servers": three_brokers.bootstrap, "transactional.id": name})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(shell.topic, b"x", partition=0)
    producer.flush(SECONDS)
    subject = f"{shell.topic}-0"
    try:

        def open_transactions() -> list[dict[str, Any]]:
            reasons = why(shell, f"{shell.topic}:0")[subject]
            return [each for each in reasons if each["kind"] == "transaction-open"]

        (reason,) = eventually(open_transactions)
        assert "read_committed consumers receive no records from 10 on" in reason["what"]
        assert f"transactional id {name} (Ongoing at its coordinator, broker" in reason["what"]
        assert "of its timeout of 60 s" in reason["what"]
        assert reason["remedy"].endswith(f"barnabas transactions terminate {name}")
        at = f"{subject} at 10"
        eventually_equal(
            lambda: kinds(why(shell, f"{shell.topic}:0@10")[at]), ["readable", "transaction-open"]
        )
    finally:
        producer.abort_transaction(SECONDS)
    await_reason(lambda: kinds(why(shell, f"{shell.topic}:0")[subject]), "well")


# On a terminal


def test_reasons_are_printed_with_a_remedy(shell: Shell) -> None:
    done = shell.run("why", f"{shell.topic}:0@0")
    assert done.stdout.splitlines()[0] == f"{shell.topic}-0 at 0"
    assert done.returncode == 0
    done = shell.run_in_process("why", f"{shell.topic}:7")
    assert done.returncode == 1
    assert f"{shell.topic} has partitions 0 to 2; `barnabas topics alter` adds more" in done.stderr
    assert shell.run_in_process("why", "orders@5").returncode == 2
    assert shell.run_in_process("why", "--group", "--topic", "x").returncode == 2
    unreachable = shell.run_in_process("why", "-m", "127.0.0.1:1", shell.topic)
    assert (unreachable.returncode, "metrics.listener" in unreachable.stderr) == (1, True)
