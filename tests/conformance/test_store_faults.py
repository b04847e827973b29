"""A broker whose remote store fails, in a directory and in buckets of two servers (KIP-405).

For each fault: no acknowledged record is lost, no read skips one, nothing waits for ever, the
broker goes on without a restart when the store works again, and its log says what to do.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.record.reader import read_batches
from barnabas.testing.broker_process import BrokerProcess
from buckets.bucket import ACCESS_KEY, SECRET, Bucket, moto_bucket, s3proxy_bucket
from buckets.faults import Fault
from buckets.faulty_directory import FaultyDirectory
from conformance.raw_client import RawClient
from conformance.tiered_topics import (
    EARLIEST,
    EARLIEST_LOCAL,
    await_all_copied,
    consume,
    make_tiered_topic,
    offset_at,
    produce,
    tier_settings,
)
from selection import nightly_rows_unless
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.conformance, pytest.mark.slow]

# For all waits: a pause of all copies takes half a minute.
PATIENCE_S = 180.0
RECORDS = 60
# The manifest of a segment.
MANIFEST = r"\.json"
_LOG, _INDEXES = r"\.log", r"\.indexes"
_WRITES = "PUT|POST"

UNREACHABLE = "check that the store runs"
REFUSED = "check the rights of the broker"
FULL = "free space in the store"
MISSING = "restore the object"

_numbers = itertools.count(1)


class Tiered(NamedTuple):
    """A broker with a tier, and its store."""

    broker: BrokerProcess
    store: Bucket | FaultyDirectory

    @property
    def address(self) -> str:
        """The bootstrap address."""
        return self.broker.bootstrap

    def objects(self, topic: str) -> list[str]:
        """Return the paths of a topic's objects, without the description of the topic."""
        return [
            path
            for path in self.store.objects()
            if f"/{topic}-" in path and not path.endswith("topic.json")
        ]

    def bases(self, topic: str) -> list[int]:
        """Return the base offsets of a topic's stored segments, sorted."""
        logs = [path for path in self.objects(topic) if path.endswith(".log")]
        return sorted(int(path.rpartition("/")[2].partition("-")[0]) for path in logs)

    def is_clean(self, topic: str) -> bool:
        """Return whether each segment has one copy with three objects."""
        bases = self.bases(topic)
        return len(bases) == len(set(bases)) and len(self.objects(topic)) == 3 * len(bases)

    def await_local_retention(self, topic: str) -> int:
        """Wait until only the tier has the copied records; return the first local offset."""
        last = await_all_copied(self.address, topic, self.broker.data_directory)
        eventually_equal(
            lambda: offset_at(self.address, topic, EARLIEST_LOCAL), last + 1, PATIENCE_S
        )
        return last + 1


def started(store: Bucket | FaultyDirectory, directory: Path) -> Iterator[Tiered]:
    """Start a broker with a store. Its calls give up soon."""
    settings = {
        **tier_settings(directory),
        "barnabas.remote.orphan.age.ms": "2000",
        "barnabas.remote.request.timeout.ms": "5000",
        "barnabas.remote.retry.timeout.ms": "1000",
        **store.settings(),
    }
    if isinstance(store, Bucket):
        settings["barnabas.remote.storage.options"] = ",".join(
            f"{name}={value}" for name, value in store.options.items()
        )
        settings["barnabas.remote.credentials.file"] = str(directory / "credentials")
        write_credentials(directory, ACCESS_KEY)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store.environment.items():
            patch.setenv(name, value)
        with BrokerProcess(directory / "broker", settings) as broker:
            yield Tiered(broker, store)


def write_credentials(directory: Path, access_key: str) -> None:
    """Replace the file with the credentials of the broker."""
    new = directory / "credentials.new"
    lines = ["[default]", f"aws_access_key_id={access_key}", f"aws_secret_access_key={SECRET}"]
    new.write_text("\n".join(lines) + "\n")
    new.rename(directory / "credentials")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    made = tmp_path_factory.mktemp("with-directory")
    yield from started(FaultyDirectory(made / "tier"), made)


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    with moto_bucket() as bucket:
        yield from started(bucket, tmp_path_factory.mktemp("with-moto"))


