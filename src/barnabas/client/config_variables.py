"""Variables in a client's configuration, which `config.providers` resolve (KIP-297).

Loaded only for configurations with variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.client.errors import ClientConfigError
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.process import environment
from barnabas.settings.config_providers import (
    PROVIDERS_KEY,
    ConfigProviderError,
    resolve_variables,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["parse_with_variables"]

T = TypeVar("T")
_WITH_UNDERSCORES = PROVIDERS_KEY.replace(".", "_")


def parse_with_variables(
    given: Mapping[str, object], parse: Callable[[Mapping[str, object]], T]
) -> T:
    """Resolve the variables, and parse what results.

    Args:
        given: The configuration, with `config.providers`. Values that are no text stay as they are.
        parse: Parses the configuration without variables; raises ClientConfigError.

    Raises:
        ClientConfigError: A variable cannot be resolved, or `parse` refuses the result. The message
            has no resolved value.
    """
    texts = {_dotted(key): value for key, value in given.items() if isinstance(value, str)}
    others = {key: value for key, value in given.items() if not isinstance(value, str)}
    try:
        resolved = resolve_variables(texts, RealDisk(), environment())
    except ConfigProviderError as error:
        raise ClientConfigError(str(error)) from None
    try:
        return parse({**resolved, **others})
    except ClientConfigError as error:
        message = str(error)
        for key, value in resolved.items():
            if value and value != texts[key]:
                message = message.replace(value, "[hidden]")
        raise ClientConfigError(message) from None


def _dotted(key: str) -> str:
    """Return a key of providers with dots, as keyword arguments in Python cannot have it."""
    return key.replace("_", ".") if key.startswith(_WITH_UNDERSCORES) else key
