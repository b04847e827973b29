"""Several clusters of `barnabas console`: --cluster, and settings of profiles and properties files.

A profile or a properties file may name the services beside its cluster, by keys that only the
console reads, and the other clusters of a console (`console.clusters`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.common.output import key_values
from barnabas.cli.common.profiles import BOOTSTRAP, Profiles, Selection, file_settings, select
from barnabas.cli.common.registries import open_registry
from barnabas.console.history.prometheus import Prometheus
from barnabas.console.settings import ClusterSettings
from barnabas.runtime.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.console.connect.options import ConnectOptions

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Paths of the console itself.
_RESERVED = ("audit", "login", "logout", "static")
# Keys of profiles and properties files. Clients ignore them (`client.accepted_keys`). Each value is
# one text, or a list with commas.
_CLUSTERS = "console.clusters"
_METRICS = "console.metrics"
_CONNECT = "console.connect"
_PROMETHEUS = "console.prometheus.url"
_LABELS = "console.prometheus.labels"

cluster_option = click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="NAME=PROFILE|FILE|HOST:PORT",
    help="One of several clusters, by its profile, properties file or brokers; may be repeated. "
    "Write --metrics NAME=HOST:PORT for its metrics listeners.",
)


class Services(NamedTuple):
    """The services beside a cluster that its profile or properties file names."""

    # HOST:PORT of metrics listeners.
    metrics: tuple[str, ...] = ()
    # NAME=URL of Connect clusters.
    connect: tuple[str, ...] = ()
    prometheus: Prometheus | None = None


def services(properties: Sequence[str]) -> Services:
    """Return the services that the settings KEY=VALUE of a cluster name.

    Raises:
        click.UsageError: The address of a metrics listener is malformed.
    """
    settings = key_values(properties, "--property")
    metrics, url = _listed(settings.get(_METRICS, "")), settings.get(_PROMETHEUS)
    for each in metrics:
        host, _, port = each.rpartition(":")
        if not host or not port.isdigit():
            raise click.UsageError(f"{_METRICS}={each}: write HOST:PORT, with commas between them")
    prometheus = Prometheus(url, settings.get(_LABELS, "")) if url else None
    return Services(metrics, _listed(settings.get(_CONNECT, "")), prometheus)


def named_clusters(properties: Sequence[str]) -> tuple[str, ...]:
    """Return what --cluster would have for each cluster that a profile or a file names.

    A name alone is that of the cluster and of its profile.
    """
    listed = _listed(key_values(properties, "--property").get(_CLUSTERS, ""))
    return tuple(each if "=" in each else f"{each}={each}" for each in listed)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def several_clusters(
    given: Sequence[str],
    properties: tuple[str, ...],
    metrics: Sequence[str],
    connect: ConnectOptions,
    check: Callable[[str, Sequence[str]], Mapping[str, str]],
) -> tuple[ClusterSettings, ...]:
    """Return the clusters that the options name.

    Args:
        given: NAME=PROFILE|FILE|HOST:PORT of each; empty for one cluster without a name.
        properties: KEY=VALUE for the clients of all.
        metrics: NAME=HOST:PORT of metrics listeners.
        connect: The Connect clusters of the command line.
        check: Returns the configuration of a client from bootstrap servers and KEY=VALUE.

    Raises:
        click.UsageError: A name is invalid or used twice, a profile or file does not exist, or a
            setting of one is malformed.
    """
    if not given:
        return ()
    found = _selections(given, properties)
    own = {name: services(chosen.properties) for name, chosen in found.items()}
    listeners = {name: list(each.metrics) for name, each in own.items()}
    for each in metrics:
        name, _, address = each.partition("=")
        if name not in listeners or not address:
            raise click.UsageError(
                f"--metrics {each}: write NAME=HOST:PORT with a name of --cluster"
            )
        listeners[name].append(address)
    workers = connect.settings(
        list(found), [f"{name}/{each}" for name, one in own.items() for each in one.connect]
    )
    return tuple(
        ClusterSettings(
            name,
            chosen.bootstrap,
            check(chosen.bootstrap, chosen.properties),
            tuple(listeners[name]),
            open_registry(None, chosen.properties),
            connect=workers[name],
            prometheus=own[name].prometheus,
        )
        for name, chosen in found.items()
    )


def _selections(given: Sequence[str], properties: tuple[str, ...]) -> dict[str, Selection]:
    """Return the connection settings of each cluster by its name."""
    found: dict[str, Selection] = {}
    for each in given:
        name, _, place = each.partition("=")
        if _NAME.fullmatch(name) is None or name in _RESERVED or not place:
            raise click.UsageError(
                f"--cluster {each}: write NAME=PROFILE, NAME=FILE or NAME=HOST:PORT; a name has at "
                f"most 64 letters, digits, '.', '-' and '_', and is not one of "
                f"{', '.join(_RESERVED)}"
            )
        if name in found:
            raise click.UsageError(f"--cluster {name} is given twice")
        found[name] = _selection(place, properties)
    return found


def _selection(place: str, properties: tuple[str, ...]) -> Selection:
    if RealDisk().exists(place):
        settings = file_settings(place)
        _check_single(place, settings)
        if BOOTSTRAP not in settings:
            raise click.UsageError(f"{place} has no {BOOTSTRAP}")
        return select(None, properties, "", place)
    if ":" in place:
        return select(place, properties, "")
    _check_single(place, Profiles.load().get(place))
    return select(None, properties, place)


def _check_single(place: str, settings: Mapping[str, str]) -> None:
    """Refuse a profile or a file that is to be one cluster, and names several."""
    if _CLUSTERS in settings:
        raise click.UsageError(
            f"{place} is one of several clusters, and has {_CLUSTERS} itself: remove that key"
        )
