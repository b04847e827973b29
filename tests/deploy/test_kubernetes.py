"""The manifests for Kubernetes: schema checks, and their command in real processes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest

from deploy.pods import Pods, can_mount, container, documents, stateful_set
from waiting import eventually_equal

# The oldest and the newest that it is for.
VERSIONS = ("1.31", "1.37")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", documents())
def test_a_manifest_conforms_to_the_kubernetes_schema(name: str, version: str) -> None:
    kubernetes_validate.validate(documents()[name], version, strict=True)


def test_the_schema_refuses_a_field_that_does_not_exist() -> None:
    wrong = copy.deepcopy(stateful_set())
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_services_disruption_budget_and_set_select_the_same_pods() -> None:
    found = documents()
    labels = stateful_set()["spec"]["template"]["metadata"]["labels"]
    assert stateful_set()["spec"]["selector"]["matchLabels"] == labels
    assert found["PodDisruptionBudget/barnabas"]["spec"]["selector"]["matchLabels"] == labels
    for name in ("barnabas", "barnabas-bootstrap"):
        assert found[f"Service/{name}"]["spec"]["selector"] == labels
    headless = found[f"Service/{stateful_set()['spec']['serviceName']}"]["spec"]
    assert headless["clusterIP"] == "None"
    # Nodes that are not ready have to find each other.
    assert headless["publishNotReadyAddresses"] is True
    assert {port["name"]: port["port"] for port in headless["ports"]} == {
        port["name"]: port["containerPort"] for port in container()["ports"]
    }
    majority = stateful_set()["spec"]["replicas"] // 2 + 1
    left = stateful_set()["spec"]["replicas"]
    left -= found["PodDisruptionBudget/barnabas"]["spec"]["maxUnavailable"]
    assert left >= majority


def test_a_container_runs_as_an_ordinary_user_and_writes_to_its_volumes_only() -> None:
    pod = stateful_set()["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    volumes = {each["name"] for each in pod["volumes"]}
    volumes |= {each["metadata"]["name"] for each in stateful_set()["spec"]["volumeClaimTemplates"]}
    assert {each["name"] for each in container()["volumeMounts"]} == volumes


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    found = Pods(tmp_path)
    yield found
    found.close()


@pytest.mark.conformance
@pytest.mark.skipif(not can_mount(), reason="this user may not make mount namespaces")
def test_pods_with_the_command_of_the_manifest_form_a_cluster(pods: Pods) -> None:
    pods.start(0)
    eventually_equal(lambda: pods.probe("livenessProbe", 0), 200)
    # Without a majority there is no cluster, but the kubelet must not kill the pod for it.
    assert pods.probe("readinessProbe", 0) == 503
    assert pods.probe("startupProbe", 0) == 200
    pods.start(1)
    pods.start(2)
    for number in range(pods.count):
        eventually_equal(lambda at=number: pods.probe("readinessProbe", at), 200)
    bootstrap = f"{pods.host(0)}:{pods.ports['kafka']}"
    created = pods.barnabas("topics", "create", "orders", "-b", bootstrap)
    assert created.returncode == 0, created.stderr + pods.log()
    produced = pods.barnabas("produce", "orders", "-b", bootstrap, stdin="one\ntwo\n")
    assert produced.returncode == 0, produced.stderr

    # A pod that is rescheduled has another address and the same name.
    assert pods.stop(0) == 0
    pods.move(0, "127.0.1.99")
    pods.start(0)
    eventually_equal(lambda: pods.probe("readinessProbe", 0), 200)
    listed = pods.barnabas("brokers", "list", "-b", f"{pods.host(1)}:{pods.ports['kafka']}")
    assert listed.returncode == 0, listed.stderr
    for number in range(pods.count):
        assert pods.host(number) in listed.stdout
    consume = ("consume", "orders", "--from", "beginning", "--exit-at-end", "-b", bootstrap)
    read = pods.barnabas(*consume)
    assert sorted(read.stdout.split()) == ["one", "two"], read.stderr
