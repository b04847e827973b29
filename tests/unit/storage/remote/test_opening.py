"""The stores that a URL can name."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.runtime.disk import RealDisk
from barnabas.settings.key import ConfigError
from barnabas.storage.remote.opening import open_remote_storage

MODULE = "company_stores"


def test_a_directory_is_created_and_opened_again(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/new/tier"
    for _ in range(2):
        storage = open_remote_storage(url, "cluster", RealDisk())
        assert list(storage.list_segments(None)) == []
        storage.close()
    store = tmp_path / "new" / "tier" / "cluster"
    assert [path.name for path in store.iterdir()] == ["store.json"]


def test_a_function_of_a_module_opens_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{MODULE}.py").write_text("def opened(cluster_id): return [cluster_id]\nNO = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    storage: object = open_remote_storage(f"python:{MODULE}:opened", "cluster", RealDisk())
    assert storage == ["cluster"]
    for name, problem in ((f"{MODULE}:NO", "a function"), (f"{MODULE}:none", "AttributeError")):
        with pytest.raises(ConfigError, match=problem):
            open_remote_storage(f"python:{name}", "cluster", RealDisk())
    with pytest.raises(ConfigError, match=r"ModuleNotFoundError.*no_such_module"):
        open_remote_storage("python:no_such_module:opened", "cluster", RealDisk())


@pytest.mark.parametrize("url", ["", "s3://bucket/prefix", "/tier", "memory:"])
def test_other_urls_are_refused_with_those_that_are_possible(url: str) -> None:
    with pytest.raises(ConfigError, match=r"barnabas\.remote\.storage.*file:///DIR"):
        open_remote_storage(url, "cluster", RealDisk())
