"""The option --cluster of `barnabas console`, which names one of several clusters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.profiles import BOOTSTRAP, file_settings, select
from barnabas.cli.common.registries import open_registry
from barnabas.console.settings import ClusterSettings
from barnabas.runtime.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.cli.common.profiles import Selection

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Paths of the console itself.
_RESERVED = ("audit", "login", "logout", "static")

cluster_option = click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="NAME=PROFILE|FILE|HOST:PORT",
    help="One of several clusters, by its profile, properties file or brokers; may be repeated. "
    "Write --metrics NAME=HOST:PORT for its metrics listeners.",
)


def several_clusters(
    given: Sequence[str],
    properties: tuple[str, ...],
    metrics: Sequence[str],
    check: Callable[[str, Sequence[str]], Mapping[str, str]],
) -> tuple[ClusterSettings, ...]:
    """Return the clusters that the options name.

    Args:
        given: NAME=PROFILE|FILE|HOST:PORT of each; empty for one cluster without a name.
        properties: KEY=VALUE for the clients of all.
        metrics: NAME=HOST:PORT of metrics listeners.
        check: Returns the configuration of a client from bootstrap servers and KEY=VALUE.

    Raises:
        click.UsageError: A name is invalid or used twice, or a profile or file does not exist.
    """
    if not given:
        return ()
    found: dict[str, Selection] = {}
    for each in given:
        name, _, place = each.partition("=")
        if _NAME.fullmatch(name) is None or name in _RESERVED or not place:
            raise click.UsageError(
                f"--cluster {each}: write NAME=PROFILE, NAME=FILE or NAME=HOST:PORT; a name has at "
                f"most 64 letters, digits, '.', '-' and '_', and is none of {', '.join(_RESERVED)}"
            )
        if name in found:
            raise click.UsageError(f"--cluster {name} is given twice")
        found[name] = _selection(place, properties)
    listeners: dict[str, list[str]] = {name: [] for name in found}
    for each in metrics:
        name, _, address = each.partition("=")
        if name not in listeners or not address:
            raise click.UsageError(
                f"--metrics {each}: write NAME=HOST:PORT with a name of --cluster"
            )
        listeners[name].append(address)
    return tuple(
        ClusterSettings(
            name,
            chosen.bootstrap,
            check(chosen.bootstrap, chosen.properties),
            tuple(listeners[name]),
            open_registry(None, chosen.properties),
        )
        for name, chosen in found.items()
    )


def _selection(place: str, properties: tuple[str, ...]) -> Selection:
    if RealDisk().exists(place):
        if BOOTSTRAP not in file_settings(place):
            raise click.UsageError(f"{place} has no {BOOTSTRAP}")
        return select(None, properties, "", place)
    if ":" in place:
        return select(place, properties, "")
    return select(None, properties, place)
