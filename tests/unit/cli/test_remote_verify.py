"""`barnabas remote verify`: each kind of damage is found, and nothing else."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from barnabas.cli.group import group
from barnabas.cli.remote.stores import OpenStore
from barnabas.cli.remote.verification import READS, RemoteFinding, Verification, VerifyScope
from barnabas.storage.remote.object_storage import ObjectStorage
from barnabas.storage.remote.remote_storage import (
    RemoteSegment,
    SegmentState,
    TopicDescription,
)
from barnabas.storage.remote.segment_objects import segment_name
from unit.cli.remote_stores import CLUSTER, TOPIC_ID, MadeStore

# More than a busy machine needs until all threads have begun.
SECONDS = 60
STARTED, DELETING = SegmentState.COPY_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_STARTED


@pytest.fixture
def store(tmp_path: Path) -> MadeStore:
    return MadeStore(tmp_path)


def verify(*words: str) -> Result:
    return CliRunner().invoke(group, ["remote", "verify", *words])


def findings_of_objects(store: MadeStore, *words: str) -> list[tuple[str, str]]:
    """Return kind and subject of what a verification without a cluster finds."""
    done = verify(store.url, "--json", *words)
    found = json.loads(done.stdout)
    assert done.exit_code == (0 if found["is_whole"] else 1)
    return [(each["kind"], each["subject"]) for each in found["findings"]]


def findings(
    store: MadeStore,
    segments: Iterable[RemoteSegment],
    *,
    topic: str | None = None,
    reads: bool = False,
    topics: Iterable[bytes] = (TOPIC_ID,),
) -> list[RemoteFinding]:
    """Return what a verification against these segments of a cluster finds."""
    scope = VerifyScope(topic, reads, True, set(topics).__contains__)
    done = Verification(OpenStore(store.url, CLUSTER, store.storage), scope, lambda _: None)
    done.run(iter(sorted(segments, key=segment_name)))
    return list(done.findings.read())


def kinds(found: list[RemoteFinding]) -> list[str]:
    return [each.kind for each in found]


def test_a_whole_store_has_no_findings(store: MadeStore) -> None:
    segments = [store.add(start, partition=partition) for partition in (0, 1) for start in (0, 10)]
    store.storage.write_topic(TopicDescription("flights", TOPIC_ID, 2, 1, {}))
    assert findings_of_objects(store) == []
    assert findings_of_objects(store, "--read") == []
    assert findings(store, segments, reads=True) == []
    done = verify(store.url)
    assert done.exit_code == 0
    assert done.stdout.startswith("whole: 4 segments, ")


@pytest.mark.parametrize("suffix", [".log", ".indexes", ".json"])
def test_a_missing_object_is_named(store: MadeStore, suffix: str) -> None:
    segments = [store.add(start) for start in (0, 10, 20)]
    store.object(segments[1], suffix).unlink()
    (found,) = findings(store, segments)
    assert found.kind == "missing"
    assert found.subject == "flights-0 offsets 10 to 19"
    assert f"{segment_name(segments[1])}{suffix} is missing" in found.what


def test_a_segment_without_objects_is_missing(store: MadeStore) -> None:
    segments = [store.add(start) for start in (0, 10, 20)]
    store.storage.delete_segment(segments[1])
    assert kinds(findings(store, segments)) == ["missing"]


def test_a_lost_segment_is_a_gap_without_metadata(store: MadeStore) -> None:
    segments = [store.add(start) for start in (0, 10, 20)]
    store.storage.delete_segment(segments[1])
    assert findings_of_objects(store) == [("gap", "flights-0 offsets 20 to 29")]


@pytest.mark.parametrize("suffix", [".log", ".indexes"])
@pytest.mark.parametrize("has_metadata", [True, False])
def test_an_object_of_another_size_is_found(
    store: MadeStore, suffix: str, has_metadata: bool
) -> None:
    segment = store.add(0)
    path = store.object(segment, suffix)
    path.write_bytes(path.read_bytes()[:-1])
    if has_metadata:
        assert kinds(findings(store, [segment])) == ["size"]
    else:
        assert findings_of_objects(store) == [("size", "flights-0 offsets 0 to 9")]


def test_names_that_are_no_text_are_shown_with_escapes(store: MadeStore) -> None:
    directory = store.object(store.add(0), ".log").parent
    for name in (b"\xff\xfe.log", b"a\nb.json", b"\x1b[2J.indexes"):
        Path(os.fsdecode(os.fsencode(directory) + b"/" + name)).touch()
    subjects = [subject for _, subject in findings_of_objects(store)]
    assert [each.rpartition("/")[2] for each in subjects] == [
        "\\x1b[2J.indexes",
        "a\\nb.json",
        "\\udcff\\udcfe.log",
    ]


Damage = Callable[[MadeStore, RemoteSegment], None]
DAMAGES: dict[str, Damage] = {
    "a record": lambda store, segment: store.flip(segment, ".log", segment.size - 3),
    "an offset": lambda store, segment: store.flip(segment, ".log", 7),
    "a length": lambda store, segment: store.flip(segment, ".log", 10),
    "the indexes": lambda store, segment: store.flip(segment, ".indexes", 30),
    "the manifest": lambda store, segment: store.object(segment, ".json").write_bytes(b"{}"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_contents_are_found_by_reading(store: MadeStore, damage: Damage) -> None:
    segments = [store.add(start) for start in (0, 10, 20)]
    damage(store, segments[1])
    assert findings(store, segments) == []
    (found,) = findings(store, segments, reads=True)
    assert found.kind == "damaged"
    assert found.subject == "flights-0 offsets 10 to 19"


def test_contents_are_read_several_at_a_time(
    store: MadeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = [store.add(start) for start in range(0, 10 * READS, 10)]
    store.flip(segments[-1], ".log", segments[-1].size - 3)
    # Each read waits until READS reads have begun.
    all_read = threading.Barrier(READS)
    read = type(store.storage).read

    def read_together(
        storage: ObjectStorage, segment: RemoteSegment, start: int, end: int
    ) -> memoryview:
        all_read.wait(SECONDS)
        return read(storage, segment, start, end)

    monkeypatch.setattr(type(store.storage), "read", read_together)
    (found,) = findings(store, segments, reads=True)
    assert found.subject == f"flights-0 offsets {10 * READS - 10} to {10 * READS - 1}"


def test_a_damaged_manifest_is_found_without_metadata(store: MadeStore) -> None:
    segments = [store.add(start) for start in (0, 10)]
    store.object(segments[1], ".json").write_bytes(b"{}")
    assert findings_of_objects(store) == [("damaged", "flights-0 from offset 10")]


def test_a_manifest_that_contradicts_the_metadata_is_found(store: MadeStore) -> None:
    segment = store.add(0)
    (found,) = findings(store, [replace(segment, end_offset=8)], reads=True)
    assert found.kind == "damaged"
    assert "end_offset" in found.what


def test_objects_that_no_metadata_names_are_orphans(store: MadeStore) -> None:
    known = store.add(0)
    unknown = store.add(0, epoch=1)
    (found,) = findings(store, [known])
    assert found.kind == "orphan"
    assert not found.is_problem
    assert sorted(found.objects) == [
        segment_name(unknown) + suffix for suffix in (".indexes", ".json", ".log")
    ]
    objects = (store.object(unknown, suffix) for suffix in (".indexes", ".json", ".log"))
    assert found.size == sum(each.stat().st_size for each in objects)


@pytest.mark.parametrize("state", [STARTED, DELETING])
def test_objects_of_unfinished_copies_and_deletions_are_no_orphans(
    store: MadeStore, state: SegmentState
) -> None:
    segment = store.add(0)
    store.object(segment, ".json").unlink()
    assert findings(store, [replace(segment, state=state)]) == []
    store.storage.delete_segment(segment)
    assert findings(store, [replace(segment, state=state)]) == []


def test_a_copy_without_a_manifest_is_incomplete_without_metadata(store: MadeStore) -> None:
    store.add(0)
    store.object(store.add(10), ".json").unlink()
    done = verify(store.url)
    assert done.exit_code == 0
    assert "incomplete" in done.stdout


def test_the_description_of_a_deleted_topic_is_an_orphan(store: MadeStore) -> None:
    segment = store.add(0)
    store.storage.write_topic(TopicDescription("flights", TOPIC_ID, 1, 1, {}))
    gone = b"-another-topic-i"
    store.storage.write_topic(TopicDescription("gone", gone, 1, 1, {}))
    (found,) = findings(store, [segment])
    assert found.kind == "orphan"
    assert found.objects[0].startswith("gone-")
    # Segments of the topic may still be on their way to deletion.
    assert findings(store, [segment], topics=(TOPIC_ID, gone)) == []


def test_leftover_and_foreign_files_are_reported(store: MadeStore) -> None:
    segment = store.add(0)
    directory = store.object(segment, ".log").parent
    (directory / "notes.log").write_bytes(b"x")
    (found,) = findings(store, [segment])
    assert (found.kind, found.is_problem) == ("foreign", False)


def test_gaps_are_found_and_overlaps_are_allowed(store: MadeStore) -> None:
    segments = [store.add(start) for start in (0, 10, 30)]
    segments.append(store.add(10, epoch=1))
    (found,) = findings(store, segments)
    assert found.kind == "gap"
    assert "20-29" in found.what


def test_only_one_topic_is_verified(store: MadeStore) -> None:
    flights = store.add(0)
    store.add(0, topic="flights-old", topic_id=b"other-topic-id-1")
    store.add(0, topic="trains", topic_id=b"trains-topic-id-")
    assert findings(store, [flights], topic="flights") == []
    assert len(findings(store, [flights])) == 2
    done = verify(store.url, "--topic", "flights")
    assert done.stdout.startswith("whole: 1 segment,")


def test_a_directory_that_is_no_store_cannot_be_looked_at(tmp_path: Path) -> None:
    done = verify(f"file://{tmp_path}")
    assert done.exit_code == 2
    assert "is not a store" in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert verify(f"file://{tmp_path}/missing").exit_code == 2


def test_orphans_are_deleted_only_with_metadata(store: MadeStore) -> None:
    done = verify(store.url, "--delete-orphans")
    assert done.exit_code == 2
    assert "--bootstrap" in done.stderr


def test_a_store_that_is_only_there_for_another_cluster_is_refused(store: MadeStore) -> None:
    done = verify(store.url, "--cluster", "other")
    assert done.exit_code == 2
    assert "cluster other, but of cluster" in done.stderr


def listed(store: MadeStore, *words: str) -> dict[str, object]:
    done = CliRunner().invoke(group, ["remote", "list", store.url, "--json", *words])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_listing_has_offsets_gaps_and_overlaps_of_each_partition(store: MadeStore) -> None:
    for start in (0, 10, 30):
        store.add(start)
    store.add(10, epoch=1)
    store.add(50, partition=2)
    found = listed(store)
    first, second = found["partitions"]
    assert (first["first_offset"], first["last_offset"], first["segments"]) == (0, 39, 4)
    assert first["gaps"] == [{"first": 20, "last": 29}]
    assert first["overlaps"] == 1
    assert (second["partition"], second["first_offset"], second["gaps"]) == (2, 50, [])
    assert found["segments"] == 5
    shown = CliRunner().invoke(group, ["remote", "list", store.url])
    assert "flights\t0\t4\t" in shown.stdout
    assert "no segment has the offsets 20-29" in shown.stdout


def test_a_store_is_taken_from_the_file_of_a_broker(store: MadeStore, tmp_path: Path) -> None:
    store.add(0)
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nremote.log.storage.system.enable=true\n"
        f"barnabas.remote.storage={store.url}\n"
    )
    done = CliRunner().invoke(group, ["remote", "list", "--config", str(file), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["segments"] == 1


def test_a_moved_store_is_marked_by_format(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/new"
    words = ["remote", "format", url, "--cluster", "mine"]
    done = CliRunner().invoke(group, words)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "new" / "mine" / "store.json").exists()
    assert "already" in CliRunner().invoke(group, words).stdout
