"""The tools of a case: both brokers, separate topics and records on both, and comparison."""

from __future__ import annotations

import itertools
import re
import time
import zlib
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.schema import Message
from barnabas.record.builder import BatchBuilder
from differential.request import Values, request
from differential.response import Flat, differences, flatten, read_response
from differential.rules import HOUR_MS
from differential.side import SILENT, Side
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from differential.side import Identity

    # The same values for both sides, or a function of the ids of each side.
    Build = Values | Callable[[Side], Values | Message]

POLL_S = 0.003
# A request counts as pending if no response arrives within this time and after so many responses
# to other requests. The second line applies if the other broker has responded.
PATIENCE_S, PINGS = 0.01, 4
LATE_S, LATE_PINGS = 0.07, 10
# Kafka's number of network threads, which take new connections in turn.
NETWORK_THREADS = 3
AGREEMENT_S = 2.0
SHOWN_MAX = 200
# Names of objects begin with the name of their case, up to this length.
NAME_MAX = 80
# Kafka advertises Produce v0-2, which it does not serve, because librdkafka looks for them.
ADVERTISED_ONLY = {ApiKey.PRODUCE: 3}
# The timestamp of records: both brokers store the same bytes. It differs from the brokers' clocks,
# so that times which a broker assigns can be distinguished.
NOW_MS = int(time.time() * 1000) - 3 * HOUR_MS


class Compared(NamedTuple):
    """Counts of compared responses, in total and by the class of input."""

    responses: int
    by_class: Counter[str]


class Pair:
    """Apache Kafka and Barnabas, for all cases; counts the comparisons."""

    def __init__(self, kafka: Side, barnabas: Side) -> None:
        self.kafka = kafka
        self.barnabas = barnabas
        self.compared: Counter[ApiKey] = Counter()
        self.played: Counter[ApiKey] = Counter()
        # A topic that no case changes, with its id on each broker.
        self.shared_topic: tuple[str, list[bytes]] | None = None
        # The topic of cases with transactions, with its id on each broker, and the number of such
        # cases.
        self.quiet_topic: tuple[str, list[bytes]] | None = None
        self.transactions = 0
        # Transactional ids whose transaction took too long, with their producer ids.
        self.timed_out: list[tuple[str, list[Identity]]] = []
        # Objects that several cases share, by name.
        self.shared_objects: dict[str, Any] = {}
        # Comparisons of each case.
        self.by_case: dict[str, Compared] = {}
        # Differences that did not appear again when the case was repeated.
        self.differed_once: list[str] = []
        # Cases that were played in all versions.
        self.complete: set[str] = set()
        self._served = [advertised(side) for side in self.sides()]

    def sides(self) -> tuple[Side, Side]:
        """Return both sides, Kafka first."""
        return self.kafka, self.barnabas

    def versions(self, api: ApiKey) -> range:
        """Return the versions of an API that both sides advertise."""
        spans = [served.get(api, (0, -1)) for served in self._served]
        spans.append((ADVERTISED_ONLY.get(api, 0), 0x7FFF))
        return range(max(first for first, _ in spans), min(last for _, last in spans) + 1)

    def close(self) -> None:
        """Close all connections."""
        for side in self.sides():
            side.close_all()


def _name_part(name: str) -> str:
    """Return the name of a case; a checksum replaces the end of a long name."""
    if len(name) <= NAME_MAX:
        return name
    return f"{name[: NAME_MAX - 8]}{zlib.crc32(name.encode()):08x}"


