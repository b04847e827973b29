"""`barnabas log repair` over directories that a log has written, and damage done to them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.log.commands import log as command
from barnabas.protocol.record_frame import encode_metadata_record
from barnabas.protocol.records.topics import ConfigRecord
from barnabas.record.batch import HEADER_SIZE
from barnabas.record.builder import BatchBuilder
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.executor import InlineExecutor
from barnabas.runtime.rng import SeededRng
from barnabas.storage.config import LogConfig
from barnabas.storage.files.checkpoint import RECOVERY_POINTS, OffsetCheckpoint
from barnabas.storage.files.metadata_files import write_marker
from barnabas.storage.log.log import Log
from barnabas.storage.log_dependencies import LogDependencies, LogOpening
from barnabas.storage.results import AppendOrigin
from barnabas.storage.topic_partition import TopicPartition
from unit.storage.storage_fixtures import NOW_MS, ManualClock, ManualTimer, all_records, batch

BATCHES = 9
PARTITION = TopicPartition("flights", 0)
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=200)


def open_log(directory: Path, *, clean: bool = False) -> Log:
    log_dependencies = LogDependencies(
        RealDisk(), ManualClock(), InlineExecutor(), ManualTimer(), SeededRng(1)
    )
    point = OffsetCheckpoint(RealDisk(), str(directory), RECOVERY_POINTS).read().get(PARTITION, 0)
    opening = LogOpening(PARTITION, recovery_point=point, clean_shutdown=clean)
    return Log.open(str(directory / "flights-0"), CONFIG, log_dependencies, opening)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a log of three segments."""
    directory = tmp_path_factory.mktemp("written")
    log = open_log(directory)
    for number in range(BATCHES):
        records = memoryview(batch([b"%d" % number + bytes(100)]))
        log.appender.append_as_leader(records, 3, AppendOrigin.CLIENT, NOW_MS)
    assert len(log.segments) == 3
    log.close()
    OffsetCheckpoint(RealDisk(), str(directory), RECOVERY_POINTS).write({PARTITION: BATCHES})
    (directory / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    write_marker(RealDisk(), str(directory), 1)
    return directory


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "data")
    return tmp_path / "data"


def segments(data: Path) -> list[Path]:
    return sorted((data / "flights-0").glob("*.log"))


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def run(*words: object) -> Result:
    return CliRunner().invoke(command, ["repair", *map(str, words)])


