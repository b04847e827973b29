"""The contract of all stores of segments: directories, memory, and buckets of two servers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from barnabas.runtime.disk import Disk, RealDisk
from barnabas.runtime.object_store import memory_store
from barnabas.runtime.rng import SeededRng
from barnabas.sim.disk import SimDisk
from barnabas.sim.remote_storage import SimRemoteStorage
from barnabas.sim.world import SimWorld
from barnabas.storage.remote.bucket_objects import BucketObjects
from barnabas.storage.remote.config import StoreOptions
from barnabas.storage.remote.directory_storage import DirectoryStorage
from barnabas.storage.remote.object_storage import ObjectStorage
from barnabas.storage.remote.opening import open_remote_storage
from barnabas.storage.remote.remote_storage import (
    CUSTOM_METADATA_MAX,
    RemoteDamagedError,
    RemoteMissingError,
    RemoteSegment,
    RemoteStorage,
    SegmentIndexes,
    SegmentState,
    TopicDescription,
)
from barnabas.storage.remote.segment_objects import SUFFIXES, segment_name
from buckets import fixtures
from buckets.bucket import Bucket
from unit.storage.remote.stored_segments import (
    TOPIC_ID,
    LocalSegment,
    finished,
    local_segment,
    segment_at,
)


class Place:
    """A store, and the local disk of its broker."""

    def __init__(self, disk: Disk, storage: RemoteStorage, local: str) -> None:
        self.disk = disk
        self.storage = storage
        self.local = local
        disk.make_directory(local)

    def made(self, segment: RemoteSegment) -> LocalSegment:
        return local_segment(self.disk, segment, self.local)

    def copied(self, segment: RemoteSegment) -> LocalSegment:
        """Return a segment after its copy."""
        local = self.made(segment)
        custom = self.storage.copy_segment(segment, local.files)
        return local._replace(segment=finished(segment, custom))


# Fixtures.
moto, s3proxy = fixtures.moto, fixtures.s3proxy

# Parts of one bucket.
_prefixes = itertools.count(1)


def in_bucket(bucket: Bucket) -> RemoteStorage:
    """Return a store in a new part of a bucket."""
    options = StoreOptions(bucket.options_with_credentials, retry_timeout_ms=0)
    return open_remote_storage(
        f"{bucket.url}/part-{next(_prefixes)}", "cluster", RealDisk(), options
    )


def place_of(kind: str, request: pytest.FixtureRequest, local: str) -> Place:
    """Return a new store of a kind."""
    directory = f"{local}/tier"
    if kind == "directory":
        return Place(RealDisk(), DirectoryStorage(RealDisk(), directory, "cluster"), local)
    if kind in ("moto", "s3proxy"):
        return Place(RealDisk(), in_bucket(request.getfixturevalue(kind)), local)
    if kind == "memory":
        objects = BucketObjects(memory_store(), "", "cluster")
        return Place(RealDisk(), ObjectStorage(objects, "cluster"), local)
    world = SimWorld(5)
    disk = world.host("a").disk
    if kind == "simulated store":
        storage = SimRemoteStorage(world.host("a").clock, SeededRng(6)).on(disk)
        return Place(disk, storage, local)
    return Place(disk, DirectoryStorage(disk, directory, "cluster"), local)


@pytest.fixture(
    params=[
        "directory",
        "simulated directory",
        "simulated store",
        "memory",
        "moto",
        pytest.param("s3proxy", marks=pytest.mark.nightly),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = place_of(request.param, request, f"{tmp_path}/local")
    yield made
    made.storage.close()


def test_a_copied_segment_is_read_in_parts_and_whole(place: Place) -> None:
    segment, _, content = place.copied(segment_at())
    assert place.storage.read(segment, 0, segment.size) == content
    assert place.storage.read(segment, 10, 500) == content[10:500]
    assert place.storage.read(segment, 999, 1000) == content[999:]


def test_a_read_beyond_the_end_is_an_error(place: Place) -> None:
    segment, _, _ = place.copied(segment_at())
    with pytest.raises(RemoteDamagedError, match="ends at 1000, before byte 1001"):
        place.storage.read(segment, 500, 1001)
    with pytest.raises(RemoteDamagedError):
        place.storage.read(segment, 2000, 2001)


def test_all_indexes_come_back(place: Place) -> None:
    segment, files, _ = place.copied(segment_at())
    assert place.storage.read_indexes(segment) == SegmentIndexes(
        offset_index=files.offset_index,
        time_index=files.time_index,
        transaction_index=b"",
        producer_snapshot=files.producer_snapshot,
        leader_epochs=files.leader_epochs,
    )


def test_a_transaction_index_comes_back(place: Place) -> None:
    segment = segment_at()
    local = place.made(segment)
    files = msgspec.structs.replace(local.files, transaction_index=b"aborted", time_index=b"")
    place.storage.copy_segment(segment, files)
    found = place.storage.read_indexes(segment)
    assert (found.transaction_index, found.time_index) == (b"aborted", b"")


def test_the_indexes_are_readable_without_custom_metadata(place: Place) -> None:
    segment, files, _ = place.copied(segment_at())
    found = place.storage.read_indexes(msgspec.structs.replace(segment, custom=None))
    assert found.offset_index == files.offset_index


def test_custom_metadata_fits_into_its_limit(place: Place) -> None:
    custom = place.copied(segment_at()).segment.custom
    assert custom is not None
    assert 0 < len(custom) <= CUSTOM_METADATA_MAX


def test_the_size_is_known_only_of_whole_segments(place: Place) -> None:
    segment = segment_at()
    assert place.storage.size_of(segment) is None
    copied = place.copied(segment).segment
    assert place.storage.size_of(copied) == 1000
    # A reader that has seen the start of the copy only asks the same store.
    assert place.storage.size_of(segment) == 1000
    place.storage.delete_segment(copied)
    assert place.storage.size_of(copied) is None


def test_a_copy_can_be_repeated(place: Place) -> None:
    segment, files, content = place.copied(segment_at())
    assert place.storage.copy_segment(segment, files) == segment.custom
    assert place.storage.read(segment, 0, 1000) == content
    assert [found.segment for found in place.storage.list_segments(None)] == [segment]


def test_a_missing_segment_cannot_be_read(place: Place) -> None:
    segment = segment_at()
    with pytest.raises(RemoteMissingError):
        place.storage.read(segment, 0, 1)
    with pytest.raises(RemoteMissingError):
        place.storage.read_indexes(segment)


def test_a_deleted_segment_is_gone_and_can_be_deleted_again(place: Place) -> None:
    first = place.copied(segment_at(100)).segment
    second, _, content = place.copied(segment_at(150))
    place.storage.delete_segment(first)
    place.storage.delete_segment(first)
    with pytest.raises(RemoteMissingError):
        place.storage.read(first, 0, 1)
    assert place.storage.read(second, 0, 1000) == content
    assert [found.segment for found in place.storage.list_segments("orders")] == [second]


def test_a_segment_that_was_never_copied_can_be_deleted(place: Place) -> None:
    place.storage.delete_segment(segment_at())


def test_two_copies_of_the_same_offsets_are_two_segments(place: Place) -> None:
    first = place.copied(segment_at()).segment
    second = place.copied(msgspec.structs.replace(segment_at(), id=bytes(16))).segment
    place.storage.delete_segment(first)
    assert place.storage.size_of(second) == 1000


def test_a_local_segment_that_is_too_short_is_not_copied(place: Place) -> None:
    segment = segment_at()
    files = msgspec.structs.replace(place.made(segment).files, log_size=2000)
    with pytest.raises(RemoteDamagedError):
        place.storage.copy_segment(segment, files)
    assert place.storage.size_of(segment) is None
    assert list(place.storage.list_segments(None)) == []


def test_segments_are_listed_with_all_their_fields(place: Place) -> None:
    segment = place.copied(segment_at()).segment
    (found,) = place.storage.list_segments(None)
    assert found.segment == segment
    assert found.segment.state == SegmentState.COPY_SEGMENT_FINISHED
    assert found.is_whole


def test_a_listing_has_the_order_of_the_names_and_continues_after_one(place: Place) -> None:
    # "-" and "." come before "/", so the order of the topics is not that of their names.
    is_quick = isinstance(place.disk, SimDisk)
    wanted = [
        segment_at(start, topic, partition, size=10)
        for topic in ("a", "a-b", "a.b", "b", "B", "_")
        for partition in ((0, 2, 10) if is_quick else (2, 10))
        for start in ((0, 9, 10_000_000_000) if is_quick else (9, 10_000_000_000))
    ]
    for segment in wanted:
        place.copied(segment)
    found = list(place.storage.list_segments(None))
    names = [each.name for each in found]
    assert names == sorted(names)
    assert len(found) == len(wanted)
    # Each listing of a bucket takes many requests.
    for index, name in list(enumerate(names))[:: 1 if is_quick else 9]:
        later = [each.name for each in place.storage.list_segments(None, name)]
        assert later == names[index + 1 :]


def test_a_listing_of_one_topic_has_no_other(place: Place) -> None:
    for topic in ("a", "ab", "a-b"):
        place.copied(segment_at(topic=topic))
    assert [each.segment.topic for each in place.storage.list_segments("a")] == ["a"]
    assert list(place.storage.list_segments("none")) == []


def test_the_longest_topic_names_are_possible_and_distinct(place: Place) -> None:
    topics = ["t" * 249, "t" * 248 + "u", "t" * 233, "t" * 232]
    segments = [place.copied(segment_at(100 + i, topic=t)) for i, t in enumerate(topics)]
    for topic, (segment, _, content) in zip(topics, segments, strict=True):
        assert place.storage.read(segment, 0, 1000) == content
        listed = [each.segment for each in place.storage.list_segments(topic)]
        assert listed == [segment]


def described(name: str, **configs: str) -> TopicDescription:
    return TopicDescription(name, TOPIC_ID, 6, 3, configs)


def test_topics_are_described_and_described_anew(place: Place) -> None:
    place.storage.write_topic(described("orders", **{"retention.ms": "1"}))
    place.storage.write_topic(described("payments"))
    place.storage.write_topic(described("orders", **{"retention.ms": "2"}))
    assert sorted(place.storage.list_topics(), key=lambda topic: topic.name) == [
        described("orders", **{"retention.ms": "2"}),
        described("payments"),
    ]


def test_a_topic_without_description_is_not_listed(place: Place) -> None:
    place.copied(segment_at())
    assert list(place.storage.list_topics()) == []


def test_a_deleted_description_is_gone_and_can_be_deleted_again(place: Place) -> None:
    place.storage.write_topic(described("orders"))
    place.storage.delete_topic("orders", TOPIC_ID)
    place.storage.delete_topic("orders", TOPIC_ID)
    assert list(place.storage.list_topics()) == []


def test_objects_are_listed_in_order_and_deleted_by_name(place: Place) -> None:
    first = place.copied(segment_at(100)).segment
    second, _, content = place.copied(segment_at(150, partition=11))
    place.storage.write_topic(described("orders"))
    names = [each.name for each in place.storage.list_objects()]
    # Three objects for each segment, the description, and the mark of the store.
    assert len(names) == 8
    assert names == sorted(names)
    assert [each.name for each in place.storage.list_objects(names[3])] == names[4:]
    sizes = {each.name: each.size for each in place.storage.list_objects()}
    parts = [segment_name(first) + suffix for suffix in SUFFIXES]
    assert sizes[parts[0]] == first.size
    place.storage.delete_objects(parts)
    place.storage.delete_objects(parts)
    assert [each.name for each in place.storage.list_objects()] == [
        name for name in names if name not in parts
    ]
    assert place.storage.size_of(first) is None
    assert place.storage.read(second, 0, 1000) == content
