"""Which bootstrap servers and settings a command uses: flags, environment, profile, defaults."""

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
    """What a command connects with."""

    bootstrap: str
    # KEY=VALUE; later ones override earlier ones.
    properties: tuple[str, ...]


def select(bootstrap: str | None, properties: tuple[str, ...], profile: str | None) -> Selection:
    """Combine what was given, in this order: flags, environment, profile, defaults.

    A profile that --profile names counts as a flag: its servers go before the environment's.

    Args:
        bootstrap: of -b; None if it was not given.
        properties: of -X.
        profile: of --profile; None if it was not given, "" for no profile at all.

    Raises:
        click.UsageError: there is no such profile, or the file of profiles is damaged.
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
