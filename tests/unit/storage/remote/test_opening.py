"""The stores that a URL can name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from barnabas.runtime.disk import RealDisk
from barnabas.settings.key import ConfigError
from barnabas.storage.remote.config import StoreOptions
from barnabas.storage.remote.opening import list_clusters, open_remote_storage
from barnabas.storage.remote.remote_storage import RemoteRefusedError
from barnabas.storage.remote_keys import CREDENTIALS_FILE, STORAGE, STORAGE_OPTIONS
from unit.runtime.answering_server import answering_server, failure

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


@pytest.mark.parametrize("url", ["", "/tier", "memory:", "hdfs://host/tier"])
def test_other_urls_are_refused_with_those_that_are_possible(url: str) -> None:
    with pytest.raises(ConfigError, match=r"barnabas\.remote\.storage.*file:///DIR"):
        open_remote_storage(url, "cluster", RealDisk())


def test_the_clusters_of_a_directory_are_listed(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/tier"
    for cluster in ("second", "first"):
        open_remote_storage(url, cluster, RealDisk()).close()
    (tmp_path / "tier" / "lost+found").mkdir()
    assert list_clusters(url, RealDisk()) == ["first", "second"]


def test_a_bucket_is_opened_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering_server() as server:
        options = StoreOptions(server.options(), retry_timeout_ms=0)
        storage = open_remote_storage("s3://bucket/prefix", "cluster", RealDisk(), options)
        assert server.requests == []
        server.answer = lambda _: failure(403, "AccessDenied")
        with pytest.raises(RemoteRefusedError, match=r"s3://bucket.*AccessDenied.*credentials"):
            list(storage.list_segments(None))
        with pytest.raises(RemoteRefusedError, match="AccessDenied"):
            list_clusters("s3://bucket/prefix", RealDisk(), options)
        storage.close()


def test_problems_of_a_bucket_name_their_key(tmp_path: Path) -> None:
    def opened(options: StoreOptions) -> None:
        open_remote_storage("s3://bucket", "cluster", RealDisk(), options)

    missing = str(tmp_path / "none")
    with pytest.raises(ConfigError, match="No such file") as raised:
        opened(StoreOptions(credentials_file=missing))
    assert (raised.value.key, raised.value.value) == (CREDENTIALS_FILE, missing)
    with pytest.raises(ConfigError, match="no option regoin") as raised:
        opened(StoreOptions({"regoin": "s3cr3t"}))
    assert raised.value.key == STORAGE_OPTIONS
    assert "s3cr3t" not in str(raised.value)


def test_a_bucket_without_the_package_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "obstore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigError, match=r"pip install '.*\[tiered\]'") as raised:
        open_remote_storage("s3://bucket", "cluster", RealDisk())
    assert raised.value.key == STORAGE
