"""A configuration key: its type, default and range, and how it may change at runtime."""

from __future__ import annotations

import enum
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable


ConfigValue: TypeAlias = bool | int | float | str | list[str] | None


class Range(msgspec.Struct, frozen=True):
    """A condition on a parsed value; `text` completes the sentence "allowed: ..."."""

    text: str
    accepts: Callable[[ConfigValue], bool]


def at_least(minimum: float) -> Range:
    """Allow numbers that are at least `minimum`."""
    return Range(f"at least {minimum}", lambda value: _number(value) >= minimum)


def between(minimum: float, maximum: float) -> Range:
    """Allow numbers from `minimum` to `maximum`, both included."""
    text = f"{minimum} to {maximum}"
    return Range(text, lambda value: minimum <= _number(value) <= maximum)


def one_of(*allowed: str) -> Range:
    """Allow exactly one of these words."""
    words = ", ".join(each or "an empty value" for each in allowed)
    return Range(f"one of {words}", lambda value: value in allowed)


def each_one_of(*allowed: str) -> Range:
    """Allow a list that contains only these words."""
    text = "a list of " + ", ".join(allowed)
    return Range(text, lambda value: isinstance(value, list) and all(v in allowed for v in value))


def each_once_of(*allowed: str) -> Range:
    """Allow a list that contains only these words, each at most once."""
    text = "a list of " + ", ".join(allowed) + ", each once"
    words = each_one_of(*allowed)
    return Range(
        text,
        lambda value: (
            words.accepts(value) and isinstance(value, list) and len(set(value)) == len(value)
        ),
    )


def not_empty() -> Range:
    """Allow a string or list that is not empty."""
    return Range("not empty", bool)


def different_names() -> Range:
    """Allow a list of different names that are not empty."""
    return Range(
        "a list of different names",
        lambda value: isinstance(value, list) and "" not in value and len(set(value)) == len(value),
    )


def satisfying(text: str, accepts: Callable[[ConfigValue], bool]) -> Range:
    """Allow the values that `accepts` approves, described by `text`."""
    return Range(text, accepts)


def _number(value: ConfigValue) -> float:
    assert isinstance(value, int | float), value
    return value


# Java writes a double outside this range with an exponent.
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
_HIDDEN = "[hidden]"


class ConfigType(enum.IntEnum):
    """Kafka's config types, with the numbers that DescribeConfigs uses (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class DynamicMode(enum.Enum):
    """Changes of a broker key that are possible while the broker runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Required(enum.Enum):
    """The marker in place of a default for a key that must be given."""

    REQUIRED = "required"


REQUIRED: Final = Required.REQUIRED

_WHOLE_NUMBERS = {
    ConfigType.SHORT: ("a short", 16),
    ConfigType.INT: ("an int", 32),
    ConfigType.LONG: ("a long", 64),
}


