"""The configs of a topic as a form: each with its default in this cluster, help and choices.

The keys come from a topic that exists, because brokers describe the configs of topics only. A
cluster without topics has the keys that Barnabas knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.common.units import config_meaning, config_text
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.console.forms import FormError
from barnabas.console.plans.config_sources import defaults_of
from barnabas.settings.key import ConfigType, Required
from barnabas.storage.config import TOPIC_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.configs import ConfigEntry
    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields

# Fields of a form with a config have this prefix.
PREFIX = "config:"
# The configs that most users look for; the form shows them first.
_FIRST = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "min.insync.replicas",
    "max.message.bytes",
    "compression.type",
    "message.timestamp.type",
    "segment.bytes",
    "segment.ms",
)
_LISTED_CHOICES = {"cleanup.policy": ("delete", "compact", "compact,delete")}
_ONE_OF = "one of "


class Setting(NamedTuple):
    """One config in the form."""

    name: str
    # The value that is set on the topic; None if none is set.
    own: str | None
    # The value without one of its own; None if it is unknown.
    inherited: str | None
    documentation: str
    # The values of a choice; empty for free text.
    choices: tuple[str, ...]
    is_first: bool

    @property
    def inherited_meaning(self) -> str:
        """The inherited value in larger units, such as 7d; "" if it has none."""
        return config_meaning(self.name, self.inherited)

    @property
    def own_meaning(self) -> str:
        """The topic's value in larger units; "" if it has none."""
        return config_meaning(self.name, self.own)


def settings_of(entries: Iterable[ConfigEntry], defaults: Mapping[str, str]) -> list[Setting]:
    """Return the settings of a topic, those that most users look for first.

    Args:
        entries: The configs, with synonyms and documentation.
        defaults: Inherited values of configs whose synonyms have none.
    """
    found = [_setting(each, defaults) for each in entries if not each.is_read_only]
    return sorted(found, key=_order)


def _setting(entry: ConfigEntry, defaults: Mapping[str, str]) -> Setting:
    is_own = entry.source == "topic"
    inherited = [each.value for each in entry.synonyms if each.source != "topic"]
    value = entry.value
    if inherited or is_own:
        value = inherited[0] if inherited else defaults.get(entry.name)
    known = TOPIC_CONFIGS.get(entry.name)
    return Setting(
        entry.name,
        entry.value if is_own else None,
        value,
        entry.documentation or (known.doc if known else ""),
        _choices(entry.name, entry.type == "boolean"),
        entry.name in _FIRST,
    )


def _choices(name: str, is_boolean: bool) -> tuple[str, ...]:
    if is_boolean:
        return ("true", "false")
    known = TOPIC_CONFIGS.get(name)
    if known is not None and known.range is not None and known.range.text.startswith(_ONE_OF):
        return tuple(known.range.text.removeprefix(_ONE_OF).split(", "))
    return _LISTED_CHOICES.get(name, ())


def _order(setting: Setting) -> tuple[int, str]:
    return _FIRST.index(setting.name) if setting.is_first else len(_FIRST), setting.name


class TopicShape(NamedTuple):
    """What a new topic is made of."""

    partitions: int | None
    replicas: int | None
    settings: list[Setting]


def load_settings(client: Client, name: str) -> TopicShape:
    """Return the settings of a topic, and its numbers of partitions and replicas.

    Raises:
        ClientError: There is no such topic, or its configs cannot be read.
    """
    partitions = client.describe_topics([name], may_be_new=False)[name].partitions
    resource = ConfigResource(ResourceType.TOPIC, name)
    entries = client.admin.describe_configs([resource], synonyms=True, documentation=True)[resource]
    if isinstance(entries, ClientError):
        raise entries
    leader = next((each.leader for each in partitions.values() if each.leader >= 0), -1)
    settings = settings_of(entries, defaults_of(client, entries, leader))
    replicas = max((len(each.replicas) for each in partitions.values()), default=0)
    return TopicShape(len(partitions), replicas, settings)


def load_defaults(client: Client) -> TopicShape:
    """Return the settings of a topic without own configs, and the cluster's default numbers."""
    numbers = _default_numbers(client)
    topics = client.admin.list_topics(internal=True)
    # The configs of internal topics are often set, and their defaults less well known.
    names = sorted(topics, key=lambda each: (topics[each].is_internal, each))
    if not names:
        return numbers._replace(settings=_known_settings())
    settings = load_settings(client, names[0]).settings
    return numbers._replace(settings=[each._replace(own=None) for each in settings])


def _default_numbers(client: Client) -> TopicShape:
    brokers = client.describe_cluster().brokers
    resource = ConfigResource(ResourceType.BROKER, str(brokers[0].id if brokers else 0))
    keys = ("num.partitions", "default.replication.factor")
    try:
        entries = client.admin.describe_configs([resource], keys=keys)[resource]
    except ClientError:
        return TopicShape(None, None, [])
    found = {} if isinstance(entries, ClientError) else {e.name: e.value for e in entries}
    partitions, replicas = (found.get(key) for key in keys)
    return TopicShape(int(partitions) if partitions else None, int(replicas or 0) or None, [])


def _known_settings() -> list[Setting]:
    found = [
        Setting(
            key.name,
            None,
            None if isinstance(key.default, Required) else _text(key.default),
            key.doc,
            _choices(key.name, key.type is ConfigType.BOOLEAN),
            key.name in _FIRST,
        )
        for key in TOPIC_CONFIGS
        if not key.internal
    ]
    return sorted(found, key=_order)


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def typed_configs(form: Fields) -> dict[str, str]:
    """Return the configs that a form sets, in the units of brokers; empty fields are left out.

    Raises:
        FormError: A value has a unit that does not exist, or a line is no config.
    """
    found = {}
    for name, text in form.all_but():
        if name.startswith(PREFIX) and text.strip():
            key = name.removeprefix(PREFIX)
            found[key] = _brokers_text(key, text.strip(), name)
    for line in form.text("configs").splitlines():
        key, equals, value = line.partition("=")
        if line.strip():
            if not equals:
                text = f"write each config as key=value, not {line.strip()!r}"
                raise FormError(text, "configs")
            found[key.strip()] = _brokers_text(key.strip(), value.strip(), "configs")
    return found


def _brokers_text(key: str, text: str, field: str) -> str:
    try:
        return config_text(key, text)
    except click.UsageError as error:
        raise FormError(error.message, field) from None


def changed_configs(settings: Sequence[Setting], form: Fields) -> dict[str, str | None]:
    """Return the configs that a form changes; None resets a config. Missing fields change nothing.

    Raises:
        FormError: A value is malformed.
    """
    typed = typed_configs(form)
    own = {each.name: each.own for each in settings}
    present = {name.removeprefix(PREFIX) for name, _ in form.all_but() if name.startswith(PREFIX)}
    changes: dict[str, str | None] = {
        key: value for key, value in typed.items() if own.get(key) != value
    }
    for key in present - typed.keys():
        if own.get(key) is not None:
            changes[key] = None
    return changes
