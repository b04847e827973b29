"""The config of a connector as a table without secrets, and as a form by its plug-in's definitions.

A secret never leaves the console: a mask stands for it. A form that comes back with the mask keeps
the secret that the connector has.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from barnabas.console.forms import FormError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.console.connect.rest import CheckedConfig, Definition, Validation
    from barnabas.console.forms import Fields

MASK = "********"
_PASSWORD = "PASSWORD"  # noqa: S105 - a type
# Names of configs that hold secrets, also where no definition says so: of transformations, of
# clients that a connector makes, and of plug-ins that declare strings.
_SECRET_NAME = re.compile(
    r"passw(or)?d|passphrase|secret|token(?!izer)|credential|jaas|private[._-]?key|api[._-]?key"
    r"|access[._-]?key|auth[._-]?key|account[._-]?key|connection[._-]?string|user[._-]?info",
    re.IGNORECASE,
)
# A value such as ${file:/etc/secrets:password}: workers replace it, so it is no secret itself.
_VARIABLE = re.compile(r"\$\{[^{}]+\}")
# A password within a URL, as in jdbc:postgresql://user:password@host.
_IN_URL = re.compile(r"(?<=://)([^/\s:@]*):([^/\s@]+)@")
# Prefix of the fields of a form that are configs.
FIELD = "config."
# The field with further configs, one KEY=VALUE on a line.
OTHERS = "configs"
_HIDDEN = ("name", "connector.class")
# The group of configs that their plug-in puts into no group.
_OWN = "Plug-in"
# The groups that Connect adds to the configs of each plug-in.
_ADDED = ("Common", "Transforms", "Predicates", "Error Handling", "Topic Creation")
_TAG = re.compile(r"</?[a-z]+[^<>]*>", re.IGNORECASE)


class Row(NamedTuple):
    """A config of a connector as the console shows it."""

    name: str
    value: str
    is_secret: bool


class Field(NamedTuple):
    """A config in a form."""

    definition: Definition
    value: str
    recommended: tuple[str, ...]
    errors: tuple[str, ...]
    is_secret: bool

    @property
    def name(self) -> str:
        """The name of the field in the form."""
        return FIELD + self.definition.name

    @property
    def documentation(self) -> str:
        """The documentation without tags of HTML."""
        return _TAG.sub("", self.definition.documentation or "")

    @property
    def is_open(self) -> bool:
        """Whether the form shows the field without a click."""
        wanted = self.definition.required or self.definition.importance == "HIGH"
        return bool(wanted or self.value or self.errors)


class Group(NamedTuple):
    """The fields of a form that belong together."""

    name: str
    # Fields that are shown, and those behind a click.
    main: tuple[Field, ...]
    more: tuple[Field, ...]


class ConfigForm(NamedTuple):
    """The form of a connector's config."""

    groups: tuple[Group, ...]
    # Configs without a definition, one KEY=VALUE on a line.
    others: str
    # Errors of configs without a field.
    errors: tuple[str, ...]
    error_count: int


def secret_names(definitions: Iterable[Definition]) -> frozenset[str]:
    """Return the names of the configs that their plug-in declares as passwords."""
    return frozenset(each.name for each in definitions if each.type == _PASSWORD)


def is_secret(name: str, value: str, secrets: frozenset[str]) -> bool:
    """Return whether the value of a config must not be shown."""
    if not value or _VARIABLE.fullmatch(value):
        return False
    return name in secrets or _SECRET_NAME.search(name) is not None


def shown_value(name: str, value: str | None, secrets: frozenset[str]) -> str:
    """Return a value without its secrets."""
    value = value or ""
    return MASK if is_secret(name, value, secrets) else _IN_URL.sub(rf"\1:{MASK}@", value)


def shown_config(config: Mapping[str, str | None], secrets: frozenset[str]) -> list[Row]:
    """Return a config by name, without secrets."""
    return [
        Row(name, shown_value(name, value, secrets), is_secret(name, value or "", secrets))
        for name, value in sorted(config.items())
    ]


