"""`barnabas remote` against a broker with a directory as its tier."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.group import group
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC
from barnabas.testing.broker_process import BrokerProcess
from buckets.bucket import Bucket
from buckets.fixtures import moto
from conformance.tiered_topics import (
    await_all_copied,
    make_tiered_topic,
    produce,
    stored_objects,
    tier_settings,
)
from waiting import eventually

pytestmark = pytest.mark.conformance
__all__ = ["moto"]

TOPIC = "flights"
RECORDS = 100


class Tiered(NamedTuple):
    """A broker and its tier, which has all closed segments of a topic."""

    broker: BrokerProcess
    tier: Path
    last: int

    @property
    def url(self) -> str:
        return f"file://{self.tier}"

    @property
    def settings(self) -> dict[str, str]:
        return tier_settings(self.tier)

    def remote(self, *words: str) -> Result:
        return CliRunner().invoke(group, ["remote", *words])

    def verify(self, *words: str) -> Result:
        return self.remote("verify", self.url, "--bootstrap", self.broker.bootstrap, *words)

    def path(self, suffix: str) -> Path:
        """Return the first object with a suffix."""
        return min(self.tier.rglob(f"0*{suffix}"))


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    tier = tmp_path_factory.mktemp("tier")
    with BrokerProcess(tmp_path_factory.mktemp("broker"), tier_settings(tier)) as broker:
        make_tiered_topic(broker.bootstrap, TOPIC)
        produce(broker.bootstrap, TOPIC, range(RECORDS))
        last = await_all_copied(broker.bootstrap, TOPIC, broker.data_directory)
        yield Tiered(broker, tier, last)


def test_objects_and_metadata_have_the_same_segments(tiered: Tiered) -> None:
    known = tiered.remote("list", "--bootstrap", tiered.broker.bootstrap, "--json")
    stored = tiered.remote("list", tiered.url, "--json")
    assert known.exit_code == stored.exit_code == 0, known.output + stored.output
    (of_metadata,) = json.loads(known.stdout)["partitions"]
    (of_objects,) = json.loads(stored.stdout)["partitions"]
    assert of_metadata["segments"] == len(stored_objects(tiered.tier, TOPIC)) // 3
    assert (of_metadata["first_offset"], of_metadata["last_offset"]) == (0, tiered.last)
    assert of_metadata["gaps"] == []
    newest = of_metadata.pop("newest_copy_ms")
    assert newest >= of_objects.pop("newest_copy_ms")
    assert of_metadata == of_objects
    assert json.loads(known.stdout)["cluster_id"] == json.loads(stored.stdout)["cluster_id"]


def test_a_whole_tier_is_verified(tiered: Tiered) -> None:
    done = tiered.verify("--read")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("whole: ")
    assert tiered.remote("verify", tiered.url, "--read").exit_code == 0


@pytest.mark.parametrize("suffix", [".log", ".indexes", ".json"])
def test_a_damaged_object_is_found(tiered: Tiered, suffix: str) -> None:
    path = tiered.path(suffix)
    content = path.read_bytes()
    damaged = bytearray(content)
    damaged[-1] ^= 0xFF
    try:
        path.write_bytes(damaged)
        done = tiered.verify("--read", "--json")
        assert done.exit_code == 1
        (found,) = json.loads(done.stdout)["findings"]
        assert (found["kind"], found["wrong"]) == ("damaged", True)
        path.unlink()
        done = tiered.verify("--json")
        assert done.exit_code == 1
        assert [each["kind"] for each in json.loads(done.stdout)["findings"]] == ["missing"]
    finally:
        path.write_bytes(content)
    assert tiered.verify().exit_code == 0


def test_orphans_are_deleted_when_they_are_old(tiered: Tiered) -> None:
    path = tiered.path(".log")
    # The same place with another segment id.
    orphan = path.with_name(path.name[:21] + "AAAAAAAAAAAAAAAAAAAAAA.log")
    orphan.write_bytes(b"orphan")
    done = tiered.verify()
    assert done.exit_code == 0
    assert "orphan" in done.stdout
    assert tiered.verify("--delete-orphans", "--yes").exit_code == 0
    assert orphan.exists()
    two_days_ago = time.time() - 2 * 86_400
    os.utime(orphan, (two_days_ago, two_days_ago))
    assert tiered.verify("--delete-orphans").exit_code == 2
    assert orphan.exists()
    done = tiered.verify("--delete-orphans", "--yes")
    assert done.exit_code == 0, done.output
    assert "deleted 1 orphaned object" in done.stdout
    assert not orphan.exists()
    assert tiered.verify("--read").stdout.startswith("whole: ")


def test_events_of_segments_are_decoded(tiered: Tiered) -> None:
    data = tiered.broker.data_directory
    paths = [str(path) for path in data.glob(f"{REMOTE_LOG_TOPIC}-*")]
    done = CliRunner().invoke(group, ["log", "dump", *paths, "--json"])
    assert done.exit_code == 0, done.output
    batches = [json.loads(line) for line in done.stdout.splitlines()]
    records = [record for batch in batches for record in batch["records"]]
    types = {record["type"] for record in records}
    assert types == {"RemoteLogSegmentMetadataRecord", "RemoteLogSegmentMetadataUpdateRecord"}
    assert records[0]["data"]["remote_log_segment_state"] == "COPY_SEGMENT_STARTED"
    topics = {
        record["data"]["remote_log_segment_id"]["topic_id_partition"]["name"] for record in records
    }
    assert topics == {TOPIC}


def test_a_cluster_that_does_not_answer_is_no_damage(tiered: Tiered) -> None:
    words = ("verify", tiered.url, "--bootstrap", "127.0.0.1:1", "--timeout", "1")
    assert tiered.remote(*words).exit_code == 2


def test_the_topic_is_described_and_its_directory_ends_empty(tiered: Tiered) -> None:
    topic = "described"
    broker = tiered.broker
    make_tiered_topic(broker.bootstrap, topic, retention_ms="1000000000")
    produce(broker.bootstrap, topic, range(RECORDS))
    await_all_copied(broker.bootstrap, topic, broker.data_directory)
    (file,) = eventually(lambda: list(tiered.tier.glob(f"*/{topic}-*/topic.json")), "no topic.json")
    described = json.loads(file.read_bytes())
    assert (described["name"], described["partitions"]) == (topic, 1)
    assert described["configs"]["retention.ms"] == "1000000000"
    done = CliRunner().invoke(
        group, ["topics", "delete", topic, "--yes", "--bootstrap", broker.bootstrap]
    )
    assert done.exit_code == 0, done.output
    eventually(
        lambda: not [path for path in file.parent.rglob("*") if path.is_file()],
        "objects of the deleted topic remain",
    )


def test_a_restart_without_the_mounted_store_marks_nothing(tmp_path: Path) -> None:
    tier = tmp_path / "tier"
    tier.mkdir()
    with BrokerProcess(tmp_path / "broker", tier_settings(tier)) as broker:
        make_tiered_topic(broker.bootstrap, TOPIC, local_retention_bytes="1")
        produce(broker.bootstrap, TOPIC, range(RECORDS))
        last = await_all_copied(broker.bootstrap, TOPIC, broker.data_directory)
        assert broker.stop() == 0
        tier.rename(tmp_path / "unmounted")
        tier.mkdir()
        broker.start()
        produce(broker.bootstrap, TOPIC, range(RECORDS, 2 * RECORDS))

        eventually(lambda: "remote format" in broker.log(), "the broker does not complain")
        assert not list(tier.rglob("store.json"))
        assert broker.stop() == 0
        for path in sorted(tier.rglob("*"), reverse=True):
            path.rmdir()
        tier.rmdir()
        (tmp_path / "unmounted").rename(tier)
        broker.start()
        assert await_all_copied(broker.bootstrap, TOPIC, broker.data_directory) > last
        words = ["remote", "verify", f"file://{tier}", "--bootstrap", broker.bootstrap, "--read"]
        assert CliRunner().invoke(group, words).exit_code == 0


def test_a_bucket_is_verified_with_the_file_of_a_broker(tmp_path: Path, moto: Bucket) -> None:
    settings = tier_settings(tmp_path / "unused") | moto.settings()
    with BrokerProcess(tmp_path / "broker", settings) as broker:
        make_tiered_topic(broker.bootstrap, TOPIC)
        produce(broker.bootstrap, TOPIC, range(RECORDS))
        await_all_copied(broker.bootstrap, TOPIC, broker.data_directory)
        file = tmp_path / "server.properties"
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        file.write_text("process.roles=broker,controller\n" + "".join(lines))

        def remote(command: str, *words: str) -> Result:
            given = ["remote", command, "--config", str(file), *words]
            return CliRunner().invoke(group, given)

        compared = ("--bootstrap", broker.bootstrap, "--read")
        done = remote("verify", *compared)
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith("whole: ")
        logs = [name for name in moto.objects() if name.endswith(".log")]
        assert json.loads(remote("list", "--json").stdout)["segments"] == len(logs)
        moto.flip(logs[0])
        assert remote("verify", *compared).exit_code == 1
        moto.remove(logs[0])
        done = remote("verify", "--json")
        assert [each["kind"] for each in json.loads(done.stdout)["findings"]] == ["missing"]
        options = [
            f"--option={key}={value}" for key, value in moto.options_with_credentials.items()
        ]
        given = ["remote", "list", moto.url, *options, "--json"]
        assert json.loads(CliRunner().invoke(group, given).stdout)["segments"] == len(logs)
        moto.stop()
        try:
            file.write_text(file.read_text() + "barnabas.remote.retry.timeout.ms=1000\n")
            assert remote("verify").exit_code == 2
        finally:
            moto.start()
