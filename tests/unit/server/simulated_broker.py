"""A complete broker in virtual time on a simulated host, and a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.network.channel import Channel, ChannelDependencies
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.record.builder import BatchBuilder
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.process.node import Node
from barnabas.sim.world import SimWorld
from barnabas.waiting.timing_wheel import TimingWheel

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.network_error import NetworkError
    from barnabas.protocol.schema import Message
    from barnabas.runtime.loop import Runtime
    from barnabas.runtime.sockets import Sockets
    from barnabas.sim.world import SimHost

HOST, PORT = "broker", 9092
TIMEOUT_MS = 30_000


class SimulatedBroker:
    """Starts at once; `ask` advances virtual time until the response has arrived."""

    def __init__(self, seed: int = 1, **settings: str) -> None:
        self.world = SimWorld(seed)
        self.host: SimHost = self.world.host(HOST)
        self.settings = {"listeners": f"PLAINTEXT://{HOST}:{PORT}", "log.dirs": "/data"}
        self.settings.update({key.replace("_", "."): value for key, value in settings.items()})
        self.failures: list[BaseException] = []
        self.ready: list[str] = []
        self.node = self.start()
        self.client = SimulatedClient(self.world, "client")

    def start(self) -> Node:
        """Start a process on the host's disk, and wait until it is ready."""
        self.ready.clear()
        self.node = Node(
            read_configuration(self.settings),
            self.host.runtime,
            self.ready.append,
            self.failures.append,
        )
        self.node.start()
        assert self.world.run_until(lambda: bool(self.ready)), self.failures
        return self.node

    def stop(self) -> None:
        """Stop cleanly, and end the process."""
        stopped: list[bool] = []
        self.node.stop(lambda: stopped.append(True))
        assert self.world.run_until(lambda: bool(stopped))
        self.host.kill()

    def restart(self) -> None:
        """Start a new process on the same disk, and connect to it."""
        self.host.start()
        self.start()
        self.client = SimulatedClient(self.world, f"client-{self.world.scheduler.now_ms}")

    def ask(self, request: Message, version: int) -> Any:
        """Send a request of the client, and return the response."""
        return self.client.ask(request, version)

    def make_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=[],
                    configs=[
                        CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ],
            timeout_ms=TIMEOUT_MS,
        )
        assert self.ask(request, 5).topics[0].error_code == 0

    def metadata(self, *names: str, version: int = 12) -> Any:
        """Return the metadata of topics."""
        topics = [MetadataRequestTopic(name=name) for name in names]
        return self.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), version)

    def produce(self, topic: str, *values: bytes, version: int = 9, **options: int) -> Any:
        """Append one batch to partition 0, and return the partition's response."""
        request = produce_request(topic, self.batch(*values, **options))
        return self.ask(request, version).responses[0].partition_responses[0]

    def batch(self, *values: bytes, **options: int) -> bytes:
        """Return a batch of these values."""
        builder = BatchBuilder(**options)
        for value in values:
            builder.append(self.host.clock.wall_ms(), None, value)
        return bytes(builder.build())


class SimulatedClient:
    """One connection from a separate host."""

    def __init__(
        self,
        world: SimWorld,
        name: str,
        port: int = PORT,
        wrap: Callable[[Runtime], Sockets] = lambda runtime: runtime.sockets,
        host: str = HOST,
    ) -> None:
        self._world = world
        runtime = world.host(name).runtime
        wheel = TimingWheel(runtime.clock, runtime.timer)
        dependencies = ChannelDependencies(
            runtime.clock, runtime.timer, wrap(runtime), wheel, new_receive_buffer()
        )
        self.closed: list[NetworkError] = []
        self.channel = Channel(dependencies, name, lambda _, error: self.closed.append(error))
        connected: list[NetworkError | None] = []
        self.channel.connect(host, port, TIMEOUT_MS, connected.append)
        assert world.run_until(lambda: bool(connected or self.closed))

    def send(self, request: Message, version: int) -> list[tuple[Any, NetworkError | None]]:
        """Send a request; the outcome is added to the returned list."""
        outcome: list[tuple[Any, NetworkError | None]] = []
        self.channel.send(request, version, lambda *result: outcome.append(result), TIMEOUT_MS)
        return outcome

    def ask(self, request: Message, version: int) -> Any:
        """Send a request, advance virtual time, and return the response."""
        outcome = self.send(request, version)
        assert self._world.run_until(lambda: bool(outcome))
        response, error = outcome[0]
        assert error is None, error
        return response


def produce_request(topic: str, records: bytes | None, acks: int = -1) -> ProduceRequest:
    """Return a request with one record set for partition 0."""
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=TIMEOUT_MS,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=0, records=records)]
            )
        ],
    )
