"""Links: topics mirrored from other clusters, with their lag, groups and changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from starlette.exceptions import HTTPException
from starlette.routing import Route

from barnabas.cli.common.printable import counted, some
from barnabas.cli.links.mirrors import (
    change as change_settings,
    delete_link,
    read_table,
    set_states,
)
from barnabas.cli.links.promotion import (
    PromotionError,
    PromotionOptions,
    begin_promotion,
    prepare_promotion,
)
from barnabas.cli.links.status import (
    GroupCopy,
    LinkStatus,
    MirrorStatus,
    find_copies,
    load_link,
    load_links,
    mirror_statuses,
)
from barnabas.cli.why.link_reasons import link_reasons
from barnabas.console.access.users import Role
from barnabas.console.console import console_of
from barnabas.console.forms import FormError, query_fields
from barnabas.console.navigation import LINKS_PAGE, Entry
from barnabas.console.pages.change import Done, Preview, change
from barnabas.console.rendering import link as address
from barnabas.console.tables import Column, columns_of, tabulate
from barnabas.replication.links.link_table import STATE, MirrorState, setting_name

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields
    from barnabas.replication.links.link_table import LinkDefinition, MirrorTopic

_STATES = ("active", "paused")
_NAMES_SHOWN = 5
# A page waits at most this long for the last records of mirrors, and for the offsets of groups.
# Brokers report twice a second.
_PROMOTION_WAIT_S = 4.0

_LINKS: tuple[Column[LinkStatus], ...] = (
    Column("link", "Link", lambda each: each.link.name),
    Column("state", "State", lambda each: each.state),
    Column("source", "Source", lambda each: each.source, "mono"),
    Column("active", "Mirrors", lambda each: each.count(MirrorState.ACTIVE), "number"),
    Column("paused", "Paused", lambda each: each.count(MirrorState.PAUSED), "number"),
    Column("stopped", "Stopped", lambda each: each.count(MirrorState.STOPPED), "number"),
    Column("promoted", "Promoted", lambda each: each.count(MirrorState.PROMOTED), "number"),
    Column("conflict", "Conflicts", lambda each: each.count(MirrorState.CONFLICT), "number"),
    Column("lag", "Lag", lambda each: each.lag, numeric=True),
    Column("behind", "Behind", lambda each: each.behind_s),
)


class MirrorRow(NamedTuple):
    """A mirror topic and the time of the reading (ms)."""

    status: MirrorStatus
    now_ms: float

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self.status.mirror.topic

    @property
    def state(self) -> str:
        """The state of the mirror."""
        return str(self.status.mirror.state)

    @property
    def behind_ms(self) -> float | None:
        """Time since the mirror had all records (ms); None if not known."""
        found = self.status.behind_s(self.now_ms)
        return None if found is None else found * 1000

    @property
    def last_record_ms(self) -> int | None:
        """The largest timestamp of its records; None without records."""
        times = [each.last_record_ms or -1 for each in self.status.partitions]
        return max((each for each in times if each >= 0), default=None)


_MIRRORS: tuple[Column[MirrorRow], ...] = (
    Column("topic", "Topic", lambda row: row.topic),
    Column("state", "State", lambda row: row.state),
    Column("partitions", "Partitions", lambda row: len(row.status.partitions), "number"),
    Column("lag", "Lag", lambda row: row.status.lag, numeric=True),
    Column("behind", "Behind", lambda row: row.behind_ms),
    Column("last", "Last record", lambda row: row.last_record_ms, "moment"),
    Column("reason", "Reason", lambda row: row.status.mirror.reason, "text"),
    Column("change", "Change"),
)
_GROUPS: tuple[Column[GroupCopy], ...] = (
    Column("group", "Group", lambda row: row.group),
    Column("state", "State", lambda row: row.state),
    Column("copied", "Last copy", lambda row: row.copied_ms),
)


async def show_links(request: Request) -> Response:
    """Show the links of the cluster."""
    console = console_of(request)
    found = await console.cluster.call(lambda client: load_links(client, with_groups=False))
    table = tabulate(
        request, _LINKS, found, text=lambda each: f"{each.link.name} {each.source}", sort="link"
    )
    return console.page(
        request, "links.html", table=table, may_have_links=console.cluster.links.may_have
    )


async def show_link(request: Request) -> Response:
    """Show one link with its mirrors and groups."""
    console, name = console_of(request), query_fields(request).required("name")

    def load(client: Client) -> LinkStatus | None:
        table = read_table(client)
        return load_link(client, table, name) if name in table.links else None

    status = await console.cluster.call(load)
    if status is None:
        raise HTTPException(404, f"This cluster has no link {name}.")
    rows = [MirrorRow(each, status.now_ms) for each in status.mirrors]
    columns = _MIRRORS if console.role_of(request) >= Role.OPERATOR else _MIRRORS[:-1]
    return console.page(
        request,
        "link.html",
        found=status,
        reasons=link_reasons(status),
        table=tabulate(
            request, columns, rows, text=lambda row: f"{row.topic} {row.state}", sort="topic"
        ),
        groups=tabulate(
            request,
            _GROUPS,
            status.groups,
            text=lambda row: row.group,
            sort="group",
            prefix="g",
        ),
    )


class _Chosen(NamedTuple):
    """The link of a form, and topics of it."""

    link: LinkDefinition
    mirrors: list[MirrorTopic]


def _link_of(client: Client, form: Fields) -> _Chosen:
    """Return the link that a form names, with all its topics.

    Raises:
        FormError: There is no such link.
    """
    table, name = read_table(client), form.required("name")
    found = table.links.get(name)
    if found is None:
        raise FormError(f"there is no link {name} any more", "name")
    return _Chosen(found, list(table.mirrors_of(name)))


def _chosen(client: Client, form: Fields) -> _Chosen:
    """Return what a form names: a link, with one of its mirrors or all of them.

    Raises:
        FormError: There is no such link, or the topic is not mirrored by it.
    """
    found = _link_of(client, form)
    mirrors = [each for each in found.mirrors if each.is_mirrored]
    topic = form.stripped("topic")
    if topic:
        mirrors = [each for each in mirrors if each.topic == topic]
        if not mirrors:
            raise FormError(f"link {found.link.name} does not mirror {topic} now", "topic")
    return _Chosen(found.link, mirrors)


def _page(name: str) -> str:
    return address("/link", name=name)


def _to_change(client: Client, form: Fields) -> tuple[_Chosen, str]:
    """Return the link or mirror whose state a form changes, and the new state.

    Raises:
        FormError: The link is reversed.
    """
    chosen, state = _chosen(client, form), form.one_of("state", _STATES)
    if chosen.link.is_reversed:
        raise FormError(f"link {chosen.link.name} is reversed: its source mirrors this cluster")
    return chosen, state


def preview_state(client: Client, form: Fields) -> Preview:
    """Return the states of a link, or of a mirror, before and after."""
    chosen, state = _to_change(client, form)
    verb = "Pause" if state == "paused" else "Resume"
    if form.has("topic"):
        rows: list[tuple[object, ...]] = [
            (each.topic, str(each.state), state) for each in chosen.mirrors
        ]
        subject = f"the mirror {form.stripped('topic')}"
    else:
        now = "paused" if chosen.link.is_paused else "active"
        rows = [(chosen.link.name, now, state)]
        subject = f"link {chosen.link.name}"
    warning = (
        "Nothing is fetched then, and clients still cannot write to mirrors."
        if state == "paused"
        else "A stopped mirror stops again if its source still has another log."
    )
    return Preview(
        f"{verb} {subject}?", f"{verb} it", columns_of("Name", "Now", "After"), rows, warning
    )


def set_state(client: Client, form: Fields) -> Done:
    """Pause or resume a link, or one of its mirrors."""
    chosen, state = _to_change(client, form)
    name, topic = chosen.link.name, form.stripped("topic")
    verb = "paused" if state == "paused" else "resumed"
    if topic:
        set_states(client, chosen.mirrors, MirrorState(state))
        return Done(f"{verb} the mirror {topic} of link {name}", _page(name))
    change_settings(client, {setting_name(name, STATE): state})
    return Done(f"{verb} link {name}", _page(name))


def _to_promote(client: Client, form: Fields) -> tuple[_Chosen, list[MirrorStatus]]:
    """Return the mirrors to promote.

    Raises:
        FormError: There are none, or records are missing and the user does not accept that.
    """
    chosen = _chosen(client, form)
    if not chosen.mirrors:
        raise FormError(f"link {chosen.link.name} has no mirrors to promote")
    statuses = mirror_statuses(client, chosen.mirrors)
    waiting = [each.mirror.topic for each in statuses if each.lag != 0]
    if waiting and not form.has("force"):
        raise FormError(
            f"{some(waiting, _NAMES_SHOWN)}: records of the source are missing, or the lag is not "
            "known. Stop the producers of the source and wait until the lag is 0, or promote "
            "without the missing records"
        )
    return chosen, statuses


def preview_promotion(client: Client, form: Fields) -> Preview:
    """Return the partitions that clients may write to then, with the records that are missing."""
    chosen, statuses = _to_promote(client, form)
    rows: list[tuple[object, ...]] = [
        (each.mirror.topic, lag.partition, lag.end, lag.lag)
        for each in statuses
        for lag in each.partitions
    ]
    warning = "This cannot be undone. The producers of the source must have stopped."
    if chosen.link.groups is not None:
        copies = [each for each in find_copies(client, chosen.link) if not each.has_members]
        warning += (
            f" The offsets of {counted(len(copies), 'group')} are copied once more before."
            if not form.has("force")
            else f" The offsets of {counted(len(copies), 'group')} stay as of their last copies, "
            "which the page of the link shows."
        )
    what = counted(len(statuses), "mirror")
    return Preview(
        f"Make {what} of link {chosen.link.name} ordinary topics?",
        "Promote",
        columns_of(
            "Topic",
            ("Partition", "number"),
            ("Mirror end", "number"),
            ("Missing records", "number", "not known"),
        ),
        rows,
        warning,
    )


def promote(client: Client, form: Fields) -> Done:
    """Make mirrors ordinary topics, to which clients write, with the checks of the command."""
    chosen, statuses = _to_promote(client, form)
    missing: list[str] = []
    names = [form.stripped("topic")] if form.stripped("topic") else []
    options = PromotionOptions(
        names,
        form.has("force"),
        missing.append,
        _PROMOTION_WAIT_S,
        'check "Without missing records" to promote',
    )
    try:
        prepare_promotion(client, chosen.link, chosen.mirrors, options)
    except PromotionError as error:
        raise FormError(str(error)) from None
    begin_promotion(client, chosen.mirrors)
    name = chosen.link.name
    topics = some([each.mirror.topic for each in statuses], _NAMES_SHOWN)
    text = f"began to promote {counted(len(statuses), 'topic')} of link {name}: {topics}"
    if options.force and missing:
        text += f". {some(missing, _NAMES_SHOWN)}"
    return Done(text, _page(name))


def _to_delete(client: Client, form: Fields) -> _Chosen:
    """Return the link to delete, with all its topics.

    Raises:
        FormError: It has mirrors, which have to be promoted before.
    """
    name = form.required("name")
    form.confirm(name)
    found = _link_of(client, form)
    left = sum(each.is_read_only for each in found.mirrors)
    if left:
        raise FormError(f"link {name} has {counted(left, 'mirror')}: promote them first")
    return found


def preview_deletion(client: Client, form: Fields) -> Preview:
    """Return the topics that are not mirrored any more."""
    found, mirrors = _to_delete(client, form)
    rows: list[tuple[object, ...]] = [(each.topic, str(each.state)) for each in mirrors]
    return Preview(
        f"Delete the link {found.name} with its settings?",
        "Delete it",
        columns_of("Topic", "State now"),
        rows,
        "The topics stay, and clients write to them.",
    )


def delete(client: Client, form: Fields) -> Done:
    """Delete a link. Its topics stay, as ordinary topics."""
    found, mirrors = _to_delete(client, form)
    delete_link(client, found, mirrors)
    return Done(f"deleted link {found.name}", LINKS_PAGE)


NAVIGATION = [Entry("Topics", "Links", LINKS_PAGE, ("/link",))]
ROUTES = [
    Route(LINKS_PAGE, show_links),
    Route("/link", show_link),
    change("/link/state", set_state, preview_state),
    change("/link/promote", promote, preview_promotion),
    change("/link/delete", delete, preview_deletion),
]