class Scene:
    """One case in one version of its API."""

    def __init__(self, pair: Pair, api: ApiKey, name: str, version: int) -> None:
        self.pair = pair
        self.api = api
        self.version = version
        # Numbers of compared responses by the class of input.
        self.by_class: Counter[str] = Counter()
        # Label of the next responses in the differences. If empty, they are numbered.
        self.label = ""
        # Removes the parts of a response that do not concern the case.
        self.before_comparing: Callable[[Any], None] = lambda _: None
        # Called with the API, the version, Kafka's response as values and Barnabas's response as
        # bytes.
        self.after_comparing: Callable[[ApiKey, int, Flat, bytes], None] = lambda *_: None
        # Names of objects that only this scene uses, by kind.
        self.own_objects: dict[str, str] = {}
        self._name = name
        self._numbers = itertools.count(1)
        self._steps = itertools.count(1)
        self._found: list[tuple[str, object, object]] = []
        pair.played[api] += 1
        for side in pair.sides():
            side.forget()

    # Comparison. Methods return the decoded responses, Kafka's first; None if there is no
    # response.

    def compare(
        self, build: Build, api: ApiKey | None = None, version: int | None = None, on: str = ""
    ) -> tuple[Any, Any]:
        """Send a request to both brokers, and compare the responses."""
        self.send(build, api, version, on)
        return self.compare_response(api, version, on)

    def send(
        self, build: Build, api: ApiKey | None = None, version: int | None = None, on: str = ""
    ) -> None:
        """Send a request to both brokers on a named connection, without waiting."""
        for side in self.pair.sides():
            made, chosen = self._request(build, side, api, version)
            side.send(made, chosen, on)

    def compare_response(
        self, api: ApiKey | None = None, version: int | None = None, on: str = ""
    ) -> tuple[Any, Any]:
        """Compare the next responses on a connection."""
        api = self.api if api is None else api
        version = self.version if version is None else version
        flats: list[Flat] = []
        read = []
        for side in self.pair.sides():
            outcome = side.receive(on)
            message = None
            flat: Flat = {"outcome": repr(outcome)}
            if isinstance(outcome, bytes):
                message = read_response(api, version, outcome)
                self.before_comparing(message)
                flat = flatten(message, version, side)
            read.append(message)
            flats.append(flat)
        if isinstance(outcome, bytes):
            self.after_comparing(api, version, flats[0], outcome)
        self._note(flats)
        return read[0], read[1]

    def compare_response_if_any(
        self,
        ping: Callable[[], object],
        api: ApiKey | None = None,
        version: int | None = None,
        on: str = "",
    ) -> bool:
        """Compare the next responses on a connection, or check that both requests are pending.

        Args:
            ping: sends another request to both brokers and waits for the responses. A request
                without a response after several pings is pending.
            api: the API of the request; by default that of the scene.
            version: the version of the request; by default that of the scene.
            on: the name of the connection.

        Returns:
            Whether a response has arrived.
        """
        came = self._came(PATIENCE_S, on)
        for _ in range(PINGS):
            if not any(came):
                ping()
                came = self._came(PATIENCE_S, on)
        for _ in range(LATE_PINGS):
            if any(came) and not all(came):
                # One response is late or missing. Wait for the other broker, which may be paused.
                self.await_arrival()
                came = self._came(LATE_S, on)
        if all(came):
            self.compare_response(api, version, on)
        else:
            self._note([{"outcome": "response" if each else "pending"} for each in came])
            if any(came):
                # The next responses would not belong to the same request.
                for side in self.pair.sides():
                    side.close(on)
        return any(came)

    def compare_pending(self, build: Build) -> None:
        """Compare whether both brokers respond to a request that may stay pending.

        The request has a separate connection, so that other requests get responses meanwhile.
        """
        self.send(build, on="pending")
        if not self.compare_response_if_any(
            lambda: self.do(ApiKey.API_VERSIONS, 0, {}), on="pending"
        ):
            for side in self.pair.sides():
                side.close("pending")

    def await_arrival(self) -> None:
        """Wait until both brokers have read all sent requests.

        A network thread that responds has read all earlier requests on its other connections.
        """
        for side in self.pair.sides():
            for number in range(NETWORK_THREADS):
                on = f"behind all others {number}"
                side.send(request(ApiKey.API_VERSIONS, 0, {}), 0, on)
                assert isinstance(side.receive(on), bytes), side.name
                side.close(on)

    def _came(self, timeout_s: float, on: str) -> list[bool]:
        return [side.has_response(timeout_s, on) for side in self.pair.sides()]

    def compare_silence(self, build: Build) -> None:
        """Compare whether a request has a response, by sending another request after it."""
        flats: list[Flat] = []
        for side in self.pair.sides():
            made, version = self._request(build, side, None, None)
            side.send(made, version)
            ping = side.send(request(ApiKey.API_VERSIONS, 0, {}), 0)
            outcome = side.receive()
            if isinstance(outcome, bytes) and outcome[:4] == ping[8:12]:
                outcome = SILENT
            flats.append({"outcome": "response" if isinstance(outcome, bytes) else repr(outcome)})
            side.close()
        self._note(flats)

    def compare_bytes(self, data: bytes) -> None:
        """Send raw bytes to both brokers; compare the bytes of the responses, or the outcomes."""
        flats: list[Flat] = []
        for side in self.pair.sides():
            side.send_bytes(data)
            outcome = side.receive()
            text = outcome.hex() if isinstance(outcome, bytes) else repr(outcome)
            flats.append({"outcome": text})
            side.close()
        self._note(flats)

    def note(self, kafka: Flat, barnabas: Flat) -> None:
        """Compare values that the case extracted from responses."""
        self._note([kafka, barnabas])

    @property
    def found(self) -> list[tuple[str, object, object]]:
        """The differences so far: label and path, Kafka's value, Barnabas's value."""
        return self._found

    def unexpected(self, differs: Mapping[str, str], not_met: set[str]) -> Iterator[str]:
        """Yield the unexpected differences; remove the patterns that match from `not_met`."""
        for path, kafka, barnabas in self._found:
            met = [pattern for pattern in differs if matches(pattern, path)]
            not_met.difference_update(met)
            if not met:
                line = f"{path}: Kafka {_short(kafka)}, Barnabas {_short(barnabas)}"
                # Remove the version, so that equal differences of several versions are reported
                # once.
                yield line.replace(f"{_name_part(self._name)}-v{self.version}-", "")

    def _note(self, flats: list[Flat]) -> None:
        self.pair.compared[self.api] += 1
        step = next(self._steps)
        label = self.label or f"response {step}"
        for path, (kafka, barnabas) in differences(*flats).items():
            self._found.append((f"{label} {path}", kafka, barnabas))

    # Setup, by the same requests to both brokers.

    def do(self, api: ApiKey, version: int, build: Build) -> tuple[Any, Any]:
        """Send a request to both brokers without comparing the responses."""
        kafka, barnabas = (
            exchange(side, api, version, build(side) if callable(build) else build)
            for side in self.pair.sides()
        )
        return kafka, barnabas

    def until(self, condition: Callable[[Side], bool]) -> None:
        """Wait until a condition holds for both brokers."""
        for side in self.pair.sides():
            words = f"{self._name} v{self.version}: {side.name}"
            eventually(partial(condition, side), words, pause_s=POLL_S)

    def await_agreement(self, observe: Callable[[Side], object]) -> None:
        """Wait a short time until both brokers show the same value, before a comparison.

        Kafka responds before the record of a change is committed, and shows the change only then.
        """
        deadline = time.monotonic() + AGREEMENT_S
        while observe(self.pair.kafka) != observe(self.pair.barnabas):
            if time.monotonic() >= deadline:
                break
            time.sleep(POLL_S)

    def name(self, what: str = "topic") -> str:
        """Return a name that no other case uses."""
        return f"{_name_part(self._name)}-v{self.version}-{what}-{next(self._numbers)}"

    def remember(self, name: str, kafka: Any, barnabas: Any) -> None:
        """Give a name to the ids that the brokers generated."""
        self.pair.kafka.remember(name, kafka)
        self.pair.barnabas.remember(name, barnabas)

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """Create a topic on both brokers, and wait until it has leaders."""
        name = self.name()
        settings = [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()]
        new = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        made = self.do(
            ApiKey.CREATE_TOPICS,
            7,
            {"topics": [{**new, "configs": settings}], "timeout_ms": 10_000},
        )
        assert all(response.topics[0].error_code == 0 for response in made), made
        self.remember(f"id of {name}", *(response.topics[0].topic_id for response in made))
        self.await_leaders(name, partitions)
        return name

    def shared_topic(self) -> str:
        """Return a topic of one partition that many cases use and no case changes."""
        if self.pair.shared_topic is None:
            name = self.topic()
            self.pair.shared_topic = name, [side.topic_id(name) for side in self.pair.sides()]
        name, ids = self.pair.shared_topic
        self.remember(f"id of {name}", *ids)
        return name

    def await_leaders(self, topic: str, partitions: int) -> None:
        """Wait until both brokers serve all partitions. Kafka responds to a creation earlier."""
        requested = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
        values = {"replica_id": -1, "topics": [{"name": topic, "partitions": requested}]}

        def is_led(side: Side) -> bool:
            found = exchange(side, ApiKey.LIST_OFFSETS, 5, values).topics[0].partitions
            return all(each.error_code == ErrorCode.NONE for each in found)

        self.until(is_led)

    def settle(self) -> None:
        """Wait until both brokers have applied all changes of metadata.

        Kafka applies several changes at a time, and becomes leader before it applies configs and
        quotas. So this creates a topic after the changes, waits for its leader, and repeats that.
        """
        for _ in range(2):
            self.topic()

    def produce(self, topic: str, records: bytes, partition: int = 0) -> None:
        """Append a batch on both brokers."""
        for response in self.do(ApiKey.PRODUCE, 9, produce(topic, records, partition)):
            code = response.responses[0].partition_responses[0].error_code
            assert code == ErrorCode.NONE, ErrorCode(code)

    def producer(self, name: str = "producer") -> None:
        """Get a producer id from both brokers, and give it a name."""
        for side in self.pair.sides():
            side.remember(name, new_producer(side))

    def _request(
        self, build: Build, side: Side, api: ApiKey | None, version: int | None
    ) -> tuple[Any, int]:
        values = build(side) if callable(build) else build
        chosen = self.version if version is None else version
        if isinstance(values, Message):
            return values, chosen
        return request(self.api if api is None else api, chosen, values), chosen


