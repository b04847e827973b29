"""`barnabas log dump` and `log verify` over the files of a broker, intact and damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.log.commands import log
from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell

pytestmark = pytest.mark.conformance

SEGMENT = "00000000000000000000"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a stopped broker: three segments of `t`, a group's offsets."""
    with BrokerProcess(tmp_path_factory.mktemp("written")) as broker:
        shell = Shell(broker.bootstrap)
        shell.ok("topics", "create", "t", "-p", "1", "-c", "segment.bytes=1048576")
        lines = "".join(f"{number:>0100}\n" for number in range(25_000))
        shell.ok("produce", "t", "-X", "batch.size=8192", "-z", "none", stdin=lines)
        shell.ok("consume", "t", "-g", "g", "--from", "beginning", "-n", "7")
        assert broker.stop() == 0
        kept = tmp_path_factory.mktemp("kept") / "data"
        shutil.copytree(broker.data_directory, kept)
    return kept


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    shutil.copytree(written, tmp_path / "data")
    return tmp_path / "data"


def run(*words: object) -> Result:
    return CliRunner().invoke(log, [str(word) for word in words])


def entries(*words: object) -> list[dict[str, object]]:
    done = run("dump", *words, "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.output.splitlines()]


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


def last_segment(data: Path) -> Path:
    return max((data / "t-0").glob("*.log"))


# Dump


def test_batches_records_and_indexes_are_shown(written: Path) -> None:
    batches = entries(written / "t-0")
    assert sum(int(str(batch["count"])) for batch in batches) == 25_000
    assert all(batch["crc_is_right"] for batch in batches)
    (first, *_) = entries(written / "t-0", "--records", "--from", "12345", "-n", "1")
    values = [record["value"] for record in first["records"]]  # type: ignore[attr-defined]
    assert f"{12345:>0100}" in values
    index = entries(written / "t-0" / f"{SEGMENT}.index")
    at = {batch["position"]: batch["last_offset"] for batch in batches[:100]}
    assert index
    assert at[index[0]["position"]] == index[0]["offset"]


def test_a_first_offset_shows_no_earlier_segments(written: Path) -> None:
    segments = sorted((written / "t-0").glob("*.log"))
    base_offset = int(segments[1].stem)
    for offset in (base_offset, base_offset + 1):
        done = run("dump", written / "t-0", "--from", offset, "-n", "1")
        heading, batch = done.output.splitlines()
        assert heading == str(segments[1])
        first, last = map(int, batch.split()[0].split("-"))
        assert first <= offset <= last
    by_files = run("dump", *segments, "--from", base_offset, "-n", "1")
    assert by_files.output.splitlines()[0] == str(segments[1])


def test_a_first_offset_before_the_log_begins_with_the_first_batch(data: Path) -> None:
    segments = sorted((data / "t-0").glob("*.log"))
    segments[0].unlink()
    (batch,) = entries(data / "t-0", "--from", "5", "-n", "1")
    assert batch["base_offset"] == int(segments[1].stem)


def test_a_first_offset_behind_the_last_batch_is_wrong_usage(written: Path) -> None:
    done = run("dump", written / "t-0", "--from", "25000")
    assert done.exit_code == 2
    assert "--from 25000: the batches end before offset 25000" in done.output
    assert entries(written / "t-0" / f"{SEGMENT}.index", "--from", "25000")


def test_a_first_offset_of_the_metadata_log_shows_no_snapshots(data: Path) -> None:
    directory = data / "__cluster_metadata-0"
    segments = sorted(directory.glob("*.log"))
    shutil.copy(segments[0], directory / "00000000000000000010-0000000001.checkpoint")
    assert len(entries(directory)) > len(entries(*segments))
    assert entries(directory, "--from", "1") == entries(*segments, "--from", "1")


def test_records_of_internal_topics_are_decoded(written: Path) -> None:
    shown = "".join(
        run("dump", directory).output for directory in sorted(written.glob("__consumer_offsets-*"))
    )
    assert 'OffsetCommit {"group": "g", "topic": "t", "partition": 0} -> {"offset": 7' in shown
    metadata = run("dump", written / "__cluster_metadata-0").output
    assert 'TopicRecord {"name": "t"' in metadata
    assert "LEADER_CHANGE" in metadata
    assert 'ConfigRecord {"resource_type": 2, "resource_name": "t", "name": "segment.bytes"' in (
        metadata
    )


def test_small_files_are_shown(written: Path) -> None:
    (epoch,) = entries(written / "t-0" / "leader-epoch-checkpoint")
    assert epoch["start_offset"] == 0
    offsets = entries(written / "recovery-point-offset-checkpoint")
    assert {"entry": "line", "topic": "t", "partition": 0, "offset": 25_000} in offsets
    snapshots = sorted((written / "t-0").glob("*.snapshot"))
    assert entries(snapshots[-1])[0]["last_offset"] == 24_999
    assert entries(written / "meta.properties")[0]["version"] == "1"


def test_a_file_of_another_kind_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    done = run("dump", tmp_path / "notes.txt")
    assert done.exit_code == 2
    assert ".timeindex" in done.output


# Verify


def test_verify_finds_nothing_wrong_with_files_of_the_broker(written: Path) -> None:
    done = run("verify", written, "--deep", "--json")
    found = json.loads(done.output)
    assert found["findings"] == []
    assert (done.exit_code, found["in_use"]) == (0, False)
    assert found["batches"] > 300
    assert run("verify", written / "t-0").exit_code == 0


def test_empty_files_of_kafka_are_no_damage(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    for suffix in ("log", "index", "timeindex"):
        (partition / f"{SEGMENT}.{suffix}").touch()
    (partition / "leader-epoch-checkpoint").touch()
    done = run("verify", partition)
    assert done.exit_code == 0, done.output


def test_a_directory_of_a_running_broker_is_not_changed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        shell = Shell(broker.bootstrap)
        shell.ok("topics", "create", "t", "-p", "1")
        shell.ok("produce", "t", stdin="1\n2\n")
        found = json.loads(run("verify", broker.data_directory, "--json").output)
        assert found["in_use"]
        assert [each["wrong"] for each in found["findings"]] == [False]
        shell.ok("produce", "t", stdin="3\n")
        assert shell.ok("consume", "t", "--from", "beginning", "-e") == "1\n2\n3\n"


def cut_tail(data: Path) -> None:
    path = last_segment(data)
    path.write_bytes(path.read_bytes()[:-10])


def zero_tail(data: Path) -> None:
    with last_segment(data).open("ab") as file:
        file.write(bytes(5000))


def rewrite_index(suffix: str, entry_bytes: int) -> Callable[[Path], None]:
    def damage(data: Path) -> None:
        flip(data / "t-0" / f"{SEGMENT}.{suffix}", 5 * entry_bytes + 3)

    return damage


def raise_recovery_point(data: Path) -> None:
    path = data / "recovery-point-offset-checkpoint"
    # Write the file as Kafka does, without the checksum in trailing white space.
    path.write_text(path.read_text().rstrip().replace("t 0 25000", "t 0 99999") + "\n")


DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a flipped byte": (
        lambda data: flip(data / "t-0" / f"{SEGMENT}.log", 5000),
        f"{SEGMENT}.log",
        "the CRC is wrong",
    ),
    "no batch": (
        lambda data: flip(data / "t-0" / f"{SEGMENT}.log", 16),
        f"{SEGMENT}.log",
        "no batch begins here",
    ),
    "a wrong base offset": (
        lambda data: flip(data / "t-0" / f"{SEGMENT}.log", 6),
        f"{SEGMENT}.log",
        "are missing before it",
    ),
    "a wrong length": (
        lambda data: flip(data / "t-0" / f"{SEGMENT}.log", 9),
        f"{SEGMENT}.log",
        "at position 0 of",
    ),
    "a segment that is gone": (
        lambda data: sorted((data / "t-0").glob("*.log"))[1].unlink(),
        ".log",
        "a segment is missing",
    ),
    "a cut tail": (cut_tail, ".log", "lacks its last 10"),
    "zeros at the end": (zero_tail, ".log", "zeros instead of a batch"),
    "a wrong offset index": (
        rewrite_index("index", 8),
        ".index",
        "does not follow the previous entry",
    ),
    "a wrong time index": (rewrite_index("timeindex", 12), ".timeindex", "entry 5"),
    "a missing index": (
        lambda data: (data / "t-0" / f"{SEGMENT}.index").unlink(),
        ".index",
        "the index is missing",
    ),
    "an index too many": (
        lambda data: (data / "t-0" / "00000000000000099999.index").write_bytes(b""),
        "99999.index",
        "without its segment",
    ),
    "an epoch file of nonsense": (
        lambda data: (data / "t-0" / "leader-epoch-checkpoint").write_text("0\n7\n0 0\n"),
        "leader-epoch-checkpoint",
        "1 entries instead of",
    ),
    "another epoch": (
        lambda data: (data / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n9 0\n"),
        "leader-epoch-checkpoint",
        "but the file has epoch 9",
    ),
    "a damaged snapshot": (
        lambda data: flip(max((data / "t-0").glob("*.snapshot")), 12),
        ".snapshot",
        "CRC is wrong",
    ),
    "a checkpoint of nonsense": (
        lambda data: (data / "replication-offset-checkpoint").write_text("what\n"),
        "replication-offset-checkpoint",
        "not a checkpoint",
    ),
    "a recovery point above the end": (
        raise_recovery_point,
        "recovery-point-offset-checkpoint",
        "t-0: 99999, but its log ends at 25000",
    ),
    "a directory of no node": (
        lambda data: (data / "meta.properties").unlink(),
        "data",
        "meta.properties is missing",
    ),
    "a damaged quorum state": (
        lambda data: (data / "__cluster_metadata-0" / "quorum-state").write_text("{"),
        "quorum-state",
        "cannot be read",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_and_reported_with_a_remedy(data: Path, name: str) -> None:
    damage, path, what = DAMAGES[name]
    damage(data)
    done = run("verify", data, "--json")
    assert done.exit_code == 1
    findings = [each for each in json.loads(done.output)["findings"] if each["wrong"]]
    assert any(each["path"].endswith(path) and what in each["what"] for each in findings), findings
    assert all(each["remedy"] for each in findings)


@pytest.fixture
def repaired(data: Path) -> Path:
    """A directory with all repairable kinds of damage, repaired as `verify` recommends."""
    names = ("a cut tail", "an index too many", "a damaged snapshot", "a missing index")
    for name in (*names, "a wrong time index", "another epoch", "a checkpoint of nonsense"):
        DAMAGES[name][0](data)
    assert run("verify", data).exit_code == 1
    (data / "t-0" / f"{SEGMENT}.timeindex").unlink()
    (data / "t-0" / "leader-epoch-checkpoint").write_text("")
    (data / "replication-offset-checkpoint").unlink()
    return data


def test_the_remedies_of_verify_repair_the_directory(repaired: Path) -> None:
    with BrokerProcess(repaired.parent) as broker:
        read = Shell(broker.bootstrap).ok("consume", "t", "--from", "beginning", "-e")
        assert broker.stop() == 0
    done = run("verify", repaired, "--deep", "--json")
    assert [each for each in json.loads(done.output)["findings"] if each["wrong"]] == []
    lines = read.split()
    assert 24_000 < len(lines) < 25_000
    assert lines == [f"{number:>0100}" for number in range(len(lines))]
