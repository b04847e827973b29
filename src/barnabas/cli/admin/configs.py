"""`barnabas configs`: configs of topics, brokers, groups, client metrics and loggers."""

from __future__ import annotations

import difflib
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click

from barnabas.cli.common.named_topics import complete_config_keys
from barnabas.cli.common.output import (
    ClientOptions,
    client_options,
    config_values,
    connected,
    echo_json,
    fail,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import dim, echo_line, echo_table, header_option, strong, warn
from barnabas.cli.common.units import config_meaning
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError, UnsupportedVersionError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.client.admin.configs import ConfigEntry
    from barnabas.client.facade import Client

EXAMPLES = """\b
Examples:
  barnabas configs list
  barnabas configs describe topic flights
  barnabas configs describe broker 1 --all --sources
  barnabas configs describe broker default
  barnabas configs set topic flights retention.ms=86400000 cleanup.policy=compact
  barnabas configs set broker default log.retention.ms=3600000
  barnabas configs unset topic flights retention.ms

\b
A resource is a TYPE and a NAME. Types: topic, broker, group, client-metrics, logger. The broker
name "default" means all brokers. The name of a logger resource is the id of its broker.

\b
Values may have units: 90s, 15m, 12h and 7d for keys of times; 100kB, 64MiB and 1GiB for keys of
sizes.
"""

_TYPES = {
    "topic": ResourceType.TOPIC,
    "broker": ResourceType.BROKER,
    "group": ResourceType.GROUP,
    "client-metrics": ResourceType.CLIENT_METRICS,
    "logger": ResourceType.BROKER_LOGGER,
}
_WORDS = {kind: word for word, kind in _TYPES.items()}
_ALL_BROKERS = "default"
# Keys of one listener begin with it; brokers do not list them all.
_LISTENER_PREFIX = "listener.name."

type_argument = click.argument("kind", type=click.Choice(list(_TYPES)), metavar="TYPE")


@click.group(epilog=EXAMPLES)
def configs() -> None:
    """List, describe and change configs."""


@configs.command("list", epilog="\b\nExamples:\n  barnabas configs list --type topic\n")
@click.option("--type", "kinds", type=click.Choice(list(_TYPES)), multiple=True, help="Only these.")
@header_option
@client_options
def list_resources(kinds: Sequence[str], options: ClientOptions) -> None:
    """List topics and brokers, and the groups and client metrics that have configs."""
    with connected(options) as client:
        found = _resources(client, [_TYPES[kind] for kind in kinds])
        rows = [(_WORDS[resource.type], resource.name or _ALL_BROKERS) for resource in found]
        if options.as_json:
            echo_json([{"type": kind, "name": name} for kind, name in rows])
        else:
            echo_table(("type", "name"), rows)


def _resources(client: Client, kinds: Sequence[ResourceType]) -> list[ConfigResource]:
    try:
        found = client.admin.list_config_resources(kinds)
    except UnsupportedVersionError:
        # Brokers before 4.1 cannot list config resources. Topics and brokers always have configs.
        topics = client.topics(internal=True)
        nodes = client.describe_cluster().brokers
        found = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        found += [ConfigResource(ResourceType.BROKER, str(node.id)) for node in nodes]
        found = [resource for resource in found if not kinds or resource.type in kinds]
    return sorted(found)


class Shown(NamedTuple):
    """The output of `describe`."""

    keys: tuple[str, ...]
    # Whether to show default values too.
    all: bool
    sources: bool
    docs: bool


@configs.command(
    "describe",
    epilog="\b\nExamples:\n  barnabas configs describe topic flights retention.ms --sources\n",
)
@type_argument
@click.argument("name")
@click.argument("keys", nargs=-1, metavar="[KEY...]", shell_complete=complete_config_keys)
@click.option("-a", "--all", "is_all", is_flag=True, help="Show default values too.")
@click.option("-s", "--sources", is_flag=True, help="Show every source that sets a value.")
@click.option("--docs", is_flag=True, help="Show the documentation of the keys.")
@header_option
@client_options
def describe_configs(
    kind: str,
    name: str,
    keys: tuple[str, ...],
    is_all: bool,
    sources: bool,
    docs: bool,
    options: ClientOptions,
) -> None:
    """Show the configs of a resource and where each value comes from."""
    resource = _resource(kind, name)
    shown = Shown(keys, is_all or bool(keys), sources, docs)
    with connected(options) as client:
        found = client.admin.describe_configs([resource], synonyms=True, documentation=docs)
        entries = found[resource]
        if isinstance(entries, ClientError):
            raise entries
        _check_keys(keys, entries)
        kept = [
            entry
            for entry in sorted(entries, key=lambda entry: entry.name)
            if (not keys or entry.name in keys) and (shown.all or not entry.is_default)
        ]
        if options.as_json:
            listed = [_entry_json(entry, shown) for entry in kept]
            echo_json({"type": kind, "name": name, "configs": listed})
        else:
            _echo_entries(resource, kept, shown)


def _check_keys(keys: Sequence[str], entries: Sequence[ConfigEntry]) -> None:
    known = {entry.name for entry in entries}
    for key in keys:
        if key not in known:
            hint = f"; did you mean {close[0]}?" if (close := _similar(key, known)) else ""
            fail(f"there is no key {key} here{hint}")


def _check_broker_keys(client: Client, resource: ConfigResource, keys: Iterable[str]) -> None:
    """End the command if neither Barnabas nor the broker knows one of the keys."""
    from barnabas.server.configs.configuration import BROKER_KEYS

    # Apache Kafka describes throttles only when they are set.
    known = {key.name for key in BROKER_KEYS}
    unknown = [
        key
        for key in keys
        if key not in known and not key.startswith(_LISTENER_PREFIX) and not _is_of_link(key)
    ]
    if not unknown:
        return
    # The defaults of all brokers are described without the keys that are not set.
    name = resource.name or str(client.describe_cluster().brokers[0].id)
    described = ConfigResource(ResourceType.BROKER, name)
    entries = client.admin.describe_configs([described])[described]
    if isinstance(entries, ClientError):
        # The broker decides: a user may have the right to alter configs only.
        return
    known |= {entry.name for entry in entries}
    for key in unknown:
        if key not in known:
            hint = f"; did you mean {close[0]}?" if (close := _similar(key, known)) else ""
            fail(f"brokers have no key {key}{hint} (--force sets it anyway)")


def _is_of_link(key: str) -> bool:
    """Whether a key is a setting of a link. Kafka's tools set these too."""
    from barnabas.replication.links.link_table import client_key_of, is_setting

    if not is_setting(key):
        return False
    from barnabas.client.config import is_known

    client_key = client_key_of(key)
    return client_key is None or is_known(client_key)


@contextmanager
def suggested_keys(kind: str, keys: Iterable[str]) -> Iterator[None]:
    """Add similar keys to the error of a broker that refuses the configs of a resource.

    Args:
        kind: The type of the resource, as users type it.
        keys: The keys that a request sets.
    """
    try:
        yield
    except ClientError as error:
        hint = key_suggestion(kind, keys) if error.error_code == ErrorCode.INVALID_CONFIG else ""
        if not hint:
            raise
        fail(f"{error}{hint}")


def key_suggestion(kind: str, keys: Iterable[str]) -> str:
    """Return a question with similar keys for the keys that no topic has; empty without one."""
    if kind != "topic":
        return ""
    from barnabas.storage.config import TOPIC_CONFIGS

    known = {key.name for key in TOPIC_CONFIGS}
    similar = [_similar(key, known) for key in keys if key not in known]
    names = [found[0] for found in similar if found]
    return f"; did you mean {' and '.join(names)}?" if names else ""


def _similar(key: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(key, sorted(known), n=1)


def _echo_entries(resource: ConfigResource, entries: Sequence[ConfigEntry], shown: Shown) -> None:
    if not entries and sys.stdout.isatty():
        echo_line(strong(resource), ": all at their defaults; --all shows them")
        return
    if shown.docs:
        for entry in entries:
            echo_line(strong(entry.name), f"={shown_value(entry)} ", dim(f"({_source(entry)})"))
            echo_line(f"    {entry.documentation or ''}")
        return
    columns = ("key", "value", "source")
    rows: list[tuple[object, ...]] = []
    for entry in entries:
        value = shown_value(entry)
        source = _source(entry)
        rows.append(
            (entry.name, value, dim(source))
            if entry.is_default
            else (entry.name, warn(value), source)
        )
        if shown.sources:
            others = entry.synonyms[1:] if entry.synonyms else ()
            rows += [(dim(f"  {s.name}"), dim(s.value), dim(s.source)) for s in others]
    echo_table(columns, rows)


def _value(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return "[hidden]"
    return "null" if entry.value is None else entry.value


def shown_value(entry: ConfigEntry) -> str:
    """Return the value of a config, on a terminal with its meaning in larger units."""
    value = _value(entry)
    meaning = config_meaning(entry.name, value)
    return f"{value} ({meaning})" if meaning and sys.stdout.isatty() else value


def _source(entry: ConfigEntry) -> str:
    return f"{entry.source}, read-only" if entry.is_read_only else entry.source


def _entry_json(entry: ConfigEntry, shown: Shown) -> dict[str, Any]:
    listed: dict[str, Any] = {
        "key": entry.name,
        "value": entry.value,
        "source": entry.source,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "type": entry.type,
    }
    if shown.sources:
        listed["sources"] = [
            {"key": synonym.name, "value": synonym.value, "source": synonym.source}
            for synonym in entry.synonyms
        ]
    if shown.docs:
        listed["doc"] = entry.documentation
    return listed


@configs.command(
    "set",
    epilog="\b\nExamples:\n  barnabas configs set topic flights retention.ms=1000 --dry-run\n"
    "  barnabas configs set broker 1 --file passwords.properties\n",
)
@type_argument
@click.argument("name")
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE...]", shell_complete=complete_config_keys)
@click.option(
    "--file",
    "file",
    type=click.File("rb"),
    metavar="FILE",
    help="A properties file with configs, - for standard input: for passwords, since other users "
    "see the arguments of commands.",
)
@click.option("--dry-run", is_flag=True, help="Validate the values without changing anything.")
@click.option("-f", "--force", is_flag=True, help="Set keys that the broker does not know, too.")
@client_options
def set_configs(
    kind: str,
    name: str,
    pairs: Sequence[str],
    file: BinaryIO | None,
    dry_run: bool,
    force: bool,
    options: ClientOptions,
) -> None:
    """Set configs of a resource; its other configs do not change.

    As in Kafka, brokers accept keys that they do not know, for plugins. This command refuses such
    keys, because most of them are misspelled.
    """
    changes: dict[str, str | None] = {**_in_file(file), **config_values(pairs, "set")}
    if not changes:
        raise click.UsageError("Give KEY=VALUE or --file.")
    _alter(_resource(kind, name), changes, options, dry_run=dry_run, only_known=not force)


def _in_file(file: BinaryIO | None) -> dict[str, str]:
    if file is None:
        return {}
    from barnabas.settings.properties import PropertiesError, parse_properties

    try:
        return parse_properties(file.read().decode("latin-1"))
    except PropertiesError as error:
        raise click.UsageError(f"--file: {error}") from None


@configs.command(
    "unset", epilog="\b\nExamples:\n  barnabas configs unset topic flights retention.ms\n"
)
@type_argument
@click.argument("name")
@click.argument(
    "keys", nargs=-1, required=True, metavar="KEY...", shell_complete=complete_config_keys
)
@click.option("--dry-run", is_flag=True, help="Validate the change without applying it.")
@client_options
def unset_configs(
    kind: str, name: str, keys: Sequence[str], dry_run: bool, options: ClientOptions
) -> None:
    """Remove configs from a resource, so that the inherited or default values apply."""
    changes: dict[str, str | None] = dict.fromkeys(keys)
    _alter(_resource(kind, name), changes, options, dry_run=dry_run)


def _alter(
    resource: ConfigResource,
    changes: dict[str, str | None],
    options: ClientOptions,
    *,
    dry_run: bool,
    only_known: bool = False,
) -> None:
    with connected(options) as client:
        if resource.type is ResourceType.TOPIC:
            # Detect a wrong name first: the change itself is retried, because the topic may be new.
            client.describe_topics([resource.name], may_be_new=False)
        elif resource.type is ResourceType.BROKER and only_known:
            _check_broker_keys(client, resource, changes)
        with suggested_keys(_WORDS[resource.type], changes):
            client.admin.alter_configs(resource, changes, validate_only=dry_run)
        if options.as_json:
            echo_json(
                {
                    "type": _WORDS[resource.type],
                    "name": resource.name or _ALL_BROKERS,
                    "changes": changes,
                    "executed": not dry_run,
                }
            )
            return
        done = "would change" if dry_run else "changed"
        words = [f"{k} unset" if v is None else f"{k}={v}" for k, v in changes.items()]
        echo(f"{done} {resource}: {', '.join(words)}")


def _resource(kind: str, name: str) -> ConfigResource:
    resource_type = _TYPES[kind]
    if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        if name == _ALL_BROKERS and resource_type is ResourceType.BROKER:
            return ConfigResource(resource_type, "")
        if not name.isdigit():
            choice = "a broker's id" + (
                ' or "default"' if resource_type is ResourceType.BROKER else ""
            )
            raise click.UsageError(f"{kind} {name}: the name is {choice}")
    return ConfigResource(resource_type, name)
