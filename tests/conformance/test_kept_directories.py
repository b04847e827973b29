"""The broker serves the files that earlier releases have written, with the same contents."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.testing.broker_process import BrokerProcess
from conformance.kept_directory import (
    DATA,
    KEPT_SETTINGS,
    MORE,
    Kept,
    broker_on,
    described,
    kept_releases,
    unpack,
)
from jvm.directory_contents import Contents
from jvm.directory_settings import verify

pytestmark = pytest.mark.conformance

KEPT = kept_releases()


def test_there_are_files_of_a_release() -> None:
    assert KEPT


@pytest.mark.parametrize("kept", KEPT, ids=[each.release for each in KEPT])
def test_files_of_a_release_have_the_same_contents(kept: Kept, tmp_path: Path) -> None:
    known = unpack(kept, tmp_path)
    verify([tmp_path / DATA, tmp_path / MORE])
    with broker_on(tmp_path, KEPT_SETTINGS).start() as broker:
        assert_contents(broker, known)
        # The next version writes on, and its files have the old and the new contents.
        Contents(broker.bootstrap, start_ms=known["start_ms"], rounds=1).write()
        broker.stop()
    verify([tmp_path / DATA, tmp_path / MORE])


def assert_contents(broker: BrokerProcess, known: dict[str, object]) -> None:
    start_ms, contents = known["start_ms"], known["contents"]
    assert isinstance(start_ms, int)
    assert isinstance(contents, dict)
    found = described(Contents(broker.bootstrap, start_ms=start_ms, rounds=1))
    assert found.keys() == contents.keys()
    for what, was in contents.items():
        assert found[what] == was, what
