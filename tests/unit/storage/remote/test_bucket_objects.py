"""A bucket as the place of a store: names, marks, orders of calls, and stores that lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.runtime.disk import RealDisk
from barnabas.runtime.object_store import ObjectStore, memory_store
from barnabas.storage.remote.bucket_objects import BucketObjects, clusters_in_bucket
from barnabas.storage.remote.object_storage import ObjectStorage
from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    RemoteFullError,
    RemoteMissingError,
    RemoteRefusedError,
    RemoteSegment,
    RemoteStorageError,
    RemoteUnavailableError,
    TopicDescription,
)
from barnabas.storage.remote.segment_objects import SUFFIXES, encode_store, segment_name
from unit.runtime.answering_server import (
    Answer,
    AnsweringServer,
    Request,
    answering_server,
    failure,
)
from unit.storage.remote.stored_segments import (
    TOPIC_ID,
    LocalSegment,
    finished,
    local_segment,
    segment_at,
)


def storage_in(store: ObjectStore, prefix: str = "tier", cluster: str = "cluster") -> ObjectStorage:
    return ObjectStorage(BucketObjects(store, prefix, cluster), cluster)


def made(tmp_path: Path, segment: RemoteSegment | None = None) -> LocalSegment:
    return local_segment(RealDisk(), segment or segment_at(), str(tmp_path))


def copied(tmp_path: Path, storage: ObjectStorage, segment: RemoteSegment) -> RemoteSegment:
    return finished(segment, storage.copy_segment(segment, made(tmp_path, segment).files))


def names(store: ObjectStore) -> list[str]:
    return [each.name for each in store.list("", "")]


@pytest.mark.parametrize(("prefix", "root"), [("", "cluster"), ("a/b", "a/b/cluster")])
def test_objects_lie_below_the_prefix_and_the_cluster(
    tmp_path: Path, prefix: str, root: str
) -> None:
    store = memory_store()
    storage = storage_in(store, prefix)
    segment = copied(tmp_path, storage, segment_at())
    storage.write_topic(TopicDescription("orders", TOPIC_ID, 1, 1, {}))
    wanted = [f"{root}/{segment_name(segment)}{suffix}" for suffix in SUFFIXES]
    topic = f"{wanted[0].rpartition('/')[0].rpartition('/')[0]}/topic.json"
    assert names(store) == sorted([*wanted, topic, f"{root}/store.json"])
    listed = list(storage.list_objects())
    assert [f"{root}/{each.name}" for each in listed] == names(store)
    assert [each.name for each in storage.list_objects(listed[1].name)] == [
        each.name for each in listed[2:]
    ]
    assert [each.segment for each in storage.list_segments(None)] == [segment]
    storage.delete_topic("orders", TOPIC_ID)
    storage.delete_segment(segment)
    storage.delete_objects(["store.json", "store.json"])
    assert names(store) == []


def test_clusters_and_their_objects_are_apart(tmp_path: Path) -> None:
    store = memory_store()
    segment = copied(tmp_path, storage_in(store), segment_at())
    other = storage_in(store, cluster="clusters")
    assert other.size_of(segment) is None
    assert list(other.list_segments(None)) == []
    store.put("tier/foreign/notes.txt", b"")
    assert clusters_in_bucket(store, "tier") == ["cluster", "clusters"]
    assert clusters_in_bucket(store, "") == []


def test_an_emptied_or_exchanged_bucket_is_not_an_empty_store(tmp_path: Path) -> None:
    store = memory_store()
    storage = storage_in(store)
    segment, files, _ = made(tmp_path)
    segment = finished(segment, storage.copy_segment(segment, files))
    store.delete(names(store))
    for call in (
        lambda: storage.size_of(segment),
        lambda: storage.read(segment, 0, 1),
        lambda: storage.read_indexes(segment),
        lambda: storage.delete_segment(segment),
        lambda: storage.copy_segment(segment, files),
        lambda: storage.write_topic(TopicDescription("orders", TOPIC_ID, 1, 1, {})),
        lambda: storage.delete_objects(["a"]),
    ):
        with pytest.raises(RemoteUnavailableError, match=r"store\.json is missing: .*bucket"):
            call()
    assert names(store) == []


def test_the_mark_of_another_cluster_is_refused(tmp_path: Path) -> None:
    store = memory_store()
    store.put("tier/cluster/store.json", encode_store("other"))
    with pytest.raises(RemoteRefusedError, match="marks the store of cluster other"):
        copied(tmp_path, storage_in(store), segment_at())
    store.put("tier/cluster/store.json", b"[]")
    with pytest.raises(RemoteDamagedError, match=r"store\.json"):
        copied(tmp_path, storage_in(store), segment_at())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_segment_without_one_of_its_parts_is_not_whole(tmp_path: Path, suffix: str) -> None:
    store = memory_store()
    storage = storage_in(store)
    segment = copied(tmp_path, storage, segment_at())
    store.delete([f"tier/cluster/{segment_name(segment)}{suffix}"])
    assert storage.size_of(segment) is None
    listed = [each.is_whole for each in storage.list_segments(None)]
    assert listed == ([] if suffix == ".json" else [False])


def test_damaged_and_foreign_objects_are_left_out_of_listings(tmp_path: Path) -> None:
    store = memory_store()
    storage = storage_in(store)
    good = copied(tmp_path, storage, segment_at(100))
    bad = copied(tmp_path, storage, segment_at(150))
    place = f"tier/cluster/{segment_name(bad)}"
    store.put(f"{place}.json", b"{}")
    directory = place.rpartition("/")[0]
    for name in (f"{directory}/notes.json", f"{place}.log.bak", "tier/cluster/a/0/b.json"):
        store.put(name, b"{}")
    store.put(f"{directory.rpartition('/')[0]}/topic.json", b"[]")
    assert [each.segment for each in storage.list_segments(None)] == [good]
    assert list(storage.list_topics()) == []


def test_a_local_segment_that_is_missing_is_named(tmp_path: Path) -> None:
    segment, files, _ = made(tmp_path)
    Path(files.log_path).unlink()
    with pytest.raises(RemoteMissingError, match=files.log_path):
        storage_in(memory_store()).copy_segment(segment, files)


# --- over a server


@pytest.fixture(scope="module")
def running() -> Iterator[AnsweringServer]:
    with answering_server() as server:
        yield server


@pytest.fixture
def server(running: AnsweringServer) -> AnsweringServer:
    running.objects.clear()
    running.requests.clear()
    running.answer = lambda _: None
    return running


def test_the_manifest_is_written_last_and_deleted_first(
    tmp_path: Path, server: AnsweringServer
) -> None:
    storage = storage_in(server.store())
    segment = copied(tmp_path, storage, segment_at())

    def suffixes(method: str) -> list[str]:
        paths = [each.path for each in server.requests if each.method == method]
        return [f".{path.rpartition('.')[2]}" for path in paths if "store.json" not in path]

    assert suffixes("PUT") == [".log", ".indexes", ".json"]
    storage.delete_segment(segment)
    assert suffixes("DELETE")[0] == ".json"
    assert set(suffixes("DELETE")) == set(SUFFIXES)
    assert list(server.objects) == ["/bucket/tier/cluster/store.json"]


@pytest.mark.parametrize("suffix", [".log", ".indexes"])
@pytest.mark.parametrize("is_cut", [True, False], ids=["cut", "not stored"])
def test_a_store_that_lies_about_success_is_noticed_before_the_manifest(
    tmp_path: Path, server: AnsweringServer, suffix: str, is_cut: bool
) -> None:
    def lie(request: Request) -> Answer | None:
        if request.method != "PUT" or not request.path.endswith(suffix):
            return None
        if is_cut:
            server.objects[request.path] = b"x"
        return Answer(200, b"", (("ETag", '"1"'),))

    server.answer = lie
    segment, files, content = made(tmp_path)
    storage = storage_in(server.store())
    words = "has 1 bytes" if is_cut else "is missing"
    with pytest.raises(RemoteUnavailableError, match=f"{suffix} {words} after the store has"):
        storage.copy_segment(segment, files)
    assert storage.size_of(segment) is None
    server.answer = lambda _: None
    segment = finished(segment, storage.copy_segment(segment, files))
    assert storage.read(segment, 0, len(content)) == content


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (failure(503, "SlowDown"), RemoteUnavailableError),
        (failure(403, "AccessDenied"), RemoteRefusedError),
        (failure(404, "NoSuchBucket"), RemoteRefusedError),
        (failure(507, "InsufficientStorage"), RemoteFullError),
    ],
)
def test_errors_of_the_bucket_are_those_of_the_tier(
    tmp_path: Path, server: AnsweringServer, answer: Answer, kind: type[RemoteStorageError]
) -> None:
    storage = storage_in(server.store())
    segment, files, _ = made(tmp_path)
    segment = finished(segment, storage.copy_segment(segment, files))
    server.answer = lambda request: answer if request.method in ("PUT", "GET") else None
    for call in (
        lambda: storage.copy_segment(segment, files),
        lambda: storage.read(segment, 0, 10),
        lambda: storage.read_indexes(segment),
        lambda: list(storage.list_segments(None)),
        lambda: list(storage.list_topics()),
    ):
        with pytest.raises(kind, match="s3://bucket/tier/cluster"):
            call()
