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
from differential.answer import Flat, differences, flatten, read_answer
from differential.request import Values, request
from differential.rules import HOUR_MS
from differential.side import SILENT, Side
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from differential.side import Identity

    # The same for both, or made of the ids of each side.
    Build = Values | Callable[[Side], Values | Message]

POLL_S = 0.003
# How long an answer may take that does not wait, and how often another request is answered before
# it is said to wait; and both if the other broker's answer has come.
PATIENCE_S, PINGS = 0.01, 4
LATE_S, LATE_PINGS = 0.07, 10
# Kafka's network threads, which take new connections in turn.
NETWORK_THREADS = 3
AGREEMENT_S = 2.0
SHOWN_MAX = 200
# Names of objects begin with the name of their case, or with so much of it.
NAME_MAX = 80
# Kafka advertises Produce v0-2, which it does not serve, because librdkafka looks for them.
ADVERTISED_ONLY = {ApiKey.PRODUCE: 3}
# Records bear this time, so that the same bytes lie on both brokers. It is not that of the brokers'
# clocks, so that a time which they give is told from it.
NOW_MS = int(time.time() * 1000) - 3 * HOUR_MS


class Compared(NamedTuple):
    """Counts of compared responses, in total and by the class of input."""

    answers: int
    by_class: Counter[str]


class Pair:
    """Apache Kafka and Barnabas, for all cases; counts what was compared."""

    def __init__(self, kafka: Side, barnabas: Side) -> None:
        self.kafka = kafka
        self.barnabas = barnabas
        self.compared: Counter[ApiKey] = Counter()
        self.played: Counter[ApiKey] = Counter()
        # A topic that both have and no case changes, with the ids that the two gave it.
        self.shared_topic: tuple[str, list[bytes]] | None = None
        # The topic of cases with transactions, with its ids, and the number of such cases.
        self.quiet_topic: tuple[str, list[bytes]] | None = None
        self.transactions = 0
        # Transactional ids whose transaction took too long, with their producer ids.
        self.timed_out: list[tuple[str, list[Identity]]] = []
        # Objects that cases set up once on both, by name.
        self.standing: dict[str, Any] = {}
        # Comparisons of each case.
        self.by_case: dict[str, Compared] = {}
        # Differences that were not there when the case was played again.
        self.differed_once: list[str] = []
        # Cases that were played in all versions.
        self.complete: set[str] = set()
        self._served = [advertised(side) for side in self.sides()]

    def sides(self) -> tuple[Side, Side]:
        """Kafka first."""
        return self.kafka, self.barnabas

    def versions(self, api: ApiKey) -> range:
        """Versions of an API that both sides advertise."""
        spans = [served.get(api, (0, -1)) for served in self._served]
        spans.append((ADVERTISED_ONLY.get(api, 0), 0x7FFF))
        return range(max(first for first, _ in spans), min(last for _, last in spans) + 1)

    def close(self) -> None:
        """The session ends."""
        for side in self.sides():
            side.close_all()


def _name_part(name: str) -> str:
    """Return the name of a case; a long one has a checksum instead of its end."""
    if len(name) <= NAME_MAX:
        return name
    return f"{name[: NAME_MAX - 8]}{zlib.crc32(name.encode()):08x}"


