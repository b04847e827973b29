"""A set of configuration keys, and the values parsed against it (Kafka: ConfigDef)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from barnabas.settings.key import (
    REQUIRED,
    ConfigError,
    ConfigKey,
    ConfigType,
    DynamicMode,
    Required,
    Synonym,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.settings.range import ConfigValue

__all__ = [
    "REQUIRED",
    "ConfigDefinition",
    "ConfigError",
    "ConfigKey",
    "ConfigType",
    "DynamicMode",
    "ParsedConfig",
    "Synonym",
]

C = TypeVar("C")


class ConfigDefinition:
    """Keys in the order of their declaration."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        self._keys: dict[str, ConfigKey] = {}
        for key in keys:
            assert key.name not in self._keys, key.name
            self._keys[key.name] = key

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self._keys.values())

    def __len__(self) -> int:
        return len(self._keys)

    def __or__(self, other: ConfigDefinition) -> ConfigDefinition:
        """The keys of both; no key may be in both."""
        return ConfigDefinition([*self, *other])

    def get(self, name: str) -> ConfigKey | None:
        """The key of that name, if there is one."""
        return self._keys.get(name)

    def key(self, name: str) -> ConfigKey:
        """The key of that name, which must exist."""
        return self._keys[name]

    def parse(
        self,
        properties: Mapping[str, str | None],
        defaults: Mapping[str, ConfigValue] | None = None,
    ) -> ParsedConfig:
        """Values of all keys: given, else from `defaults`, else the declared default.

        A null value stands for "not given". Keys that are not declared are listed in `unknown`;
        the caller decides whether that is a warning or an error.

        Raises:
            ConfigError: a value not allowed, or a required key not given.
        """
        values: dict[str, ConfigValue] = {}
        given: set[str] = set()
        for key in self._keys.values():
            text = properties.get(key.name)
            if text is not None:
                values[key.name] = key.parse(text)
                given.add(key.name)
            elif defaults is not None and key.name in defaults:
                values[key.name] = defaults[key.name]
            elif isinstance(key.default, Required):
                raise ConfigError(key.name, None, key.allowed)
            else:
                values[key.name] = key.default
        unknown = [name for name in properties if name not in self._keys]
        return ParsedConfig(self, values, frozenset(given), unknown)

    def parse_value(self, name: str, text: str) -> ConfigValue:
        """One value of a declared key. Raises ConfigError."""
        return self._keys[name].parse(text)


class ParsedConfig(msgspec.Struct, frozen=True):
    """A value for every key of a definition, with typed access by Kafka's key name."""

    definition: ConfigDefinition
    values: dict[str, ConfigValue]
    # Keys whose value was given and not taken from a default.
    given: frozenset[str]
    # Keys that were given and are not declared.
    unknown: list[str]

    def __getitem__(self, name: str) -> ConfigValue:
        return self.values[name]

    def boolean(self, name: str) -> bool:
        """The value of a BOOLEAN key."""
        value = self.values[name]
        assert isinstance(value, bool), name
        return value

    def integer(self, name: str) -> int:
        """The value of an INT, SHORT or LONG key that is not null."""
        value = self.values[name]
        assert isinstance(value, int), name
        return value

    def number(self, name: str) -> float:
        """The value of a DOUBLE key."""
        value = self.values[name]
        assert isinstance(value, int | float), name
        return float(value)

    def string(self, name: str) -> str:
        """The value of a STRING, CLASS or PASSWORD key that is not null."""
        value = self.values[name]
        assert isinstance(value, str), name
        return value

    def optional_string(self, name: str) -> str | None:
        """The value of a STRING, CLASS or PASSWORD key that may be null."""
        return None if self.values[name] is None else self.string(name)

    def strings(self, name: str) -> list[str]:
        """The value of a LIST key."""
        value = self.values[name]
        assert isinstance(value, list), name
        return value

    def text(self, name: str) -> str | None:
        """The value as DescribeConfigs shows it; None for null and for sensitive keys."""
        key = self.definition.key(name)
        return None if key.sensitive else key.format(self.values[name])

    def build(self, cls: type[C]) -> C:
        """A config struct whose fields are named like keys, with `_` for `.` and `-`."""
        by_attribute = {key.attribute: self.values[key.name] for key in self.definition}
        target: Any = cls
        names = target.__struct_fields__
        return cls(**{name: by_attribute[name] for name in names if name in by_attribute})
