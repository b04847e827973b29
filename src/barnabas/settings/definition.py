"""A set of configuration keys, the values parsed against it, and their table (ConfigDef)."""

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

    from barnabas.settings.key import ConfigValue


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
    """A set of keys, in the order of their declaration."""

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
        """Return a definition with the keys of both operands, which must not share a key."""
        return ConfigDefinition([*self, *other])

    def get(self, name: str) -> ConfigKey | None:
        """Return the key with that name, or None if it is not declared."""
        return self._keys.get(name)

    def key(self, name: str) -> ConfigKey:
        """Return the key with that name, which must be declared."""
        return self._keys[name]

    def parse(
        self,
        properties: Mapping[str, str | None],
        defaults: Mapping[str, ConfigValue] | None = None,
    ) -> ParsedConfig:
        """Return the values of all keys.

        Each value comes from `properties`, else from `defaults`, else from the declared default. A
        null value in `properties` means that the key is not given. Undeclared keys are listed in
        `unknown`; the caller decides whether they are a warning or an error.

        Raises:
            ConfigError: A value is not allowed, or a required key is not given.
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
        """Return one value of a declared key. Raises ConfigError."""
        return self._keys[name].parse(text)


class ParsedConfig(msgspec.Struct, frozen=True):
    """A value for every key of a definition, with typed access by Kafka's key name."""

    definition: ConfigDefinition
    values: dict[str, ConfigValue]
    # Keys whose value was given, as opposed to taken from a default.
    given: frozenset[str]
    # Keys that were given but are not declared.
    unknown: list[str]

    def __getitem__(self, name: str) -> ConfigValue:
        return self.values[name]

    def boolean(self, name: str) -> bool:
        """Return the value of a BOOLEAN key."""
        value = self.values[name]
        assert isinstance(value, bool), name
        return value

    def integer(self, name: str) -> int:
        """Return the value of an INT, SHORT or LONG key, which must not be null."""
        value = self.values[name]
        assert isinstance(value, int), name
        return value

    def number(self, name: str) -> float:
        """Return the value of a DOUBLE key."""
        value = self.values[name]
        assert isinstance(value, int | float), name
        return float(value)

    def string(self, name: str) -> str:
        """Return the value of a STRING, CLASS or PASSWORD key, which must not be null."""
        value = self.values[name]
        assert isinstance(value, str), name
        return value

    def optional_string(self, name: str) -> str | None:
        """Return the value of a STRING, CLASS or PASSWORD key, which may be null."""
        return None if self.values[name] is None else self.string(name)

    def strings(self, name: str) -> list[str]:
        """Return the value of a LIST key."""
        value = self.values[name]
        assert isinstance(value, list), name
        return value

    def text(self, name: str) -> str | None:
        """Return the value as DescribeConfigs shows it; None for null and for sensitive keys."""
        key = self.definition.key(name)
        return None if key.sensitive else key.format(self.values[name])

    def build(self, cls: type[C]) -> C:
        """Return a config struct whose fields are named like the keys, with `_` for `.` and `-`."""
        by_attribute = {key.attribute: self.values[key.name] for key in self.definition}
        target: Any = cls
        names = target.__struct_fields__
        return cls(**{name: by_attribute[name] for name in names if name in by_attribute})


_HEAD = "| key | type | default | allowed | change | meaning |\n|---|---|---|---|---|---|\n"


def markdown_table(definition: ConfigDefinition) -> str:
    """Return a table with one row per key, in the order of declaration."""
    return _HEAD + "".join(_row(key) for key in definition)


def _row(key: ConfigKey) -> str:
    if isinstance(key.default, Required):
        default = "required"
    else:
        text = key.format(key.default)
        default = "null" if text is None else f"`{text}`" if text else "empty"
    cells = (
        f"`{key.name}`",
        key.type.name.lower(),
        default,
        "" if key.range is None else key.range.text,
        key.mode.value,
        key.doc,
    )
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"