def config_form(validation: Validation, config: Mapping[str, str], *, errors: bool) -> ConfigForm:
    """Return the form of a config.

    Args:
        validation: The plug-in's judgement of the config.
        config: The values without defaults.
        errors: Whether the form shows errors; a new form is not wrong yet.
    """
    secrets = secret_names(each.definition for each in validation.configs)
    by_group: dict[str, list[Field]] = {name: [] for name in validation.groups}
    own, unseen = set(_HIDDEN), []
    for each in validation.configs:
        name = each.definition.name
        own.add(name)
        if name == "name" or not each.value.visible:
            unseen += [f"{name}: {text}" for text in each.value.errors if name != "name"]
            continue
        if name != "connector.class":
            group = each.definition.group or _OWN
            by_group.setdefault(group, []).append(_field(each, config, secrets, errors=errors))
    others = [row for row in shown_config(config, secrets) if row.name not in own]
    groups = [_group(name, fields) for name, fields in by_group.items() if fields]
    groups.sort(
        key=lambda group: (
            not any(each.definition.required for each in group.main),
            group.name in _ADDED,
        )
    )
    return ConfigForm(
        tuple(groups),
        "\n".join(f"{row.name}={row.value}" for row in others),
        tuple(unseen) if errors else (),
        validation.error_count if errors else 0,
    )


def _field(
    each: CheckedConfig, config: Mapping[str, str], secrets: frozenset[str], *, errors: bool
) -> Field:
    name = each.definition.name
    value = config.get(name, "")
    return Field(
        each.definition,
        shown_value(name, value, secrets),
        tuple(one for one in each.value.recommended_values if one),
        each.value.errors if errors else (),
        name in secrets or is_secret(name, value, secrets),
    )


def _group(name: str, fields: list[Field]) -> Group:
    fields.sort(key=lambda each: (not each.definition.required, each.definition.order_in_group))
    main = tuple(each for each in fields if each.is_open)
    return Group(name, main, tuple(each for each in fields if not each.is_open))


def submitted_config(
    form: Fields, present: Mapping[str, str | None], secrets: frozenset[str]
) -> dict[str, str]:
    """Return the config in a form: without empty fields, and with the secrets behind masks.

    Args:
        form: The form.
        present: The config that the connector has; empty for a new connector.
        secrets: The names of the configs that the plug-in declares as passwords.

    Raises:
        FormError: A line of the further configs is malformed, or there is no secret for a mask.
    """
    given = {
        key.removeprefix(FIELD): value.strip()
        for key, value in form.all_but()
        if key.startswith(FIELD) and value.strip()
    }
    return {
        name: _kept(name, value, present.get(name) or "", secrets)
        for name, value in {**given, **_lines(form.text(OTHERS))}.items()
    }


def _kept(name: str, value: str, before: str, secrets: frozenset[str]) -> str:
    if MASK not in value:
        return value
    if not before or value != shown_value(name, before, secrets):
        raise FormError(f"{name} contains {MASK}, which stands for a secret: write the whole value")
    return before


def _lines(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            name, is_pair, value = line.partition("=")
            if not is_pair or not name.strip():
                raise FormError(f"{line.strip()[:80]}: write KEY=VALUE on each line")
            found[name.strip()] = value.strip()
    return found


def config_changes(
    before: Mapping[str, str | None], after: Mapping[str, str], secrets: frozenset[str]
) -> Sequence[tuple[str, str, str]]:
    """Return the name, the old and the new value of each config that differs, without secrets."""
    rows = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name) or "", after.get(name) or ""
        if old != new:
            shown = shown_value(name, old, secrets), shown_value(name, new, secrets)
            if shown[0] == shown[1]:
                shown = shown[0], f"{MASK} (changed)"
            rows.append((name, *shown))
    return rows
