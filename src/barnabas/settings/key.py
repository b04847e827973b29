"""One configuration key: its type, default, range, and who may change it while the broker runs."""

from __future__ import annotations

import enum
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from barnabas.settings.range import ConfigValue, Range

# Where Java begins to write numbers with an exponent.
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
_HIDDEN = "[hidden]"


class ConfigType(enum.IntEnum):
    """Kafka's types; the numbers are those of DescribeConfigs (KIP-569)."""

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
    """Who may change a broker key while the broker runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Required(enum.Enum):
    """The default of a key that has none and must be given."""

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
    """A broker key that gives a topic key its default, in another unit perhaps."""

    name: str
    # What one unit of the synonym is in units of the key (hours to milliseconds: 3,600,000).
    factor: int = 1
    # What all below it stand for: -1 where that is "no limit"; None where nothing is.
    least: int | None = None

    def convert(self, value: int) -> int:
        """The value in the key's unit."""
        converted = value * self.factor
        return converted if self.least is None else max(converted, self.least)


class ConfigKey(msgspec.Struct, frozen=True):
    """A key's declaration."""

    name: str
    type: ConfigType
    default: ConfigValue | Required
    doc: str
    range: Range | None = None
    mode: DynamicMode = DynamicMode.READ_ONLY
    # Keys that give this one's default, the most specific first.
    synonyms: tuple[Synonym, ...] = ()
    # Of a list: whether what is named again is left out.
    distinct: bool = False

    @property
    def attribute(self) -> str:
        """The name in Python: `_` for `.` and `-`."""
        return self.name.replace(".", "_").replace("-", "_")

    @property
    def sensitive(self) -> bool:
        """Whether the value is never shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def allowed(self) -> str:
        """Type and range in words."""
        words = _type_words(self.type)
        return words if self.range is None else f"{words}, {self.range.text}"

    def parse(self, text: str) -> ConfigValue:
        """The value that `text` stands for.

        Raises:
            ConfigError: not of the type, or outside the range.
        """
        value = _convert(self.type, text if self.sensitive else text.strip())
        if value is None or not self.accepts(value):
            raise ConfigError(self.name, _HIDDEN if self.sensitive else text, self.allowed)
        return list(dict.fromkeys(value)) if self.distinct and isinstance(value, list) else value

    def normal(self, text: str) -> str | None:
        """The text of a value that may be written in another way; what is none as it is."""
        try:
            return self.format(self.parse(text))
        except ConfigError:
            return text

    def accepts(self, value: ConfigValue) -> bool:
        """Whether a value of the right type is in the range."""
        return self.range is None or self.range.accepts(value)

    def format(self, value: ConfigValue) -> str | None:
        """The text for a value, as DescribeConfigs shows it."""
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
    """The value, None when the text is not of the type."""
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
    """A number as Java writes it: the fewest digits, and an exponent where it is far from 1."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), value
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{fraction}E{exponent + len(digits) - 1}"


def _decimal(text: str) -> float | None:
    """Return the number, written as Java takes it; None for any other text.

    That is with the letter that says how precise a number is, and without NaN. No regular
    expression: one with two runs of digits takes minutes on a long text.
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
    # Not isdigit() alone: it also takes the digits of other scripts.
    return text.isascii() and text.isdigit()


def whole_number(text: str, bits: int = 32) -> int | None:
    """Return the number that digits stand for, if it fits a signed number of so many bits."""
    # The length first: int() refuses texts of 4,300 digits. Not int() alone: it takes underscores.
    if len(text) > bits or not _are_digits(_without_sign(text)):
        return None
    value = int(text)
    limit = 1 << bits - 1
    return value if -limit <= value < limit else None


_LISTENER_PREFIX = "listener.name."


def without_listener(name: str) -> str:
    """The key that `listener.name.NAME.KEY` sets for one listener; any other name as it is."""
    if not name.startswith(_LISTENER_PREFIX):
        return name
    return name.removeprefix(_LISTENER_PREFIX).partition(".")[2] or name
