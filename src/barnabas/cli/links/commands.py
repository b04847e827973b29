"""`barnabas links`: topics mirrored from another cluster, with their offsets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common import terminal
from barnabas.cli.common.output import (
    ClientOptions,
    client_options,
    connected,
    fail,
)
from barnabas.cli.common.printable import counted, echo
from barnabas.cli.common.tables import header_option
from barnabas.cli.common.units import Size
from barnabas.cli.links.directions import fail_back, reverse_link
from barnabas.cli.links.display import echo_link, echo_links
from barnabas.cli.links.mirrors import (
    change,
    delete_link,
    read_settings,
    read_table,
    set_states,
)
from barnabas.cli.links.promotion import PromotionOptions, prepare_promotion, promote_mirrors
from barnabas.cli.links.status import load_link, load_links
from barnabas.replication.links.link_table import (
    ACLS,
    BYTES_PER_SECOND,
    GROUP_SYNC_MS,
    GROUPS,
    LINK_NAME,
    ON_TRUNCATION,
    SOURCE_CLUSTER_ID,
    STATE,
    TOPICS,
    MirrorState,
    TruncationPolicy,
    setting_name,
)
from barnabas.settings.pattern import Pattern, PatternError
from barnabas.settings.properties import PropertiesError, parse_properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.replication.links.link_table import LinkDefinition, LinkTable, MirrorTopic

EXAMPLES = """\b
Examples:
  barnabas links create prod --config prod.properties --topics 'orders.*' --groups '.*'
  barnabas links list
  barnabas links describe prod
  barnabas links pause prod
  barnabas links promote prod --topic orders.eu