class Scene:
    """One case in one version of its API."""

    def __init__(self, pair: Pair, api: ApiKey, name: str, version: int) -> None:
        self.pair = pair
        self.api = api
        self.version = version
        # Answers compared, by the class of input.
        self.by_class: Counter[str] = Counter()
        # Name of the next responses in the findings; empty for their numbers.
        self.label = ""
        # Removes the parts of a response that do not concern the case.
        self.before_comparing: Callable[[Any], None] = lambda _: None
        # Gets Kafka's answer in values and ours in bytes, with their API and version.
        self.after_comparing: Callable[[ApiKey, int, Flat, bytes], None] = lambda *_: None
        # Names of what helpers made for this scene alone.
        self.kept: dict[str, str] = {}
        self._name = name
        self._numbers = itertools.count(1)
        self._steps = itertools.count(1)
        self._found: list[tuple[str, object, object]] = []
        pair.played[api] += 1
        for side in pair.sides():
            side.forget()

    # Comparing. Answers are returned as they are, Kafka's first; None for what is none.

    def compare(
        self, build: Build, api: ApiKey | None = None, version: int | None = None, on: str = ""
    ) -> tuple[Any, Any]:
        """Send a request to both, and compare the answers."""
        self.send(build, api, version, on)
        return self.answer(api, version, on)

    def send(
        self, build: Build, api: ApiKey | None = None, version: int | None = None, on: str = ""
    ) -> None:
        """Send a request to both on a named connection, without waiting."""
        for side in self.pair.sides():
            made, chosen = self._request(build, side, api, version)
            side.send(made, chosen, on)

    def answer(
        self, api: ApiKey | None = None, version: int | None = None, on: str = ""
    ) -> tuple[Any, Any]:
        """Compare the next answers on a connection."""
        api = self.api if api is None else api
        version = self.version if version is None else version
        flats: list[Flat] = []
        read = []
        for side in self.pair.sides():
            outcome = side.receive(on)
            message = None
            flat: Flat = {"outcome": repr(outcome)}
            if isinstance(outcome, bytes):
                message = read_answer(api, version, outcome)
                self.before_comparing(message)
                flat = flatten(message, version, side)
            read.append(message)
            flats.append(flat)
        if isinstance(outcome, bytes):
            self.after_comparing(api, version, flats[0], outcome)
        self._note(flats)
        return read[0], read[1]

    def answer_if_any(
        self,
        ping: Callable[[], object],
        api: ApiKey | None = None,
        version: int | None = None,
        on: str = "",
    ) -> bool:
        """Compare the next answers on a connection, or that both let it wait; true if they came.

        Args:
            ping: asks both for something that is answered behind the request. Of one that is not
                answered after that it is said that it waits.
        """
        came = self._came(PATIENCE_S, on)
        for _ in range(PINGS):
            if not any(came):
                ping()
                came = self._came(PATIENCE_S, on)
        for _ in range(LATE_PINGS):
            if any(came) and not all(came):
                # The other side's response is late, or it does not come although other responses
                # come: the scene waits for a broker that is paused.
                self.await_arrival()
                came = self._came(LATE_S, on)
        if all(came):
            self.answer(api, version, on)
        else:
            self._note([{"outcome": "answered" if each else "waits"} for each in came])
            if any(came):
                # The next answers would not be those to the same request.
                for side in self.pair.sides():
                    side.close(on)
        return any(came)

    def compare_unanswered(self, build: Build) -> None:
        """Compare whether a request is answered, where one of them may never do it.

        It has a connection of its own; requests on another one get responses meanwhile.
        """
        self.send(build, on="unanswered")
        if not self.answer_if_any(lambda: self.do(ApiKey.API_VERSIONS, 0, {}), on="unanswered"):
            for side in self.pair.sides():
                side.close("unanswered")

    def await_arrival(self) -> None:
        """Wait until both have read what was sent to them, though nothing may show it.

        A thread of the network that answers has read what came before on its other connections.
        """
        for side in self.pair.sides():
            for number in range(NETWORK_THREADS):
                on = f"behind all others {number}"
                side.send(request(ApiKey.API_VERSIONS, 0, {}), 0, on)
                assert isinstance(side.receive(on), bytes), side.name
                side.close(on)

    def _came(self, timeout_s: float, on: str) -> list[bool]:
        return [side.has_answer(timeout_s, on) for side in self.pair.sides()]

    def compare_silence(self, build: Build) -> None:
        """Send a request that may have no answer, and one behind it that has."""
        flats: list[Flat] = []
        for side in self.pair.sides():
            made, version = self._request(build, side, None, None)
            side.send(made, version)
            ping = side.send(request(ApiKey.API_VERSIONS, 0, {}), 0)
            outcome = side.receive()
            if isinstance(outcome, bytes) and outcome[:4] == ping[8:12]:
                outcome = SILENT
            flats.append({"outcome": "answer" if isinstance(outcome, bytes) else repr(outcome)})
            side.close()
        self._note(flats)

    def compare_bytes(self, data: bytes) -> None:
        """Send raw bytes to both; compare the bytes of the response, or the event instead."""
        flats: list[Flat] = []
        for side in self.pair.sides():
            side.send_bytes(data)
            outcome = side.receive()
            text = outcome.hex() if isinstance(outcome, bytes) else repr(outcome)
            flats.append({"outcome": text})
            side.close()
        self._note(flats)

    def note(self, kafka: Flat, barnabas: Flat) -> None:
        """Compare values that the case made of answers itself."""
        self._note([kafka, barnabas])

    @property
    def found(self) -> list[tuple[str, object, object]]:
        """What differed so far: its path below the answer's label, Kafka's value, ours."""
        return self._found

    def unexpected(self, differs: Mapping[str, str], not_met: set[str]) -> Iterator[str]:
        """What differed against expectation; met expectations leave `not_met`."""
        for path, kafka, barnabas in self._found:
            met = [pattern for pattern in differs if matches(pattern, path)]
            not_met.difference_update(met)
            if not met:
                line = f"{path}: Kafka {_short(kafka)}, Barnabas {_short(barnabas)}"
                # The same in each version, so that versions that differ alike are told together.
                yield line.replace(f"{_name_part(self._name)}-v{self.version}-", "")

    def _note(self, flats: list[Flat]) -> None:
        self.pair.compared[self.api] += 1
        step = next(self._steps)
        label = self.label or f"answer {step}"
        for path, (kafka, barnabas) in differences(*flats).items():
            self._found.append((f"{label} {path}", kafka, barnabas))

    # Setting up, by the same requests on both.

    def do(self, api: ApiKey, version: int, build: Build) -> tuple[Any, Any]:
        """Send a request to both without comparing."""
        kafka, barnabas = (
            ask(side, api, version, build(side) if callable(build) else build)
            for side in self.pair.sides()
        )
        return kafka, barnabas

    def until(self, condition: Callable[[Side], bool]) -> None:
        """Wait until a condition holds for both brokers."""
        for side in self.pair.sides():
            words = f"{self._name} v{self.version}: {side.name}"
            eventually(partial(condition, side), words, pause_s=POLL_S)

    def await_agreement(self, look: Callable[[Side], object]) -> None:
        """Wait until both brokers show the same, for a short time; a comparison follows.

        Kafka responds before the record of a change is committed, and shows the change only then.
        """
        deadline = time.monotonic() + AGREEMENT_S
        while look(self.pair.kafka) != look(self.pair.barnabas) and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def name(self, what: str = "topic") -> str:
        """A name that no other case uses."""
        return f"{_name_part(self._name)}-v{self.version}-{what}-{next(self._numbers)}"

    def remember(self, name: str, kafka: Any, barnabas: Any) -> None:
        """From now on the case calls these ids, which the brokers drew, by a name."""
        self.pair.kafka.remember(name, kafka)
        self.pair.barnabas.remember(name, barnabas)

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """A new topic on both, with leaders."""
        name = self.name()
        settings = [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()]
        new = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        made = self.do(
            ApiKey.CREATE_TOPICS,
            7,
            {"topics": [{**new, "configs": settings}], "timeout_ms": 10_000},
        )
        assert all(answer.topics[0].error_code == 0 for answer in made), made
        self.remember(f"id of {name}", *(answer.topics[0].topic_id for answer in made))
        self.await_leaders(name, partitions)
        return name

    def shared_topic(self) -> str:
        """A topic of one partition that many cases name, and none of them changes."""
        if self.pair.shared_topic is None:
            name = self.topic()
            self.pair.shared_topic = name, [side.topic_id(name) for side in self.pair.sides()]
        name, ids = self.pair.shared_topic
        self.remember(f"id of {name}", *ids)
        return name

    def await_leaders(self, topic: str, partitions: int) -> None:
        """Wait until both brokers serve all partitions: Kafka answers a creation before that."""
        asked = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
        values = {"replica_id": -1, "topics": [{"name": topic, "partitions": asked}]}

        def is_led(side: Side) -> bool:
            found = ask(side, ApiKey.LIST_OFFSETS, 5, values).topics[0].partitions
            return all(each.error_code == ErrorCode.NONE for each in found)

        self.until(is_led)

    def settle(self) -> None:
        """Wait until both brokers have taken up all changes of metadata.

        A topic that was made after them is led; so is another one, made when that was seen: Kafka
        takes up several changes at a time, and leads before it turns to configs and quotas.
        """
        for _ in range(2):
            self.topic()

    def produce(self, topic: str, records: bytes, partition: int = 0) -> None:
        """Append a batch on both."""
        for answer in self.do(ApiKey.PRODUCE, 9, produce(topic, records, partition)):
            code = answer.responses[0].partition_responses[0].error_code
            assert code == ErrorCode.NONE, ErrorCode(code)

    def producer(self, name: str = "producer") -> None:
        """A producer id on both, known by a name."""
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
    """A producer id; Kafka says once in a thousand that it has to fetch more of them."""

    def look() -> Any:
        made = ask(side, ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None})
        assert made.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), made
        return made if made.error_code == ErrorCode.NONE else None

    number: int = eventually(look, side.name).producer_id
    return number


def matches(pattern: str, path: str) -> bool:
    """A `*` stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), path) is not None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}... ({len(text)} characters)"


def advertised(side: Side) -> dict[int, tuple[int, int]]:
    """First and last version of each API that a broker says it serves."""
    found = ask(side, ApiKey.API_VERSIONS, 2, {}).api_keys
    return {each.api_key: (each.min_version, each.max_version) for each in found}


def ask(side: Side, api: ApiKey, version: int, values: Values) -> Any:
    """A request and its answer, not compared."""
    side.send(request(api, version, values), version)
    outcome = side.receive()
    assert isinstance(outcome, bytes), f"{side.name}: {outcome!r} to {api.name} v{version} {values}"
    return read_answer(api, version, outcome)


def batch(*values: bytes | None, **options: Any) -> bytes:
    """A record batch; its bytes are the same for both brokers."""
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
    """A Produce of one partition's records."""
    data = [{"index": partition, "records": records}]
    return {
        "acks": acks,
        "timeout_ms": 5000,
        "topic_data": [{"name": topic, "topic_id": topic_id, "partition_data": data}],
    }
