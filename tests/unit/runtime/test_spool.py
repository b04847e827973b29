"""Bytes that wait for a slow reader."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from barnabas.runtime.spool import Spool, SpoolError


def read_all(spool: Spool) -> bytes:
    return b"".join(iter(spool.read, b""))


@pytest.mark.parametrize("size", [0, 1, 1000, 5 * 1024 * 1024])
def test_bytes_are_read_as_they_were_written_again_and_again(size: int) -> None:
    spool = Spool()
    for number in range(3):
        data = bytes([number]) * size
        for start in range(0, size, 300_000):
            spool.write(data[start : start + 300_000])
        assert spool.size == size
        assert read_all(spool) == data
        assert spool.size == 0
    spool.close()


def test_pieces_are_small_however_large_the_bytes_are() -> None:
    spool = Spool()
    spool.write(bytes(3_000_000))
    assert max(map(len, iter(spool.read, b""))) <= 256 * 1024
    spool.close()


def test_large_bytes_are_in_a_file_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spool = Spool()
    spool.write(bytes(3_000_000))
    assert os.listdir(tmp_path) == []
    assert len(read_all(spool)) == 3_000_000
    spool.close()


def test_a_directory_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = str(tmp_path / "missing")
    monkeypatch.setattr(tempfile, "tempdir", missing)
    spool = Spool()
    with pytest.raises(SpoolError, match=r"missing: .*name another directory by TMPDIR"):
        spool.write(bytes(3_000_000))
    spool.close()
