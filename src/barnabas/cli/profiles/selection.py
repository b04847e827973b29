"""Select the bootstrap servers and settings: from flags, file, environment, profile or defaults."""

from __future__ import annotations

import os
from typing import NamedTuple

import click

from barnabas.cli.profiles.store import BOOTSTRAP, Profiles

__all__ = [
    "BOOTSTRAP_VARIABLE",
    "CONFIG_VARIABLE",
    "DEFAULT_BOOTSTRAP",
    "PROFILE_VARIABLE",
    "Selection",
    "file_settings",
    "select",
]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "BARNABAS_BOOTSTRAP"
PROFILE_VARIABLE = "BARNABAS_PROFILE"
CONFIG_VARIABLE = "BARNABAS_CONFIG"
_FILE_BOOTSTRAP = "bootstrap.servers"


class Selection(NamedTuple):
    """The connection settings of a command."""

    bootstrap: str
    # KEY=VALUE; later ones override earlier ones.
    properties: tuple[str, ...]


def select(
    bootstrap: str | None,
    properties: tuple[str, ...],
    profile: str | None,
    config_file: str | None = None,
) -> Selection:
    """Combine the settings. Priority: flags, properties file, environment, profile, defaults.

    A profile named by --profile counts as a flag: its servers take precedence over the environment.

    Args:
        bootstrap: Value of -b; None if it was not given.
        properties: Values of -X.
        profile: Value of --profile; None if it was not given, "" for no profile.
        config_file: Value of --config-file; None if it was not given.

    Raises:
        click.UsageError: The profile or the file does not exist, or is damaged.
    """
    settings = dict(_settings(profile))
    of_profile = settings.pop(BOOTSTRAP, None)
    of_file = file_settings(config_file)
    servers_of_file = _servers(of_file)
    bootstrap = bootstrap or servers_of_file
    settings.update(of_file)
    of_environment = os.environ.get(BOOTSTRAP_VARIABLE) or None
    candidates = [bootstrap, of_environment, of_profile, DEFAULT_BOOTSTRAP]
    if profile:
        candidates[1:3] = [of_profile, of_environment]
    chosen = next(each for each in candidates if each is not None)
    given = tuple(f"{key}={value}" for key, value in settings.items())
    return Selection(chosen, (*given, *properties))


def file_settings(config_file: str | None) -> dict[str, str]:
    """Return the settings of a properties file, as Kafka's tools read it.

    Args:
        config_file: Value of --config-file; None for the environment variable.

    Raises:
        click.UsageError: The file cannot be read, or is no properties file.
    """
    path = config_file or os.environ.get(CONFIG_VARIABLE)
    if not path:
        return {}
    from barnabas.settings.properties import PropertiesError, parse_properties

    try:
        with open(path, "rb") as file:  # noqa: PTH123 - an import of pathlib costs more
            return parse_properties(file.read().decode("latin-1"))
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except PropertiesError as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from None


def _servers(settings: dict[str, str]) -> str | None:
    """Remove and return the bootstrap servers; resolve variables in them.

    Variables in other settings are resolved by the client.
    """
    servers = settings.pop(_FILE_BOOTSTRAP, None)
    if servers is None or "${" not in servers or "config.providers" not in settings:
        return servers
    from barnabas.cli.variables import without_variables
    from barnabas.settings.key import ConfigError

    providers = {key: value for key, value in settings.items() if key.startswith("config.")}
    try:
        return without_variables({**providers, _FILE_BOOTSTRAP: servers})[_FILE_BOOTSTRAP]
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


def _settings(profile: str | None) -> dict[str, str]:
    name = os.environ.get(PROFILE_VARIABLE) if profile is None else profile
    if name == "":
        return {}
    profiles = Profiles.load()
    name = profiles.current if name is None else name
    return {} if name is None else profiles.get(name)
