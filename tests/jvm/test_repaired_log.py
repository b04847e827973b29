"""Kafka's DumpLogSegments and consumers read a log after `barnabas log repair`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from click.testing import CliRunner

from barnabas.cli.log.commands import log
from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell
from jvm.directory_dump import Dump

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

RECORDS = 25_000


def damage(path: Path, position: int) -> None:
    """Flip several bits, so that the batch cannot be repaired."""
    content = bytearray(path.read_bytes())
    content[position : position + 3] = bytes(byte ^ 0xFF for byte in content[position:][:3])
    path.write_bytes(content)


def test_kafkas_dump_tool_reads_a_repaired_log_and_consumers_read_around_the_damage(
    tmp_path: Path, kafka_tools: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    with BrokerProcess(tmp_path) as broker:
        shell = Shell(broker.bootstrap)
        shell.ok("topics", "create", "t", "-p", "1", "-c", "segment.bytes=1048576")
        lines = "".join(f"{number:>0100}\n" for number in range(RECORDS))
        shell.ok("produce", "t", "-X", "batch.size=8192", "-z", "none", stdin=lines)
        assert broker.stop() == 0
        data = broker.data_directory
        first, *_, last = sorted((data / "t-0").glob("*.log"))
        damage(first, 50_000)
        damage(last, 70_000)
        done = CliRunner().invoke(log, ["repair", str(data), "--apply", "--json"])
        assert done.exit_code == 0, done.output
        found = json.loads(done.output)
        assert len(found["steps"]) == 2
        lost = found["records_lost"]
        assert 0 < lost < 500

    with BrokerProcess(tmp_path) as broker:
        read = Shell(broker.bootstrap).ok("consume", "t", "--from", "beginning", "-e")
        assert len(read.splitlines()) == RECORDS - lost
        assert broker.stop() == 0
    text = Dump(kafka_tools).check_logs([data / "t-0"])
    # The two replaced batches.
    assert text.count("count: 0 ") == 2
