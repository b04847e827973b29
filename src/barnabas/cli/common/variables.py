"""Variables in a broker's properties, which `config.providers` resolve (KIP-297, KIP-421)."""

from __future__ import annotations

from barnabas.runtime.disk import RealDisk
from barnabas.runtime.process import environment


def without_variables(properties: dict[str, str]) -> dict[str, str]:
    """Return the properties with resolved variables, without the keys of providers.

    Raises:
        ConfigProviderError: A variable cannot be resolved.
    """
    if "config.providers" not in properties:
        return properties
    # Imported only for files with variables.
    from barnabas.settings.config_providers import resolve_variables

    return resolve_variables(properties, RealDisk(), environment())