def new_producer(side: Side) -> int:
    """Get a producer id. Kafka refuses once in a thousand times, while it allocates a new block."""

    def producer_or_none() -> Any:
        made = exchange(side, ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None})
        assert made.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), made
        return made if made.error_code == ErrorCode.NONE else None

    number: int = eventually(producer_or_none, side.name).producer_id
    return number


def matches(pattern: str, path: str) -> bool:
    """Return whether a path matches a pattern, in which `*` matches any text."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), path) is not None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}... ({len(text)} characters)"


def advertised(side: Side) -> dict[int, tuple[int, int]]:
    """Return the first and last version of each API that a broker advertises."""
    found = exchange(side, ApiKey.API_VERSIONS, 2, {}).api_keys
    return {each.api_key: (each.min_version, each.max_version) for each in found}


def exchange(side: Side, api: ApiKey, version: int, values: Values) -> Any:
    """Send a request to one broker and return its response, without comparison."""
    side.send(request(api, version, values), version)
    outcome = side.receive()
    assert isinstance(outcome, bytes), f"{side.name}: {outcome!r} to {api.name} v{version} {values}"
    return read_response(api, version, outcome)


def batch(*values: bytes | None, **options: Any) -> bytes:
    """Return a record batch, which has the same bytes for both brokers."""
    builder = BatchBuilder(**options)
    for value in values:
        builder.append(NOW_MS, None, value)
    return bytes(builder.build())


def produce(
    topic: str,
    records: bytes | None,
    partition: int = 0,
    acks: int = -1,
    topic_id: object = bytes(16),
) -> Values:
    """Return a Produce request for one partition."""
    data = [{"index": partition, "records": records}]
    return {
        "acks": acks,
        "timeout_ms": 5000,
        "topic_data": [{"name": topic, "topic_id": topic_id, "partition_data": data}],
    }
