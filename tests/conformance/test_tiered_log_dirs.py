"""A tiered topic that moves to another data directory (KIP-113, KIP-405)."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.testing.broker_process import BrokerProcess
from conformance.raw_client import RawClient
from conformance.tiered_topics import (
    EARLIEST,
    EARLIEST_LOCAL,
    await_all_copied,
    consume,
    local_bases,
    make_tiered_topic,
    offset_at,
    produce,
    tier_settings,
)
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.conformance

TOPIC = "moved"
RECORDS = 100


def move(bootstrap: str, target: Path) -> None:
    """Begin the move of partition 0 to a directory."""
    topics = [AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])]
    directory = AlterReplicaLogDir(path=str(target), topics=topics)
    client = RawClient(bootstrap)
    response = client.ask(AlterReplicaLogDirsRequest(dirs=[directory]), 2)
    client.close()
    assert response.results[0].partitions[0].error_code == 0


def test_a_tiered_log_moves_without_the_records_that_only_the_tier_has(tmp_path: Path) -> None:
    directories = [tmp_path / "first", tmp_path / "second"]
    paths = ",".join(map(str, directories))
    broker = BrokerProcess(
        tmp_path / "broker", tier_settings(tmp_path / "tier"), ["--data-dir", paths]
    )
    with broker:
        make_tiered_topic(broker.bootstrap, TOPIC, local_retention_bytes="1")
        produce(broker.bootstrap, TOPIC, range(RECORDS))
        source = next(each for each in directories if (each / f"{TOPIC}-0").is_dir())
        target = next(each for each in directories if each != source)
        local_start = await_all_copied(broker.bootstrap, TOPIC, source) + 1
        eventually_equal(lambda: local_bases(source, TOPIC), [local_start])
        move(broker.bootstrap, target)
        eventually((target / f"{TOPIC}-0").is_dir, "the replica has not moved")
        assert local_bases(target, TOPIC) == [local_start]
        for _ in range(2):
            assert offset_at(broker.bootstrap, TOPIC, EARLIEST) == 0
            assert offset_at(broker.bootstrap, TOPIC, EARLIEST_LOCAL) == local_start
            found = consume(broker.bootstrap, TOPIC, 0, RECORDS)
            assert found == [(number, number) for number in range(RECORDS)]
            broker.restart()
        produce(broker.bootstrap, TOPIC, range(RECORDS, 2 * RECORDS))
        last = await_all_copied(broker.bootstrap, TOPIC, target)
        eventually_equal(lambda: local_bases(target, TOPIC), [last + 1])
        found = consume(broker.bootstrap, TOPIC, 0, 2 * RECORDS)
        assert found == [(number, number) for number in range(2 * RECORDS)]
        assert broker.stop() == 0
    for directory in directories:
        words = [sys.executable, "-m", "barnabas.cli.main", "log", "verify", str(directory)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
