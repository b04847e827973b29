"""Variables in configuration values, and the providers that resolve them (Kafka: ConfigProvider).

A value may contain `${PROVIDER:PATH:KEY}` or `${PROVIDER:KEY}`. `config.providers` lists the
providers, `config.providers.NAME.class` has their class, and `config.providers.NAME.param.PARAM`
their parameters. The class names are Kafka's; the providers are implemented here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.settings.key import ConfigError
from barnabas.settings.properties import PropertiesError, parse_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.runtime.disk import Disk

__all__ = [
    "PROVIDERS_KEY",
    "ConfigProviderError",
    "Readable",
    "resolve_readable",
    "resolve_variables",
]

PROVIDERS_KEY = "config.providers"
_PREFIX = "config.providers."
_PACKAGE = "org.apache.kafka.common.config.provider."
_ALLOWED_PATHS = "allowed.paths"
_ALLOWLIST_PATTERN = "allowlist.pattern"
# The first colon ends the name of the provider, and a second one ends the path.
_VARIABLE = re.compile(r"\$\{([^{}:]*):(?:([^{}]*):)?([^{}]*)\}")
# Maximum size of a file with secrets (bytes), far above that of any real file.
_BYTES_MAX = 1 << 20


class ConfigProviderError(ConfigError):
    """A provider is not set up correctly, or has no value for a variable."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, None, reason)
        self.args = (f"{key}: {reason}",)


class _Provided(str):
    """A value with a resolved variable. Error messages use `repr`, which hides it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"


class _Provider(Protocol):
    def value(self, path: str, key: str) -> str:
        """Return the value of a key. Raises _LookupError with the reason."""
        ...


class _LookupError(Exception):
    """The reason why a provider has no value."""


def resolve_variables(
    given: Mapping[str, str], disk: Disk, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the properties with resolved variables, without the keys of the providers.

    A variable whose provider is not listed stays as it is, as in Kafka. Kafka also keeps a
    variable for which the provider has no value; here this is an error.

    Args:
        given: Properties as text.
        disk: Where the providers read files.
        environment: The environment variables.

    Raises:
        ConfigProviderError: A provider is not set up correctly, or has no value. The message has
            the key, the provider and the place, and never a value.
    """
    providers = {name: _provider(name, given, disk, environment) for name in _listed(given)}
    return {
        name: _resolved(name, text, providers) for name, text in given.items() if _is_value(name)
    }


class Readable(NamedTuple):
    """Properties of which this process cannot resolve all variables."""

    # The resolved values, and those without variables.
    properties: dict[str, str]
    # Providers that cannot be used here, with the reason.
    refused_providers: list[ConfigProviderError]
    # The keys whose values these providers have.
    keys_of_refused: list[str]
    # Keys for which a provider has no value here, for example on another machine.
    missing: list[ConfigProviderError]


def resolve_readable(
    given: Mapping[str, str], disk: Disk, environment: Mapping[str, str]
) -> Readable:
    """Resolve the variables that can be resolved here; collect the errors of the others."""
    found = Readable({}, [], [], [])
    providers: dict[str, _Provider] = {}
    refused: set[str] = set()
    for provider in _listed(given):
        try:
            providers[provider] = _provider(provider, given, disk, environment)
        except ConfigProviderError as error:
            found.refused_providers.append(error)
            refused.add(provider)
    for name, text in given.items():
        if not _is_value(name):
            continue
        if any(each[1].strip() in refused for each in _VARIABLE.finditer(text)):
            found.keys_of_refused.append(name)
            continue
        try:
            found.properties[name] = _resolved(name, text, providers)
        except ConfigProviderError as error:
            found.missing.append(error)
    return found


def _is_value(name: str) -> bool:
    """Return whether a key is not one of the providers themselves."""
    return name != PROVIDERS_KEY and not name.startswith(_PREFIX)


def _listed(given: Mapping[str, str]) -> list[str]:
    """Return the names of the providers."""
    names = [each.strip() for each in given.get(PROVIDERS_KEY, "").split(",")]
    return [each for each in names if each]


def _resolved(name: str, text: str, providers: Mapping[str, _Provider]) -> str:
    pieces: list[str] = []
    end = 0
    for found in _VARIABLE.finditer(text):
        provider = providers.get(found[1].strip())
        if provider is None:
            continue
        try:
            value = provider.value(found[2] or "", found[3])
        except _LookupError as error:
            raise ConfigProviderError(name, f"{found[0]} cannot be resolved: {error}") from None
        pieces += (text[end : found.start()], value)
        end = found.end()
    return _Provided("".join((*pieces, text[end:]))) if pieces else text


