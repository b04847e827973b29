"""The schema registry of a command: --registry, its variable, and settings of the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.cli.common.output import key_values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.serializers.registry import SchemaRegistry

REGISTRY_VARIABLE = "BARNABAS_REGISTRY"
REGISTRY_SETTING = "schema.registry.url"
DEFAULT_REGISTRY = "http://127.0.0.1:8081"
# Settings of -X, of a properties file or of a profile -> options of `SchemaRegistry`.
_SETTINGS = {
    "schema.registry.basic.auth.user.info": "user_info",
    "basic.auth.user.info": "user_info",
    "schema.registry.bearer.auth.token": "token",
    "schema.registry.ssl.ca.location": "ca_file",
    "schema.registry.ssl.certificate.location": "certificate_file",
    "schema.registry.ssl.key.location": "key_file",
}

F = TypeVar("F", bound="Callable[..., Any]")


def registry_option(help_text: str, default: str | None = None) -> Callable[[F], F]:
    """Return --registry; the command passes its value to `need_registry` or `open_registry`.

    Args:
        help_text: What the registry is for.
        default: The URL without the option and the setting; None if there is none.
    """
    otherwise = "" if default is None else f", else {default}"
    return click.option(
        "--registry",
        metavar="URL[,...]",
        envvar=REGISTRY_VARIABLE,
        help=f"{help_text}  [env var: {REGISTRY_VARIABLE}; default: the setting "
        f"{REGISTRY_SETTING}{otherwise}]",
    )


def open_registry(url: str | None, properties: Sequence[str]) -> SchemaRegistry | None:
    """Return a client of the registry that the options and settings name. It does not connect yet.

    Args:
        url: The value of --registry.
        properties: The settings of the user.

    Returns:
        None if no URL was given.

    Raises:
        click.UsageError: A setting is invalid.
    """
    return _client(url, registry_settings(properties))


def need_registry(url: str | None, properties: Sequence[str]) -> SchemaRegistry:
    """Return the same client; without a URL, that of a registry on this machine.

    Raises:
        click.UsageError: A setting is invalid.
    """
    settings = {REGISTRY_SETTING: DEFAULT_REGISTRY, **registry_settings(properties)}
    client = _client(url, settings)
    assert client is not None, settings
    return client


def _client(url: str | None, settings: Mapping[str, str]) -> SchemaRegistry | None:
    from barnabas.serializers.registry import SchemaRegistry

    url = url or settings.get(REGISTRY_SETTING)
    if not url:
        return None
    options: Any = {option: settings[key] for key, option in _SETTINGS.items() if settings.get(key)}
    try:
        return SchemaRegistry(url, **options)
    except (ValueError, OSError) as error:
        raise click.UsageError(f"schema registry: {error}") from None


def registry_settings(properties: Sequence[str]) -> dict[str, str]:
    """Return the settings of the user by the names of Java's clients."""
    found = key_values(properties, "--property")
    return {key.replace("_", "."): value for key, value in found.items()}


def file_text(path: str) -> str:
    """Return the text of a file with a schema; - stands for standard input.

    Raises:
        click.UsageError: The file cannot be read, or is no UTF-8 text.
    """
    try:
        with click.open_file(path, encoding="utf-8") as file:
            return str(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path} cannot be read: {error}") from None
