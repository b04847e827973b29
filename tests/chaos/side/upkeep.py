"""Side loads of daily operation: a compacted topic, requests of operators, clients' metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import ClassVar

import barnabas
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from chaos.history import code_in, value_of
from chaos.load import read_each
from chaos.resources import Leftovers
from chaos.side.side_load import OWN_KEYS, SideLoad, SideOptions, TopicShape
from chaos.verdict import Verdict

MIB = 1 << 20
# The kind of request of the admin load that makes a producer.
MADE_AND_DELETED = "make_and_delete"


class CompactedLoad(SideLoad):
    """A producer that overwrites the values of some keys while the topic is compacted."""

    name = "compaction"
    TOPIC = "chaos-compacted"
    topics: ClassVar = {
        TOPIC: TopicShape(
            1,
            {
                "cleanup.policy": "compact",
                "segment.bytes": str(MIB),
                "min.cleanable.dirty.ratio": "0.1",
            },
        )
    }
    settings: ClassVar = {"log.cleaner.backoff.ms": "2000"}
    RECORD_KEYS = 50
    PADDING = b"." * 1000
    PAUSE_S = 0.02
    KINDS = ("stale",)

    def __init__(self, options: SideOptions) -> None:
        super().__init__(options)
        # The last number that was sent, and the last acknowledged one, by key.
        self._sent: dict[bytes, int] = {}
        self._acknowledged: dict[bytes, int] = {}
        self._next = 0

    def _run(self) -> None:
        keys = {**OWN_KEYS, "delivery.timeout.ms": 120_000, "linger.ms": 2}
        with barnabas.Producer(self.options.bootstrap, **keys) as producer:
            while not self._stopping.wait(self.PAUSE_S):
                self._send(producer)
            producer.flush()

    def _send(self, producer: barnabas.Producer) -> None:
        number, self._next = self._next, self._next + 1
        key = b"%d" % self.rng.randrange(self.RECORD_KEYS)
        self._sent[key] = number

        def on_delivery(metadata: object, error: ClientError | None) -> None:
            if error is None:
                self._acknowledged[key] = max(number, self._acknowledged.get(key, -1))
            else:
                self.options.errors.add(f"compaction: {type(error).__name__}")

        value = b"%s|%s" % (key, self.PADDING)
        producer.send(self.TOPIC, value_of(0, number, value), key, 0, on_delivery=on_delivery)
        producer.poll(0)

    def judge(self) -> Verdict:
        """Return keys whose last value is older than the last acknowledged one."""
        verdict = Verdict(self.KINDS)
        last: dict[bytes, int] = {}
        for _, value in read_each(self.options.bootstrap, self.TOPIC, 0):
            key = (value or b"").split(b":", 2)[2].split(b"|")[0]
            last[key] = code_in(value)
        for key, number in self._acknowledged.items():
            found = last.get(key, -1)
            if not number <= found <= self._sent[key]:
                verdict.add("stale", f"key {key!r}: {number} is acknowledged, the log has {found}")
        return verdict

    def figures(self) -> dict[str, int]:
        """Return the number of records."""
        return {"records": self._next}


class AdminLoad(SideLoad):
    """An operator: each request has a new client, and thus new connections."""

    name = "admin"
    TOPIC = "chaos-operated"
    topics: ClassVar = {TOPIC: TopicShape(3)}
    PAUSE_S = 0.3
    KINDS = ("admin",)

    def __init__(self, options: SideOptions) -> None:
        super().__init__(options)
        self._counts: Counter[str] = Counter()

    def _run(self) -> None:
        requests: tuple[Callable[[barnabas.Client], object], ...] = (
            self._describe,
            self._list,
            self._alter,
            self._make_and_delete,
        )
        while not self._stopping.wait(self.PAUSE_S):
            request = self.rng.choice(requests)
            try:
                with barnabas.Client(self.options.bootstrap, **OWN_KEYS) as client:
                    request(client)
                self._counts[request.__name__.strip("_")] += 1
            except ClientError as error:
                self.options.errors.add(f"admin: {request.__name__}: {type(error).__name__}")

    def _describe(self, client: barnabas.Client) -> None:
        groups = client.admin.list_groups()
        client.admin.describe_groups([each.group_id for each in groups][:20])
        client.admin.describe_configs([ConfigResource(ResourceType.TOPIC, self.TOPIC)])

    def _list(self, client: barnabas.Client) -> None:
        client.admin.list_topics(internal=True)
        brokers = client.admin.describe_cluster().brokers
        client.admin.describe_log_dirs([each.id for each in brokers])
        client.admin.list_transactions()
        client.list_offsets({(self.TOPIC, number): "latest" for number in range(3)})

    def _alter(self, client: barnabas.Client) -> None:
        retention = str(self.rng.randrange(3_600_000, 36_000_000))
        client.alter_topic_configs(self.TOPIC, {"retention.ms": retention})
        client.alter_topic_configs(self.TOPIC, {"retention.ms": None})

    def _make_and_delete(self, client: barnabas.Client) -> None:
        name = f"chaos-brief-{self.rng.randrange(1 << 30)}"
        client.create_topic(name, 2)
        producer = client.producer()
        producer.send(name, b"value")
        producer.flush()
        client.delete_topics([name])

    def judge(self) -> Verdict:
        """Return nothing: errors are counted, and the logs of the nodes are searched."""
        return Verdict(self.KINDS)

    def leftovers(self) -> Leftovers:
        """Return the producers, which each send one record to a new topic."""
        return Leftovers(producers_in_partitions=self._counts[MADE_AND_DELETED])

    def figures(self) -> dict[str, int]:
        """Return the numbers of requests by kind."""
        return dict(self._counts)


class TelemetryLoad(SideLoad):
    """A subscription to the metrics of all clients of librdkafka, which push them (KIP-714)."""

    name = "telemetry"
    settings: ClassVar = {"barnabas.client.telemetry": "log"}
    SUBSCRIPTION: ClassVar = {
        "metrics": "*",
        "interval.ms": "5000",
        "match": "client_software_name=confluent-kafka-python.*|librdkafka.*",
    }
    KINDS = ("telemetry",)

    def _run(self) -> None:
        with barnabas.Client(self.options.bootstrap, **OWN_KEYS) as client:
            resource = ConfigResource(ResourceType.CLIENT_METRICS, "chaos")
            client.admin.alter_configs(resource, self.SUBSCRIPTION)
        self._stopping.wait()

    def judge(self) -> Verdict:
        """Return nothing: the pushes must not disturb the nodes, whose logs are searched."""
        return Verdict(self.KINDS)