def _provider(
    name: str, given: Mapping[str, str], disk: Disk, environment: Mapping[str, str]
) -> _Provider:
    """Return a listed provider.

    Raises:
        ConfigProviderError: Its class or its parameters cannot be used.
    """
    kinds: dict[str, Callable[[Mapping[str, str], str], _Provider]] = {
        "FileConfigProvider": lambda params, prefix: _FileProvider(
            _AllowedPaths(params, prefix, disk), disk
        ),
        "DirectoryConfigProvider": lambda params, prefix: _DirectoryProvider(
            _AllowedPaths(params, prefix, disk), disk
        ),
        "EnvVarConfigProvider": lambda params, prefix: _EnvironmentProvider(
            params, prefix, environment
        ),
    }
    key = f"{_PREFIX}{name}.class"
    given_class = given.get(key)
    if given_class is None:
        raise ConfigProviderError(
            key, f"missing, but {PROVIDERS_KEY} lists {name}; set it to a class"
        )
    make = kinds.get(given_class.strip().removeprefix(_PACKAGE))
    if make is None:
        allowed = ", ".join(f"{_PACKAGE}{each}" for each in kinds)
        raise ConfigProviderError(
            key, f"{given_class} is unknown; no other class can be loaded than {allowed}"
        )
    prefix = f"{_PREFIX}{name}.param."
    params = {
        each.removeprefix(prefix): value for each, value in given.items() if each.startswith(prefix)
    }
    return make(params, prefix)


class _AllowedPaths:
    """The paths below which a provider may read; all paths if the parameter is not given.

    As in Kafka, symbolic links are not resolved: Kubernetes mounts secrets as links.
    """

    def __init__(self, params: Mapping[str, str], prefix: str, disk: Disk) -> None:
        self._disk = disk
        text = params.get(_ALLOWED_PATHS, "")
        # None: all paths are allowed.
        self._allowed: list[str] | None = None
        if not text:
            return
        self._allowed = []
        for each in (part.strip() for part in text.split(",")):
            if not each.startswith("/") or not disk.exists(each):
                raise ConfigProviderError(
                    f"{prefix}{_ALLOWED_PATHS}", f"{each or 'a path'} must be absolute and exist"
                )
            self._allowed.append(disk.absolute(each))

    def check(self, path: str) -> str:
        """Return the normalized path. Raises _LookupError if it is not allowed."""
        normal = self._disk.absolute(path)
        if self._allowed is None or any(
            normal == each or normal.startswith(f"{each.rstrip('/')}/") for each in self._allowed
        ):
            return normal
        raise _LookupError(f"{path} is not below {_ALLOWED_PATHS}")


class _FileProvider:
    """Reads a key of a properties file: `${file:/path/to/file:key}`."""

    def __init__(self, allowed: _AllowedPaths, disk: Disk) -> None:
        self._allowed = allowed
        self._disk = disk

    def value(self, path: str, key: str) -> str:
        """Return the value of a key in the file."""
        if not path:
            raise _LookupError("it names no file; write ${PROVIDER:/PATH:KEY}")
        try:
            values = parse_properties(_read(self._disk, self._allowed.check(path)))
        except PropertiesError:
            raise _LookupError(f"{path} is not a properties file") from None
        if key not in values:
            raise _LookupError(f"{path} has no key {key}")
        return values[key]


class _DirectoryProvider:
    """Reads a whole file of a directory: `${dir:/path/to/directory:file}`."""

    def __init__(self, allowed: _AllowedPaths, disk: Disk) -> None:
        self._allowed = allowed
        self._disk = disk

    def value(self, path: str, key: str) -> str:
        """Return the content of the file, with its line breaks, as in Kafka."""
        if not path:
            raise _LookupError("it names no directory; write ${PROVIDER:/PATH:FILE}")
        if "/" in key or key in ("", ".", ".."):
            raise _LookupError(f"{key or 'the key'} is not the name of a file")
        directory = self._allowed.check(path)
        if not self._disk.is_directory(directory):
            raise _LookupError(f"{path} is not a directory")
        return _read(self._disk, f"{directory}/{key}")


class _EnvironmentProvider:
    """Reads an environment variable: `${env:NAME}`."""

    def __init__(
        self, params: Mapping[str, str], prefix: str, environment: Mapping[str, str]
    ) -> None:
        self._environment = environment
        try:
            self._pattern = re.compile(params.get(_ALLOWLIST_PATTERN, ""))
        except re.error as error:
            raise ConfigProviderError(
                f"{prefix}{_ALLOWLIST_PATTERN}", f"not a regular expression: {error}"
            ) from None

    def value(self, path: str, key: str) -> str:
        """Return the value of the variable."""
        if path:
            raise _LookupError("a path is not supported; write ${PROVIDER:NAME}")
        # As in Kafka, the pattern may match any part of the name.
        if self._pattern.search(key) is None:
            raise _LookupError(f"{_ALLOWLIST_PATTERN} does not match {key}")
        if key not in self._environment:
            raise _LookupError(f"the environment variable {key} is not set")
        return self._environment[key]


def _read(disk: Disk, path: str) -> str:
    try:
        if disk.size(path) > _BYTES_MAX:
            raise _LookupError(f"{path} is larger than {_BYTES_MAX} bytes")
        return disk.read(path).decode()
    except OSError as error:
        raise _LookupError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise _LookupError(f"{path} is not UTF-8") from None
