"""The connection settings of a command: from flags, file, environment, profile or defaults.

Profiles are in `profiles.toml` in the user's config directory, with mode 0600. The directory is
$XDG_CONFIG_HOME/barnabas, by default ~/.config/barnabas. A table `profiles.NAME` contains keys of
Kafka clients with string values. `current` names the profile in use.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click

from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientConfigError

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "BARNABAS_BOOTSTRAP"
PROFILE_VARIABLE = "BARNABAS_PROFILE"
CONFIG_VARIABLE = "BARNABAS_CONFIG"
BOOTSTRAP = "bootstrap.servers"


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
    servers = settings.pop(BOOTSTRAP, None)
    if servers is None or "${" not in servers or "config.providers" not in settings:
        return servers
    from barnabas.cli.common.variables import without_variables
    from barnabas.settings.key import ConfigError

    providers = {key: value for key, value in settings.items() if key.startswith("config.")}
    try:
        return without_variables({**providers, BOOTSTRAP: servers})[BOOTSTRAP]
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


def _settings(profile: str | None) -> dict[str, str]:
    name = os.environ.get(PROFILE_VARIABLE) if profile is None else profile
    if name == "":
        return {}
    profiles = Profiles.load()
    name = profiles.current if name is None else name
    return {} if name is None else profiles.get(name)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SECRET = re.compile(
    r"password|passphrase|user\.info|secret|token|jaas|credential|private|(^|\.)keystore\.key|ssl\.key\b"
)
# Maximum size of the file in bytes, far above that of any real file.
_SIZE_MAX = 1 << 20


def profiles_path() -> Path:
    """Return the path of the profiles file, which need not exist."""
    # click reads this variable on Linux only.
    base = os.environ.get("XDG_CONFIG_HOME")
    directory = Path(base, "barnabas") if base else Path(click.get_app_dir("barnabas"))
    return directory / "profiles.toml"


def is_secret(key: str) -> bool:
    """Return whether the value of a key must never be printed."""
    return _SECRET.search(key.lower().replace("_", ".")) is not None


def check_name(name: str) -> str:
    """Check and return the name of a profile.

    Raises:
        click.UsageError: The name contains a character other than letters, digits, '.', '-' and
            '_', or it is too long.
    """
    if _NAME.fullmatch(name) is None:
        raise click.UsageError(
            f"profile {name!r}: use at most 64 letters, digits, '.', '-' and '_'"
        )
    return name


def checked_settings(name: str, given: dict[str, str]) -> dict[str, str]:
    """Return the settings with dots in their keys, after the client has accepted them.

    Raises:
        click.UsageError: The client does not accept a key or a value.
    """
    settings = {key.strip().replace("_", "."): value.strip() for key, value in given.items()}
    try:
        ClientConfig.parse({BOOTSTRAP: "127.0.0.1:9092", **settings})
    except ClientConfigError as error:
        raise click.UsageError(
            f"profile {name}: {_without_secrets(str(error), settings)}"
        ) from None
    return settings


def _without_secrets(message: str, settings: dict[str, str]) -> str:
    for key, value in settings.items():
        if value and is_secret(key):
            message = message.replace(value, "(hidden)")
    return message


@dataclass
class Profiles:
    """All profiles, and the name of the profile in use."""

    # Settings by profile name.
    by_name: dict[str, dict[str, str]] = field(default_factory=dict)
    # None: commands use no profile unless the user names one.
    current: str | None = None

    @classmethod
    def load(cls) -> Profiles:
        """Read the profiles file; a missing file means that there are no profiles.

        Raises:
            click.UsageError: The file cannot be read, or does not have the expected format.
        """
        path = profiles_path()
        try:
            with path.open("rb") as file:
                data = file.read(_SIZE_MAX + 1)
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise click.UsageError(f"profiles cannot be read: {error}") from None
        if len(data) > _SIZE_MAX:
            raise click.UsageError(
                f"{path} is larger than {_SIZE_MAX} bytes: it is not a profiles file"
            )
        return cls._parse(path, data)

    @classmethod
    def _parse(cls, path: Path, data: bytes) -> Profiles:
        import tomllib

        try:
            found: dict[str, Any] = tomllib.loads(data.decode())
        except ValueError as error:
            raise click.UsageError(f"{path} is not TOML: {error}. Repair or remove it") from None
        tables, current = found.get("profiles", {}), found.get("current")
        is_valid = isinstance(tables, dict) and isinstance(current, str | None)
        if not is_valid or not all(map(_is_settings, tables.values())):
            raise click.UsageError(
                f'{path}: write current = "NAME", and [profiles.NAME] with strings below it'
            )
        return cls(tables, current)

    def get(self, name: str) -> dict[str, str]:
        """Return the settings of a profile.

        Raises:
            click.UsageError: The profile does not exist.
        """
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise click.UsageError(f"no profile {name!r}; existing profiles: {known}")
        return self.by_name[name]

    def save(self) -> None:
        """Replace the file atomically, with mode 0600.

        Raises:
            click.ClickException: The file cannot be written.
        """
        path = profiles_path()
        try:
            path.parent.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
            # mkstemp creates the file with mode 0600.
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".profiles-")
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(self._as_toml())
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(name).unlink()
                raise
        except OSError as error:
            raise click.ClickException(f"profiles cannot be written: {error}") from None

    def _as_toml(self) -> str:
        lines = [] if self.current is None else [f"current = {_quoted(self.current)}"]
        for name, settings in sorted(self.by_name.items()):
            lines += ["", f"[profiles.{_quoted(name)}]"]
            lines += [f"{_quoted(key)} = {_quoted(value)}" for key, value in settings.items()]
        return "\n".join(lines).lstrip("\n") + "\n"


def _is_settings(table: object) -> bool:
    return isinstance(table, dict) and all(isinstance(value, str) for value in table.values())


def _quoted(text: str) -> str:
    """Return a TOML basic string: a JSON string in which DEL is escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
