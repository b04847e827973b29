"""Select the bootstrap servers and settings: from flags, environment, profile or defaults."""

from __future__ import annotations

import os
from typing import NamedTuple

from barnabas.cli.profiles.store import BOOTSTRAP, Profiles

__all__ = [
    "BOOTSTRAP_VARIABLE",
    "DEFAULT_BOOTSTRAP",
    "PROFILE_VARIABLE",
    "Selection",
    "select",
]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "BARNABAS_BOOTSTRAP"
PROFILE_VARIABLE = "BARNABAS_PROFILE"


class Selection(NamedTuple):
    """The connection settings of a command."""

    bootstrap: str
    # KEY=VALUE; later ones override earlier ones.
    properties: tuple[str, ...]


def select(bootstrap: str | None, properties: tuple[str, ...], profile: str | None) -> Selection:
    """Combine the settings. Priority: flags, environment, profile, defaults.

    A profile named by --profile counts as a flag: its servers take precedence over the environment.

    Args:
        bootstrap: Value of -b; None if it was not given.
        properties: Values of -X.
        profile: Value of --profile; None if it was not given, "" for no profile.

    Raises:
        click.UsageError: The profile does not exist, or the profiles file is damaged.
    """
    settings = dict(_settings(profile))
    of_profile = settings.pop(BOOTSTRAP, None)
    of_environment = os.environ.get(BOOTSTRAP_VARIABLE) or None
    candidates = [bootstrap, of_environment, of_profile, DEFAULT_BOOTSTRAP]
    if profile:
        candidates[1:3] = [of_profile, of_environment]
    chosen = next(each for each in candidates if each is not None)
    given = tuple(f"{key}={value}" for key, value in settings.items())
    return Selection(chosen, (*given, *properties))


def _settings(profile: str | None) -> dict[str, str]:
    name = os.environ.get(PROFILE_VARIABLE) if profile is None else profile
    if name == "":
        return {}
    profiles = Profiles.load()
    name = profiles.current if name is None else name
    return {} if name is None else profiles.get(name)