class ConfigError(ValueError):
    """A value that its key does not allow. Carries `key`, `value` (as given) and `allowed`."""

    def __init__(self, key: str, value: str | None, allowed: str) -> None:
        shown = "no value" if value is None else repr(value)
        super().__init__(f"{key}: {shown} is not allowed; allowed: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


class Synonym(msgspec.Struct, frozen=True):
    """A broker key that supplies the default of a topic key, possibly in another unit."""

    name: str
    # Units of the key in one unit of the synonym (hours to milliseconds: 3,600,000).
    factor: int = 1
    # Smaller values are raised to this one, e.g. -1 where all negatives mean "no limit".
    # None: values are not bounded.
    least: int | None = None

    def convert(self, value: int) -> int:
        """Return the synonym's value in the unit of the key."""
        converted = value * self.factor
        return converted if self.least is None else max(converted, self.least)


class ConfigKey(msgspec.Struct, frozen=True):
    """The declaration of one configuration key."""

    name: str
    type: ConfigType
    default: ConfigValue | Required
    doc: str
    range: Range | None = None
    mode: DynamicMode = DynamicMode.READ_ONLY
    # Keys that supply the default of this key, the most specific first.
    synonyms: tuple[Synonym, ...] = ()
    # For a LIST key: whether duplicates are removed.
    distinct: bool = False
    # Whether DescribeConfigs leaves the key out while a resource has no value of its own for it.
    internal: bool = False

    @property
    def attribute(self) -> str:
        """The key's name as a Python attribute: `_` for `.` and `-`."""
        return self.name.replace(".", "_").replace("-", "_")

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def allowed(self) -> str:
        """The allowed type and range in words."""
        words = _type_words(self.type)
        return words if self.range is None else f"{words}, {self.range.text}"

    def parse(self, text: str) -> ConfigValue:
        """Return the value that `text` represents.

        Raises:
            ConfigError: The text is not of the key's type, or the value is out of range.
        """
        value = _convert(self.type, text if self.sensitive else text.strip())
        if value is None or not self.accepts(value):
            raise ConfigError(self.name, _HIDDEN if self.sensitive else text, self.allowed)
        return list(dict.fromkeys(value)) if self.distinct and isinstance(value, list) else value

    def normal(self, text: str) -> str | None:
        """Return the canonical text of a value; return unparsable text unchanged."""
        try:
            return self.format(self.parse(text))
        except ConfigError:
            return text

    def accepts(self, value: ConfigValue) -> bool:
        """Return whether a value of the right type is in the range."""
        return self.range is None or self.range.accepts(value)

    def format(self, value: ConfigValue) -> str | None:
        """Return the text of a value, as DescribeConfigs shows it."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list):
            return ",".join(value)
        return _java_text(value) if isinstance(value, float) else str(value)


def _type_words(kind: ConfigType) -> str:
    if kind in _WHOLE_NUMBERS:
        words, bits = _WHOLE_NUMBERS[kind]
        return f"{words} ({-(1 << bits - 1)} to {(1 << bits - 1) - 1})"
    return {
        ConfigType.BOOLEAN: "true or false",
        ConfigType.DOUBLE: "a number",
        ConfigType.LIST: "a list, separated by commas",
        ConfigType.CLASS: "a class name",
        ConfigType.PASSWORD: "a password",
    }.get(kind, "a string")


def _convert(kind: ConfigType, text: str) -> ConfigValue:
    """Return the value, or None when the text is not of the type."""
    if kind in _WHOLE_NUMBERS:
        return whole_number(text, _WHOLE_NUMBERS[kind][1])
    match kind:
        case ConfigType.BOOLEAN:
            return {"true": True, "false": False}.get(text.lower())
        case ConfigType.DOUBLE:
            return _decimal(text)
        case ConfigType.LIST:
            return [part.strip() for part in text.split(",")] if text else []
        case _:
            return text


def _java_text(value: float) -> str:
    """Return a number as Java writes it, with the fewest digits.

    Numbers far from 1 get an exponent.
    """
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), value
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{fraction}E{exponent + len(digits) - 1}"


def _decimal(text: str) -> float | None:
    """Return the number if Java accepts its text as a double, else None.

    Java accepts a trailing type letter (`1.5f`). NaN is refused. A regular expression is not used:
    with two runs of digits, it takes minutes on a long text.
    """
    number = text[:-1] if text[-1:] in tuple("fFdD") else text
    mantissa, mark, exponent = number.lower().partition("e")
    whole, _, fraction = _without_sign(mantissa).partition(".")
    if not _are_digits(whole + fraction) or (mark and not _are_digits(_without_sign(exponent))):
        return None
    return float(number)


def _without_sign(text: str) -> str:
    return text[1:] if text[:1] in ("+", "-") else text


def _are_digits(text: str) -> bool:
    # isdigit() alone also accepts the digits of other scripts.
    return text.isascii() and text.isdigit()


def whole_number(text: str, bits: int = 32) -> int | None:
    """Return the decimal number if it fits a signed integer of `bits` bits, else None."""
    # The length is checked first because int() refuses texts of more than 4,300 digits.
    # The digits are checked because int() accepts underscores.
    if len(text) > bits or not _are_digits(_without_sign(text)):
        return None
    value = int(text)
    limit = 1 << bits - 1
    return value if -limit <= value < limit else None


_LISTENER_PREFIX = "listener.name."


def without_listener(name: str) -> str:
    """Return the KEY of a name like `listener.name.NAME.KEY`, and any other name unchanged."""
    if not name.startswith(_LISTENER_PREFIX):
        return name
    return name.removeprefix(_LISTENER_PREFIX).partition(".")[2] or name
