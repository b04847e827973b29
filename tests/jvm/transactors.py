"""Transactional producers of Barnabas, librdkafka and Java with a common interface."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import confluent_kafka
from confluent_kafka import KafkaException

import barnabas
from barnabas.client.errors import ClientError
from jvm.java import java_command
from jvm.kafka_process import quick_machine

SOURCE = Path(__file__).with_name("Transactor.java")
# Timeout for calls that hang.
TIMEOUT_S = 150


class TransactorError(Exception):
    """The producer reported an error, which is the message."""


class Transactor(Protocol):
    """A producer with a transactional id; each call ends after the response of the brokers.

    Raises:
        TransactorError: the producer reported an error.
    """

    def init(self) -> None: ...
    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, value: str) -> None: ...
    def offset(self, group: str, topic: str, partition: int, offset: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None:
        """Close the producer without ending an open transaction."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class _Closing:
    """Closes itself at the end of a `with` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OurTransactor(_Closing):
    """The producer of the Barnabas client."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = barnabas.Producer(bootstrap, transactional_id=transactional_id)

    def init(self) -> None:
        with self._errors():
            self._producer.init_transactions()

    def begin(self) -> None:
        with self._errors():
            self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        with self._errors():
            self._producer.send(topic, value.encode(), partition=partition).result(TIMEOUT_S)

    def offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        with self._errors():
            self._producer.send_offsets_to_transaction({(topic, partition): offset}, group)

    def commit(self) -> None:
        with self._errors():
            self._producer.commit_transaction()

    def abort(self) -> None:
        with self._errors():
            self._producer.abort_transaction()

    def close(self) -> None:
        with contextlib.suppress(ClientError):
            self._producer.close(0, flush=False)

    @contextlib.contextmanager
    def _errors(self) -> contextlib.Iterator[None]:
        try:
            yield
        except ClientError as error:
            raise TransactorError(str(error)) from error


class LibrdkafkaTransactor(_Closing):
    """The producer of confluent-kafka."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
        )
        self._bootstrap = bootstrap

    def init(self) -> None:
        with self._errors():
            self._producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        with self._errors():
            self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        failed: list[object] = []
        with self._errors():
            self._producer.produce(
                topic,
                value.encode(),
                partition=partition,
                on_delivery=lambda error, _: error and failed.append(error),
            )
            assert self._producer.flush(TIMEOUT_S) == 0
        if failed:
            raise TransactorError(str(failed[0]))

    def offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        place = confluent_kafka.TopicPartition(topic, partition, offset)
        settings = {"bootstrap.servers": self._bootstrap, "group.id": group}
        consumer = confluent_kafka.Consumer(settings)
        metadata = consumer.consumer_group_metadata()
        consumer.close()
        with self._errors():
            self._producer.send_offsets_to_transaction([place], metadata, TIMEOUT_S)

    def commit(self) -> None:
        with self._errors():
            self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        with self._errors():
            self._producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        self._producer.purge()

    @contextlib.contextmanager
    def _errors(self) -> contextlib.Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise TransactorError(str(error)) from error


class JavaTransactor(_Closing):
    """The producer of the Java client, in a separate process."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        machine = quick_machine("kafka")
        words = java_command("kafka", log_level="ERROR", machine=machine, source=SOURCE)
        words += ["Transactor", f"bootstrap.servers={bootstrap}"]
        self._process = subprocess.Popen(
            [*words, f"transactional.id={transactional_id}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def init(self) -> None:
        self._call("init")

    def begin(self) -> None:
        self._call("begin")

    def send(self, topic: str, partition: int, value: str) -> None:
        self._call("send", topic, str(partition), value)

    def offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        self._call("offset", group, topic, str(partition), str(offset))

    def commit(self) -> None:
        self._call("commit")

    def abort(self) -> None:
        self._call("abort")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _call(self, *words: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        response = self._process.stdout.readline().strip()
        if response != "ok":
            raise TransactorError(response or "the process ended")


KINDS: dict[str, type[OurTransactor | LibrdkafkaTransactor | JavaTransactor]] = {
    "barnabas": OurTransactor,
    "librdkafka": LibrdkafkaTransactor,
    "java": JavaTransactor,
}
