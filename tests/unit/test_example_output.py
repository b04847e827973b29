"""Examples delete the output of earlier runs only."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.output_directory import renew


def test_the_output_of_an_earlier_run_is_deleted(tmp_path: Path) -> None:
    output = tmp_path / "new" / "output"
    renew(output)
    (output / "table").write_text("rows")
    renew(output)
    assert not (output / "table").exists()


def test_other_files_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter").write_text("mine")
    with pytest.raises(SystemExit) as ended:
        renew(tmp_path)
    assert ended.value.code == 2
    assert (tmp_path / "letter").read_text() == "mine"
    assert "choose another --output" in capsys.readouterr().err.lower()
