"""Keys of one listener, and of one of its mechanisms (Kafka: prefixes of SASL keys)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.settings.definition import ParsedConfig
    from barnabas.settings.range import ConfigValue


class KeysOfListener:
    """Reads keys of a listener. A key of its mechanism has precedence, a global key is last."""

    def __init__(
        self,
        config: ParsedConfig,
        given: Mapping[str, str],
        listener: str,
        mechanism: str | None = None,
    ) -> None:
        """Args:
        config: the parsed configuration.
        given: all given properties, which include keys of single listeners.
        listener: name of the listener, in any case.
        mechanism: name of the mechanism; None for keys of the listener alone.
        """
        self._config = config
        self._given = given
        self._prefix = f"listener.name.{listener.lower()}."
        # Prefixes of a key, the most specific first.
        self._prefixes = [self._prefix]
        if mechanism is not None:
            self._prefixes.insert(0, f"{self._prefix}{mechanism.lower()}.")

    def name_of(self, key: str) -> str:
        """Return the full name of a given key. If it is not given, return the name to set."""
        for prefix in self._prefixes:
            if prefix + key in self._given:
                return prefix + key
        return key if key in self._given else self._prefixes[0] + key

    def own_text(self, key: str) -> str | None:
        """Return the text of a key with the most specific prefix only; None if it is not given."""
        return self._given.get(self._prefixes[0] + key)

    def value(self, key: str) -> ConfigValue:
        """Return the value of a key.

        Raises:
            ConfigError: the given text is not allowed.
        """
        for prefix in self._prefixes:
            text = self._given.get(prefix + key)
            if text is not None:
                return self._config.definition.parse_value(key, text)
        return self._config[key]

    def integer(self, key: str) -> int:
        """Return the value of an integer key."""
        value = self.value(key)
        assert isinstance(value, int), key
        return value

    def boolean(self, key: str) -> bool:
        """Return the value of a BOOLEAN key."""
        value = self.value(key)
        assert isinstance(value, bool), key
        return value

    def string(self, key: str) -> str:
        """Return the value of a text key, which must not be null."""
        value = self.value(key)
        assert isinstance(value, str), key
        return value

    def optional_string(self, key: str) -> str | None:
        """Return the value of a text key, which may be null."""
        return None if self.value(key) is None else self.string(key)

    def strings(self, key: str) -> list[str]:
        """Return the value of a LIST key."""
        value = self.value(key)
        assert isinstance(value, list), key
        return value