@pytest.fixture(scope="module")
def s3proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    with s3proxy_bucket(tmp_path_factory.mktemp("s3proxy")) as bucket:
        yield from started(bucket, tmp_path_factory.mktemp("with-s3proxy"))


@pytest.fixture
def tiered(request: pytest.FixtureRequest, place: str) -> Iterator[Tiered]:
    """A broker with a store of a kind; the test may kill it, and leave faults."""
    made: Tiered = request.getfixturevalue(place)
    yield made
    made.store.heal()
    made.broker.restore()


@pytest.fixture
def topic() -> str:
    return f"faulty-{next(_numbers)}"


def numbered(start: int, end: int) -> list[tuple[int, int]]:
    """Return offset and number of records whose number is their offset."""
    return [(number, number) for number in range(start, end)]


def rows(
    chosen: set[tuple[str, str]], named: dict[str, tuple[Any, ...]], places: tuple[str, ...]
) -> list[Any]:
    """Return a row for each place and each name; those that are not chosen are nightly."""
    return nightly_rows_unless(
        lambda row: (row[0], row[1]) in chosen,
        [(place, name, *named[name]) for place in places for name in named],
    )


# Copies.

# A fault of copies, and what the log of the broker says. The path is that of the topic's objects.
WRITES: dict[str, tuple[Callable[[str], Fault], str]] = {
    "slow": (lambda path: Fault.slow(0.5, methods=_WRITES, path=path), ""),
    "throttled": (
        lambda path: Fault.answer("SlowDown", methods=_WRITES, path=path),
        UNREACHABLE,
    ),
    "server errors": (
        lambda path: Fault.answer("InternalError", methods=_WRITES, path=path),
        UNREACHABLE,
    ),
    "cut": (lambda path: Fault.cut(methods=_WRITES, path=path), UNREACHABLE),
    "cut after": (lambda path: Fault.cut_after(methods=_WRITES, path=path), UNREACHABLE),
    "refused": (lambda path: Fault.answer("AccessDenied", methods=_WRITES, path=path), REFUSED),
    "full": (lambda path: Fault.answer("InsufficientStorage", methods=_WRITES, path=path), FULL),
    "lies": (lambda path: Fault.lie(methods=_WRITES, path=path + _LOG), UNREACHABLE),
    "lies about indexes": (
        lambda path: Fault.lie(methods=_WRITES, path=path + _INDEXES),
        UNREACHABLE,
    ),
    "lies about manifests": (
        lambda path: Fault.lie(methods=_WRITES, path=path + MANIFEST, times=3),
        "The remote store has lost a segment",
    ),
}
CLOCK = {
    "wrong clock": (
        lambda path: Fault.answer("RequestTimeTooSkewed", methods=_WRITES, path=path),
        "clock",
    )
}