\b
A link is in the cluster that has the mirrors. Its mirror topics have the records of the topics of
the same names in the source cluster, with the same offsets, and are read-only until they are
promoted. The patterns are regular expressions that match whole names.
"""
topics_option = click.option(
    "--topic", "names", multiple=True, metavar="TOPIC", help="Only this mirror; may be repeated."
)

_PROPERTIES_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

truncation_option = click.option(
    "--on-truncation",
    type=click.Choice([str(each) for each in TruncationPolicy]),
    help="What all mirrors of the link do if the source has lost records, as by an unclean "
    "election: stop, which is the default of a new link, or remove the records too.",
)


@click.group(epilog=EXAMPLES)
def links() -> None:
    """Mirror topics of another cluster, with their offsets."""


@links.command("create", epilog=EXAMPLES.partition("barnabas links list")[0].rstrip() + "\n")
@click.argument("name")
@click.option(
    "--config",
    "source_file",
    required=True,
    metavar="FILE",
    type=_PROPERTIES_FILE,
    help="Properties of a client of the source cluster, with bootstrap.servers.",
)
@click.option("--topics", "topics", default="", metavar="REGEX", help="Topics to mirror.")
@click.option("--groups", "groups", default="", metavar="REGEX", help="Groups to copy offsets of.")
@click.option("--acls", is_flag=True, help="Copy the ACLs of mirrored topics and groups.")
@truncation_option
@click.option("--throttle", type=Size(min=1), help="Bytes per second of each broker.")
@click.option("--group-interval", type=int, metavar="MS", help="Interval of the copies of offsets.")
@click.option("--no-check", is_flag=True, help="Do not connect to the source cluster from here.")
@client_options
def create(
    name: str,
    source_file: Path,
    topics: str,
    groups: str,
    options: ClientOptions,
    **given: Any,
) -> None:
    """Create a link, which begins to mirror the topics that match."""
    if not LINK_NAME.fullmatch(name):
        raise click.UsageError(f"{name!r}: the name of a link has letters, digits, - and _ only")
    if not topics:
        raise click.UsageError("--topics is missing: '.*' mirrors all topics")
    for pattern in (topics, groups):
        try:
            Pattern(pattern)
        except PatternError as error:
            raise click.UsageError(f"{pattern}: {error}") from None
    client_config = _properties(source_file)
    settings: dict[str, str] = {TOPICS: topics, GROUPS: groups, STATE: "active", **client_config}
    if given["throttle"]:
        settings[BYTES_PER_SECOND] = str(given["throttle"])
    if given["group_interval"]:
        settings[GROUP_SYNC_MS] = str(given["group_interval"])
    if given["on_truncation"]:
        settings[ON_TRUNCATION] = given["on_truncation"]
    if given["acls"]:
        settings[ACLS] = "true"
    source_id = "" if given["no_check"] else _source_cluster_id(client_config, given["acls"])
    if source_id:
        settings[SOURCE_CLUSTER_ID] = source_id
    with connected(options) as client:
        if given["acls"]:
            client.admin.describe_acls()
        known = read_settings(client, name)
        if known:
            # The command may have been interrupted. Secrets are not known, so not compared.
            other = [key for key in settings if known.get(key, "") not in (settings[key], None)]
            if other:
                fail(
                    f"link {name} exists already, with another value of {', '.join(other)}; delete "
                    "it first, or choose another name"
                )
            echo(f"link {name} exists already, with these settings")
            return
        if source_id and client.describe_cluster().cluster_id == source_id:
            fail("the source is this cluster itself; give the address of another cluster")
        change(client, {setting_name(name, key): value for key, value in settings.items()})
    echo(f"created link {name}")


def _properties(file: Path) -> dict[str, str]:
    try:
        return parse_properties(file.read_text())
    except PropertiesError as error:
        raise click.UsageError(f"{file}: {error}") from None


def _source_cluster_id(config: Mapping[str, str], needs_acls: bool) -> str:
    """Connect to the source as the link will do. Return the id of the cluster.

    Fails if ACLs are needed and cannot be described.
    """
    if not config.get("bootstrap.servers"):
        raise click.UsageError("the file has no bootstrap.servers of the source cluster")
    with connected(_options(config)) as source:
        if needs_acls:
            source.admin.describe_acls()
        return source.describe_cluster().cluster_id or ""


def _options(config: Mapping[str, str]) -> ClientOptions:
    """Return options that connect as a client with this config."""
    properties = [f"{key}={value}" for key, value in config.items() if key != "bootstrap.servers"]
    return ClientOptions(config["bootstrap.servers"], properties)


@links.command("list", epilog="\b\nExamples:\n  barnabas links list --json\n")
@header_option
@client_options
def list_links(options: ClientOptions) -> None:
    """List the links of the cluster with their mirrors."""
    with connected(options) as client:
        found = load_links(client, with_groups=False)
    echo_links(found, as_json=options.as_json)


@links.command("describe", epilog="\b\nExamples:\n  barnabas links describe prod\n")
@click.argument("name")
@header_option
@client_options
def describe(name: str, options: ClientOptions) -> None:
    """Show the mirrors of a link with their lag, conflicts, and the groups that it copies."""
    with connected(options) as client:
        table = read_table(client)
        _find(table, name)
        found = load_link(client, table, name)
    echo_link(found, as_json=options.as_json)


@links.command("pause", epilog="\b\nExamples:\n  barnabas links pause prod --topic orders.eu\n")
@click.argument("name")
@topics_option
@client_options
def pause(name: str, names: Sequence[str], options: ClientOptions) -> None:
    """Stop fetching, of the whole link or of some mirrors. They stay read-only."""
    _set_state(name, names, MirrorState.PAUSED, options)
    echo(f"paused {', '.join(names) or f'link {name}'}")


@links.command("resume", epilog="\b\nExamples:\n  barnabas links resume prod\n")
@click.argument("name")
@topics_option
@truncation_option
@client_options
def resume(
    name: str, names: Sequence[str], on_truncation: str | None, options: ClientOptions
) -> None:
    """Fetch again, of the whole link or of some mirrors.

    A stopped mirror stops again if its source still has another log. With --on-truncation follow,
    it removes the records that the source has lost.
    """
    _set_state(name, names, MirrorState.ACTIVE, options, on_truncation)
    echo(f"resumed {', '.join(names) or f'link {name}'}")


def _set_state(
    name: str,
    names: Sequence[str],
    state: MirrorState,
    options: ClientOptions,
    on_truncation: str | None = None,
) -> None:
    """Set the state of the mirrors with these names, or without names that of the link."""
    with connected(options) as client:
        table = read_table(client)
        link = _find(table, name)
        if link.is_reversed:
            fail(
                f"link {name} is reversed, its source mirrors this cluster: `barnabas links "
                f"failback {name}` moves the topics back"
            )
        if on_truncation:
            change(client, {setting_name(name, ON_TRUNCATION): on_truncation})
        if names:
            set_states(client, _chosen_mirrors(table, name, names), state)
        else:
            change(client, {setting_name(name, STATE): str(state)})


@links.command(
    "promote",
    epilog="\b\nExamples:\n  barnabas links promote prod\n  barnabas links promote prod --force\n",
)
@click.argument("name")
@topics_option
@click.option(
    "--force", is_flag=True, help="Do not wait; show which records and group offsets are missing."
)
@client_options
def promote(name: str, names: Sequence[str], force: bool, options: ClientOptions) -> None:
    """Make mirrors ordinary topics, to which clients produce.

    Stop the producers of the source first: without --force, the command waits until the mirrors
    have all records of the source, and all group offsets at the source are committed here. Open
    transactions of the source are aborted.
    """
    with connected(options) as client:
        table = read_table(client)
        link = _find(table, name)
        chosen = _chosen(table, name, names)
        topics = [each.topic for each in chosen if each.state is not MirrorState.CONFLICT]
        left = [each for each in chosen if each.is_read_only]
        if not topics:
            fail(f"link {name} has no mirrors to promote")
        if left:
            prepare_promotion(client, link, left, PromotionOptions(names, force))
            promote_mirrors(client, link, left)
    if left:
        echo(f"promoted {counted(len(left), 'topic')}: {', '.join(each.topic for each in left)}")
    else:
        echo(f"promoted already: {', '.join(topics)}")


def _source_options(link: LinkDefinition, source_file: Path | None) -> ClientOptions:
    """Return options that connect to the source of a link."""
    config = dict(link.client) if source_file is None else _properties(source_file)
    # Configs are described without their secrets.
    hidden = [key for key, value in config.items() if not value]
    if hidden or not config.get("bootstrap.servers"):
        what = hidden[0] if hidden else "bootstrap.servers"
        raise click.UsageError(
            f"the value of {what} is not known here: give --source, a file of properties of a "
            "client of the source, which may change its configs"
        )
    return _options(config)


source_option = click.option(
    "--source",
    "source_file",
    metavar="FILE",
    type=_PROPERTIES_FILE,
    help="Properties of a client of the source, which may change its configs.  [default: those of "
    "the link, if they have no secrets]",
)


@links.command(
    "reverse",
    epilog="\b\nExamples:\n  barnabas links reverse prod --config here.properties\n",
)
@click.argument("name")
@click.option(
    "--config",
    "own_file",
    metavar="FILE",
    type=_PROPERTIES_FILE,
    help="Properties with which the brokers of the source connect to this cluster; needed the "
    "first time.",
)
@source_option
@click.option("--discard", is_flag=True, help="Remove records of the source without a mirror.")
@terminal.yes_option
@client_options
def reverse(
    name: str,
    own_file: Path | None,
    source_file: Path | None,
    discard: bool,
    options: ClientOptions,
) -> None:
    """Make the topics of the source mirrors of the promoted topics here.

    Stop the producers of the source first. The source has to be Barnabas. It gets a link of the
    same name, and its topics become read-only. If it has records that were never mirrored, the
    command fails and shows how many of which partitions; --discard removes them. An interrupted
    command is repeated.
    """
    own_config = {} if own_file is None else _properties(own_file)
    with connected(options) as client:
        link = _find(read_table(client), name)
        with connected(_source_options(link, source_file)) as source:
            topics = reverse_link(client, source, link, own_config, discard=discard)
    echo(f"reversed link {name}: the source mirrors {', '.join(topics)}")


@links.command("failback", epilog="\b\nExamples:\n  barnabas links failback prod\n")
@click.argument("name")
@source_option
@client_options
def failback(name: str, source_file: Path | None, options: ClientOptions) -> None:
    """Move the topics of a reversed link back to its source, and mirror them here again.

    Stop the producers of this cluster first. The topics become read-only here; the source gets all
    records and the offsets of all groups, and its mirrors are promoted; then this cluster mirrors
    them. An interrupted command is repeated.
    """
    with connected(options) as client:
        link = _find(read_table(client), name)
        with connected(_source_options(link, source_file)) as source:
            topics = fail_back(client, source, link)
    echo(f"moved {counted(len(topics), 'topic')} back to the source: {', '.join(topics)}")


@links.command("delete", epilog="\b\nExamples:\n  barnabas links delete prod\n")
@click.argument("name")
@click.option("--force", is_flag=True, help="Even if mirrors are not promoted: they become topics.")
@terminal.yes_option
@client_options
def delete(name: str, force: bool, options: ClientOptions) -> None:
    """Delete a link. Its topics stay, as ordinary topics. Asks for confirmation on a terminal."""
    with connected(options) as client:
        table = read_table(client)
        link = _find(table, name)
        mirrors = list(table.mirrors_of(name))
        left = [each for each in mirrors if each.is_read_only]
        if left and not force:
            fail(
                f"link {name} has {counted(len(left), 'mirror')}, for example {left[0].topic}: "
                "promote them first, or give --force to make them ordinary topics as they are"
            )
        terminal.confirm(
            f"Delete link {name} with its settings? {counted(len(mirrors), 'topic')} will not be "
            "mirrored any more."
        )
        if left:
            promote_mirrors(client, link, left)
        delete_link(client, link, mirrors)
    echo(f"deleted link {name}")


def _find(table: LinkTable, name: str) -> LinkDefinition:
    link = table.links.get(name)
    if link is None:
        known = ", ".join(table.links) or "none"
        fail(f"there is no link {name}; the cluster has: {known}")
    return link


def _chosen(table: LinkTable, link: str, names: Sequence[str]) -> list[MirrorTopic]:
    """Return the mirrors with these names, or all mirrors of the link."""
    mirrors = {each.topic: each for each in table.mirrors_of(link)}
    for name in names:
        if name not in mirrors:
            fail(f"link {link} has no mirror {name}")
    return [mirrors[name] for name in names] or list(mirrors.values())


def _chosen_mirrors(table: LinkTable, link: str, names: Sequence[str]) -> list[MirrorTopic]:
    """Return the mirrors with these names, which follow their source or would."""
    chosen = _chosen(table, link, names)
    for each in chosen:
        if not each.is_mirrored:
            fail(f"{each.topic} is not mirrored now, its state is {each.state}")
    return chosen