def repaired(data: Path) -> dict[str, object]:
    done = run(data, "--apply", "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, object] = json.loads(done.output)
    return found


def numbers(data: Path) -> list[tuple[int, bytes]]:
    log = open_log(data)
    records = all_records(log)
    log.close_files()
    return [(record.offset, (record.value or b"").rstrip(b"\0")) for record in records]


ALL = [(number, b"%d" % number) for number in range(BATCHES)]


def test_an_undamaged_directory_needs_no_repair(data: Path) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    done = run(data, "--apply")
    assert (done.exit_code, done.output) == (0, "nothing to repair\n")
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_without_apply_nothing_is_changed(data: Path) -> None:
    flip(segments(data)[1], 8 * 100)
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    done = run(data)
    assert done.exit_code == 1
    assert "nothing was changed" in done.output
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("which", [0, 1, 2])
def test_one_flipped_bit_of_a_batch_is_corrected(which: int, written: Path, tmp_path: Path) -> None:
    size = segments(written)[1].stat().st_size // 3
    for bit in range(0, HEADER_SIZE * 8 + 200, 3):
        data = tmp_path / str(bit)
        shutil.copytree(written, data)
        flip(segments(data)[1], which * size * 8 + bit)
        found = repaired(data)
        assert found["records_lost"] == 0, (bit, found)
        assert numbers(data) == ALL, bit
        assert segments(data)[1].read_bytes() == segments(written)[1].read_bytes(), bit
        shutil.rmtree(data)


def test_an_unrecoverable_batch_is_replaced_by_an_empty_batch(data: Path) -> None:
    path = segments(data)[1]
    for bit in (800, 811, 837):
        flip(path, bit)
    (step,) = repaired(data)["steps"]  # type: ignore[misc]
    assert (step["first_lost"], step["last_lost"], step["records_lost"]) == (3, 3, 1)
    assert numbers(data) == [each for each in ALL if each[0] != 3]
    assert (path.parent / f"{path.name}.damaged").exists()
    # The rest is intact: nothing more is found, also by the check.
    assert run(data).output == "nothing to repair\n"
    checked = CliRunner().invoke(command, ["verify", str(data / "flights-0"), "--deep"])
    assert "CRC" not in checked.output


def test_a_missing_segment_is_replaced_so_that_consumers_continue(data: Path) -> None:
    segments(data)[1].unlink()
    (step,) = repaired(data)["steps"]  # type: ignore[misc]
    assert (step["first_lost"], step["last_lost"]) == (3, 5)
    assert numbers(data) == [each for each in ALL if not 3 <= each[0] <= 5]


def test_a_torn_tail_is_truncated(data: Path) -> None:
    path = segments(data)[2]
    path.write_bytes(path.read_bytes()[:-7])
    (step,) = repaired(data)["steps"]  # type: ignore[misc]
    assert "cut off" in step["action"]
    assert numbers(data) == ALL[:-1]


def test_damaged_checkpoints_are_moved_aside(data: Path) -> None:
    (data / RECOVERY_POINTS).write_text("nonsense")
    (data / "flights-0" / "leader-epoch-checkpoint").write_text("0\n1\n")
    assert len(repaired(data)["steps"]) == 2  # type: ignore[arg-type]
    assert numbers(data) == ALL


def test_a_directory_in_use_is_refused(data: Path) -> None:
    lock = RealDisk().lock(f"{data}/.lock")
    assert lock is not None
    for path in (data, data / "flights-0"):
        done = run(path, "--apply")
        assert done.exit_code == 1
        assert "stop its broker first" in done.output
    lock.release()


@pytest.mark.parametrize(("suffix", "entry_bytes"), [(".index", 8), (".timeindex", 12)])
def test_a_damaged_index_is_moved_aside_and_rebuilt(
    data: Path, suffix: str, entry_bytes: int
) -> None:
    path = segments(data)[0].with_suffix(suffix)
    before = path.read_bytes()
    # The highest bit of the first entry's last number.
    flip(path, (entry_bytes - 4) * 8 + 7)
    assert CliRunner().invoke(command, ["verify", str(data)]).exit_code == 1
    assert run(data).exit_code == 1
    assert path.exists(), "a dry run changes nothing"
    repaired(data)
    assert not path.exists()
    assert Path(f"{path}.damaged").exists()
    assert numbers(data) == ALL
    assert path.read_bytes() == before
    assert CliRunner().invoke(command, ["verify", str(data)]).exit_code == 0


def write_metadata(data: Path, policy: str) -> None:
    """Write a metadata log with the config of the topic."""
    record = ConfigRecord(
        resource_type=2, resource_name="flights", name="cleanup.policy", value=policy
    )
    builder = BatchBuilder()
    builder.append(NOW_MS, None, encode_metadata_record(record, 0))
    directory = data / "__cluster_metadata-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(bytes(builder.build()))
    for suffix in ("index", "timeindex"):
        (directory / f"{0:020}.{suffix}").touch()


@pytest.mark.parametrize("words", [["verify"], ["repair"]])
@pytest.mark.parametrize(
    ("policy", "status"), [("delete", 1), ("compact", 0), ("delete,compact", 0)]
)
def test_gaps_of_a_compacted_topic_that_was_copied_from_its_leader_are_no_damage(
    words: list[str], policy: str, status: int, data: Path
) -> None:
    write_metadata(data, policy)
    for name in segments(data)[1:2]:
        name.unlink()
        for suffix in (".index", ".timeindex"):
            name.with_suffix(suffix).unlink(missing_ok=True)
    done = CliRunner().invoke(command, [*words, str(data)])
    assert done.exit_code == status, done.output
