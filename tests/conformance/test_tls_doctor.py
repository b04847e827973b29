"""`barnabas doctor` for listeners, clients and files with TLS."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing.cluster_process import ClusterProcess
from certificates import Authority
from conformance.tls_cluster import PASSWORD, TlsFiles, tls_cluster
from waiting import PATIENCE_S


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ClusterProcess, TlsFiles]]:
    cluster, files = tls_cluster(tmp_path_factory.mktemp("doctor"))
    with cluster:
        yield cluster, files


def findings(*words: str) -> tuple[bool, list[tuple[str, str, str]]]:
    done = subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", "doctor", "--json", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    found = json.loads(done.stdout)
    return found["well"], [
        (each["verdict"], each["what"], each.get("remedy") or "") for each in found["findings"]
    ]


def test_a_tls_cluster_has_no_findings_for_a_tls_client(
    running: tuple[ClusterProcess, TlsFiles],
) -> None:
    cluster, files = running
    logged = [node.log() for node in cluster.nodes.values()]
    well, found = findings(cluster.bootstrap, "--command-config", str(files.java_file()))
    assert well, found
    # The probes leave no lines in the logs of the brokers.
    assert [node.log() for node in cluster.nodes.values()] == logged
    assert any("speaks TLS" in what for verdict, what, _ in found if verdict == "ok")


def test_the_remedy_for_a_client_without_tls_names_the_key(
    running: tuple[ClusterProcess, TlsFiles],
) -> None:
    cluster, _ = running
    well, found = findings(cluster.bootstrap)
    assert not well
    [(_, what, remedy)] = [each for each in found if each[0] == "wrong"]
    assert "speaks TLS" in what
    assert "security.protocol=SSL" in remedy


def test_key_stores_of_a_file_are_read(running: tuple[ClusterProcess, TlsFiles]) -> None:
    cluster, _ = running
    node = cluster.node(1)
    _, found = findings(str(node.properties_file))
    usable = [what for verdict, what, _ in found if verdict == "ok" and "key stores" in what]
    assert len(usable) == 2
    text = node.properties_file.read_text()
    broken = node.directory / "broken.properties"
    line = "ssl.keystore.password=wrong\n"
    broken.write_text(text + line + "listener.name.plaintext.ssl.client.auth=none\n")
    well, found = findings(str(broken))
    assert not well
    assert any("check ssl.keystore.password" in what for _, what, _ in found)
    assert any("ssl.keystore.password is given 2 times" in what for _, what, _ in found)
    assert not any(PASSWORD in what or "'wrong'" in what for _, what, _ in found)
    assert not any("listener.name.plaintext.ssl.client.auth" in what for _, what, _ in found)


@pytest.mark.parametrize("has_intermediate", [True, False])
def test_a_missing_intermediate_certificate_is_noted(
    tmp_path: Path, has_intermediate: bool
) -> None:
    root = Authority("Root")
    own = Authority("Intermediate", root).issue()
    store, trust, file = (tmp_path / name for name in ("own.pem", "ca.pem", "server.properties"))
    store.write_text(own.key_pem() + (own.chain_pem if has_intermediate else own.pem))
    trust.write_text(root.pem)
    file.write_text(
        f"listeners=SSL://127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={store}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={trust}\n"
    )
    well, found = findings(str(file))
    assert well
    noted = [remedy for verdict, what, remedy in found if "its own certificate" in what]
    assert len(noted) == (0 if has_intermediate else 1)
    assert all("certificates of intermediate authorities" in remedy for remedy in noted)
