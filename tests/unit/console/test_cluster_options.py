"""Several clusters of a console, from the command line, profiles and properties files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from barnabas.cli.common.profiles import Profiles
from barnabas.client.config import ClientConfig
from barnabas.console.cluster_options import named_clusters, services, several_clusters
from barnabas.console.connect.options import ConnectOptions
from barnabas.console.settings import ClusterSettings, ConsoleSettings

NO_CONNECT = ConnectOptions((), None)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config directory of the test's own, with the profile `east`."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("BARNABAS_BOOTSTRAP", "BARNABAS_PROFILE", "BARNABAS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    east = {
        "bootstrap.servers": "east.example:9092",
        "client.id": "of-east",
        "schema.registry.url": "http://registry.example:8081",
        "console.metrics": "a.example:9404, b.example:9404",
        "console.connect": "local=http://connect.example:8083",
        "console.prometheus.url": "http://prometheus.example:9090",
        "console.prometheus.labels": 'cluster="east",job="kafka"',
    }
    Profiles({"east": east, "all": {"console.clusters": "east, west=west.example:9092"}}).save()


def check(bootstrap: str, properties: Sequence[str]) -> dict[str, str]:
    config = dict(each.split("=", 1) for each in properties)
    ClientConfig.parse({"bootstrap.servers": bootstrap, **config})
    return config


def clusters(*given: str, metrics: Sequence[str] = ()) -> dict[str, ClusterSettings]:
    found = several_clusters(given, (), metrics, NO_CONNECT, check)
    return {each.name: each for each in found}


def test_a_profile_names_clusters_and_each_profile_names_its_services() -> None:
    named = named_clusters([f"console.clusters={Profiles.load().get('all')['console.clusters']}"])
    assert named == ("east=east", "west=west.example:9092")
    found = clusters(*named, metrics=["west=c.example:9404"])
    east, west = found["east"], found["west"]
    assert (east.bootstrap, east.client["client.id"]) == ("east.example:9092", "of-east")
    assert east.metrics == ("a.example:9404", "b.example:9404")
    assert [(each.name, each.url) for each in east.connect] == [
        ("local", "http://connect.example:8083")
    ]
    assert east.registry is not None
    assert (west.bootstrap, west.metrics) == ("west.example:9092", ("c.example:9404",))
    assert (west.registry, west.connect, west.prometheus) == (None, (), None)
    # The pages of a cluster use the Prometheus server of its profile.
    settings = ConsoleSettings("", {}, clusters=(east, west))
    assert settings.of_cluster(east).prometheus == (
        "http://prometheus.example:9090", 'cluster="east",job="kafka"',
    )  # fmt: skip


def test_a_properties_file_is_a_cluster_with_its_services(tmp_path: Path) -> None:
    file = tmp_path / "west.properties"
    file.write_text("bootstrap.servers=west.example:9092\nconsole.metrics=c.example:9404\n")
    found = clusters(f"west={file}")["west"]
    assert (found.bootstrap, found.metrics) == ("west.example:9092", ("c.example:9404",))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["east"], "write NAME=PROFILE"),
        (["audit=east"], "is not one of audit"),
        (["a b=east"], "at most 64 letters"),
        (["east=east", "east=east"], "given twice"),
        (["east=absent"], "no profile 'absent'; existing profiles: all, east"),
        (["east=all"], "all is one of several clusters, and has console.clusters itself"),
    ],
)
def test_a_malformed_cluster_is_refused_with_the_form_to_write(
    given: list[str], problem: str
) -> None:
    with pytest.raises(click.UsageError, match=problem):
        clusters(*given)


def test_a_malformed_address_of_a_metrics_listener_is_refused() -> None:
    with pytest.raises(click.UsageError, match=r"console\.metrics=a: write HOST:PORT"):
        services(["console.metrics=a"])
    with pytest.raises(click.UsageError, match="with a name of --cluster"):
        clusters("east=east", metrics=["north=a:1"])