@pytest.mark.parametrize(
    ("place", "name", "fault", "line"),
    [
        *rows({("moto", "throttled")}, WRITES, ("directory", "moto", "s3proxy")),
        *rows(set(), CLOCK, ("moto",)),
    ],
)
def test_copies_go_on_when_the_store_takes_objects_again(
    tiered: Tiered, topic: str, name: str, fault: Callable[[str], Fault], line: str
) -> None:
    make_tiered_topic(tiered.address, topic, local_retention_bytes="1")
    made = tiered.store.fail(fault(f"/{topic}-.*/[0-9]+-[^/]*"))
    produce(tiered.address, topic, range(RECORDS))
    eventually(lambda: tiered.store.hits(made) >= 2, "the fault is not met", PATIENCE_S)
    # Nothing that is only here is deleted.
    assert consume(tiered.address, topic, 0, RECORDS) == numbered(0, RECORDS)
    eventually(lambda: line in tiered.broker.log(), f"the log has no line with {line}", PATIENCE_S)
    tiered.store.heal()
    produce(tiered.address, topic, range(RECORDS, RECORDS + 20))
    assert tiered.await_local_retention(topic) > RECORDS
    assert offset_at(tiered.address, topic, EARLIEST) == 0
    assert consume(tiered.address, topic, 0, RECORDS + 20) == numbered(0, RECORDS + 20)
    eventually(
        lambda: tiered.is_clean(topic),
        lambda: f"garbage is left: {tiered.objects(topic)}",
        PATIENCE_S,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("place", ["directory", "moto", "s3proxy"])
def test_a_store_that_is_away_is_used_again(tiered: Tiered, topic: str) -> None:
    """It goes away while the broker runs, and a broker of a bucket starts without it too."""
    make_tiered_topic(tiered.address, topic, local_retention_bytes="1")
    produce(tiered.address, topic, range(RECORDS))
    local_start = tiered.await_local_retention(topic)
    tiered.store.stop()
    produce(tiered.address, topic, range(RECORDS, 2 * RECORDS))
    if isinstance(tiered.store, Bucket):
        tiered.broker.restart()
    rest = 2 * RECORDS - local_start
    assert consume(tiered.address, topic, local_start, rest) == numbered(local_start, 2 * RECORDS)
    tiered.store.start()
    assert tiered.await_local_retention(topic) > RECORDS
    assert consume(tiered.address, topic, 0, 2 * RECORDS) == numbered(0, 2 * RECORDS)


@pytest.mark.nightly
@pytest.mark.parametrize("place", ["moto"])
@pytest.mark.parametrize("has_gap", [False, True], ids=["file first", "server first"])
def test_credentials_are_replaced_while_segments_are_copied(
    tiered: Tiered, topic: str, has_gap: bool
) -> None:
    """The server accepts only the new key from a time on. No restart is needed."""
    assert isinstance(tiered.store, Bucket)
    folder = tiered.broker.directory.parent
    new_key = f"AKIANEW{next(_numbers)}"
    make_tiered_topic(tiered.address, topic, local_retention_bytes="1")
    produce(tiered.address, topic, range(RECORDS))
    if not has_gap:
        write_credentials(folder, new_key)
    tiered.store.proxy.access_keys = frozenset({new_key})
    produce(tiered.address, topic, range(RECORDS, 2 * RECORDS))
    if has_gap:
        eventually(lambda: REFUSED in tiered.broker.log(), "no refusal is logged", PATIENCE_S)
        assert consume(tiered.address, topic, 0, 1)
        write_credentials(folder, new_key)
    assert tiered.await_local_retention(topic) > RECORDS
    assert consume(tiered.address, topic, 0, 2 * RECORDS) == numbered(0, 2 * RECORDS)
    assert SECRET not in tiered.broker.log()


# Reads.


def fetch(address: str, topic: str, offset: int) -> tuple[int, list[tuple[int, int]]]:
    """Fetch once from an offset on; return the error code, and offsets and numbers of records."""
    client = RawClient(address)
    try:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic=topic, partitions=[partition])]
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=topics)
        (found,) = client.ask(request, 11).responses[0].partitions
    finally:
        client.close()
    records = [
        (each.offset, int(bytes(each.value or b"").partition(b":")[0]))
        for _, batch in read_batches(bytes(found.records or b""))
        for each in batch
    ]
    return found.error_code, records


def read(address: str, topic: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the records of offsets, whatever the reads of those behind give."""
    found: list[tuple[int, int]] = []

    def has_all() -> bool:
        wanted = start + len(found)
        _, records = fetch(address, topic, wanted)
        found.extend(each for each in records if each[0] >= wanted)
        return len(found) >= end - start

    eventually(has_all, lambda: f"{len(found)} records from {start} on were read", PATIENCE_S)
    return found[: end - start]


READS: dict[str, tuple[Callable[[str], Fault]]] = {
    "slow": (lambda path: Fault.slow(0.5, methods="GET", path=path),),
    "throttled": (lambda path: Fault.answer("SlowDown", methods="GET", path=path),),
    "server errors": (lambda path: Fault.answer("InternalError", methods="GET", path=path),),
    "refused": (lambda path: Fault.answer("AccessDenied", methods="GET", path=path),),
    "cut": (lambda path: Fault.cut(methods="GET", path=path),),
    "truncated": (lambda path: Fault.truncate(100, path=path),),
    "flipped": (lambda path: Fault.flip(path=path),),
}


@pytest.mark.parametrize(
    ("place", "name", "fault"), rows(set(), READS, ("directory", "moto", "s3proxy"))
)
def test_reads_go_on_when_the_store_answers_again(
    tiered: Tiered, topic: str, name: str, fault: Callable[[str], Fault]
) -> None:
    make_tiered_topic(tiered.address, topic, local_retention_bytes="1")
    produce(tiered.address, topic, range(RECORDS))
    local_start = tiered.await_local_retention(topic)
    made = tiered.store.fail(fault(f"/{topic}-.*{_LOG}"))
    until = time.monotonic() + 3

    def has_been_met() -> bool:
        _, records = fetch(tiered.address, topic, 0)
        assert not records or records[0] == (0, 0), f"records were skipped: {records[:3]}"
        assert all(offset == number for offset, number in records)
        return tiered.store.hits(made) > 0 and time.monotonic() > until

    eventually(has_been_met, "the fault is not met", PATIENCE_S)
    # The local records are served.
    rest = RECORDS - local_start
    assert consume(tiered.address, topic, local_start, rest) == numbered(local_start, RECORDS)
    tiered.store.heal()
    assert consume(tiered.address, topic, 0, RECORDS) == numbered(0, RECORDS)


def _remove(store: Bucket | FaultyDirectory, path: str) -> None:
    store.remove(path)


def _flip(store: Bucket | FaultyDirectory, path: str) -> None:
    store.flip(path)


def _truncate(store: Bucket | FaultyDirectory, path: str) -> None:
    store.truncate(path, 100)


SPOILED: dict[str, tuple[Callable[[Any, str], None], str]] = {
    "lost log": (_remove, ".log"),
    "damaged log": (_flip, ".log"),
    "truncated log": (_truncate, ".log"),
    "lost indexes": (_remove, ".indexes"),
    "damaged indexes": (_flip, ".indexes"),
    "truncated indexes": (_truncate, ".indexes"),
}


@pytest.mark.parametrize(
    ("place", "name", "spoil", "suffix"),
    rows({("moto", "lost log")}, SPOILED, ("directory", "moto", "s3proxy")),
)
def test_only_the_offsets_of_a_spoiled_object_fail(
    tiered: Tiered,
    topic: str,
    name: str,
    spoil: Callable[[Bucket | FaultyDirectory, str], None],
    suffix: str,
) -> None:
    make_tiered_topic(tiered.address, topic, local_retention_bytes="1")
    produce(tiered.address, topic, range(RECORDS))
    local_start = tiered.await_local_retention(topic)
    bases = tiered.bases(topic)
    second, third = bases[1:3]
    paths = [each for each in tiered.objects(topic) if each.endswith(suffix)]
    (path,) = [each for each in paths if f"/{second:020d}-" in each]
    content = tiered.store.read(path)
    spoil(tiered.store, path)

    before: list[tuple[int, int]] = []

    def has_failed() -> bool:
        """Read what is before the damage, and return whether the next read fails."""
        wanted = second + len(before)
        code, records = fetch(tiered.address, topic, wanted)
        before.extend(each for each in records if each[0] >= wanted)
        assert before == numbered(second, second + len(before))
        assert wanted < third, "the damage was not noticed"
        return code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE)

    eventually(has_failed, "the read does not fail", PATIENCE_S)
    assert read(tiered.address, topic, 0, second) == numbered(0, second)
    assert read(tiered.address, topic, third, RECORDS) == numbered(third, RECORDS)
    assert offset_at(tiered.address, topic, EARLIEST) == 0
    assert offset_at(tiered.address, topic, EARLIEST_LOCAL) == local_start
    eventually(lambda: MISSING in tiered.broker.log(), "the log names no remedy", PATIENCE_S)
    # The operator restores the object.
    tiered.store.put(path, content)
    assert consume(tiered.address, topic, 0, RECORDS) == numbered(0, RECORDS)


# Kills.

COPY_STEPS: dict[str, tuple[Callable[[str], Fault]]] = {
    "after the start": (lambda path: Fault.hold(methods=_WRITES, path=path + _LOG),),
    "after the log": (lambda path: Fault.hold(methods=_WRITES, path=path + _INDEXES),),
    "before the manifest": (lambda path: Fault.hold(methods=_WRITES, path=path + MANIFEST),),
    "after the manifest": (lambda path: Fault.hold_after(methods=_WRITES, path=path + MANIFEST),),
}


@pytest.mark.parametrize(
    ("place", "name", "step"),
    rows({("moto", "after the manifest")}, COPY_STEPS, ("directory", "moto", "s3proxy")),
)
def test_a_kill_in_a_copy_loses_nothing_and_leaves_no_garbage(
    tiered: Tiered, topic: str, name: str, step: Callable[[str], Fault]
) -> None:
    make_tiered_topic(tiered.address, topic, local_retention_bytes="1")
    held = tiered.store.fail(step(f"/{topic}-.*/[0-9]+-[^/]*"))
    produce(tiered.address, topic, range(RECORDS))
    eventually(lambda: tiered.store.hits(held) > 0, "the copy does not begin", PATIENCE_S)
    tiered.broker.kill()
    tiered.store.heal()
    tiered.broker.start()
    assert consume(tiered.address, topic, 0, RECORDS) == numbered(0, RECORDS)
    assert tiered.await_local_retention(topic) > RECORDS // 2
    assert consume(tiered.address, topic, 0, RECORDS) == numbered(0, RECORDS)
    eventually(
        lambda: tiered.is_clean(topic),
        lambda: f"garbage is left: {tiered.objects(topic)}",
        PATIENCE_S,
    )


DELETE_STEPS: dict[str, tuple[Callable[[str], Fault]]] = {
    "after the start": (lambda path: Fault.hold(methods="DELETE", path=path + MANIFEST),),
    "after the manifest": (lambda path: Fault.hold_after(methods="DELETE", path=path + MANIFEST),),
    "after all objects": (lambda path: Fault.hold_after(methods="DELETE", path=path + _INDEXES),),
}


@pytest.mark.parametrize(
    ("place", "name", "step"), rows(set(), DELETE_STEPS, ("directory", "moto", "s3proxy"))
)
def test_a_kill_in_a_deletion_leaves_no_garbage(
    tiered: Tiered, topic: str, name: str, step: Callable[[str], Fault]
) -> None:
    make_tiered_topic(tiered.address, topic, local_retention_bytes="1")
    produce(tiered.address, topic, range(RECORDS))
    tiered.await_local_retention(topic)
    bases = tiered.bases(topic)
    first = bases[len(bases) // 2]
    held = tiered.store.fail(step(f"/{topic}-.*/[0-9]+-[^/]*"))
    admin = AdminClient({"bootstrap.servers": tiered.address})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, first)]).values()
    assert deleted.result(PATIENCE_S).low_watermark == first
    eventually(lambda: tiered.store.hits(held) > 0, "nothing is deleted", PATIENCE_S)
    tiered.broker.kill()
    tiered.store.heal()
    tiered.broker.start()
    eventually_equal(lambda: offset_at(tiered.address, topic, EARLIEST), first, PATIENCE_S)
    wanted = [base for base in bases if base >= first]
    eventually_equal(lambda: tiered.bases(topic), wanted, PATIENCE_S)
    rest = RECORDS - first
    assert consume(tiered.address, topic, first, rest) == numbered(first, RECORDS)
    eventually(
        lambda: tiered.is_clean(topic),
        lambda: f"garbage is left: {tiered.objects(topic)}",
        PATIENCE_S,
    )
