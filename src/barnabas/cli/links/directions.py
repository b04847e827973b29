"""Turns a link around: `links reverse` and `links failback`."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from barnabas.cli.common import terminal
from barnabas.cli.common.output import fail
from barnabas.cli.common.printable import counted
from barnabas.cli.links.mirrors import change, read_table
from barnabas.cli.links.promotion import (
    GroupOffsetsCheck,
    PromotionOptions,
    await_no_lag,
    promote_mirrors,
)
from barnabas.cli.links.reversal import (
    Clusters,
    NewMirrors,
    end_truncation,
    unmirrored_text,
)
from barnabas.cli.links.status import may_have_links
from barnabas.replication.links.link_table import (
    ACLS,
    BYTES_PER_SECOND,
    GROUP_SYNC_MS,
    GROUPS,
    REVERSED,
    SOURCE_CLUSTER_ID,
    STATE,
    TOPICS,
    MirrorState,
    setting_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.client.facade import Client
    from barnabas.replication.links.link_table import LinkDefinition, MirrorTopic


def reverse_link(
    here: Client,
    other: Client,
    link: LinkDefinition,
    own_config: Mapping[str, str],
    *,
    discard: bool,
) -> list[str]:
    """Make the topics of the source mirrors of the promoted topics here.

    Args:
        here: the cluster of the link.
        other: the source of the link.
        link: the link.
        own_config: the properties with which the other cluster connects to this one; empty if it
            has a link of this name already.
        discard: whether records that were never mirrored are removed from the old source.

    Returns:
        The names of the topics.
    """
    mirrors = list(read_table(here).mirrors_of(link.name))
    left = [each.topic for each in mirrors if each.is_read_only]
    if left:
        fail(f"{left[0]} is still a mirror of link {link.name}: promote all its mirrors first")
    topics = [each.topic for each in mirrors if each.state is MirrorState.PROMOTED]
    settings = _opposite_settings(here, other, link, own_config)
    new = NewMirrors(Clusters(here, other), link.name, topics, settings)
    if not new.topics:
        fail(f"link {link.name} has no promoted topics")
    with _unfenced_on_failure(new):
        _refuse(new.problem())
        new.compare()
        _accept_losses(new, discard=discard)
        new.fence()
        _refuse(new.await_committed())
        # Producers of the old source may have gone on until now.
        new.compare()
        _accept_losses(new, discard=discard, asks=False)
    new.activate()
    _refuse(new.await_verified())
    change(here, {setting_name(link.name, STATE): REVERSED})
    return new.topics


def fail_back(here: Client, other: Client, link: LinkDefinition) -> list[str]:
    """Promote the mirrors in the source of a reversed link, and mirror them here again.

    Returns:
        The names of the topics.
    """
    _check_cluster(other, link)
    own_id = here.describe_cluster().cluster_id
    table = read_table(other)
    opposite = table.links.get(link.name)
    if opposite is None or opposite.source_cluster_id != own_id:
        fail(
            f"the source of link {link.name} does not mirror this cluster: reverse the link first, "
            f"by `barnabas links reverse {link.name}`"
        )
    mirrors = [
        each for each in table.mirrors_of(link.name) if each.state is not MirrorState.CONFLICT
    ]
    new = NewMirrors(Clusters(other, here), link.name, [each.topic for each in mirrors], {})
    missing = [each.topic for each in mirrors if each.is_read_only and each.topic not in new.topics]
    if missing:
        fail(f"{missing[0]} is not created yet in the source: repeat the command in some seconds")
    if not new.topics:
        fail(f"link {link.name} has no topics to move back")
    # If the promotion has begun, clients may write there: then the topics here stay read-only.
    has_begun = any(not each.is_mirrored for each in mirrors)
    with nullcontext() if has_begun else _unfenced_on_failure(new):
        _refuse(new.problem())
        new.fence()
        _refuse(new.await_committed())
        _bring_up_to_date(other, opposite, mirrors)
    # An interrupted reversal may have left it.
    end_truncation(other, link.name)
    left = [each for each in mirrors if each.is_read_only]
    if left:
        promote_mirrors(other, opposite, left)
    new.activate()
    _refuse(new.await_verified())
    change(other, {setting_name(link.name, STATE): REVERSED})
    return new.topics


def _bring_up_to_date(client: Client, link: LinkDefinition, mirrors: list[MirrorTopic]) -> None:
    """Wait until mirrors have all records, and the offsets of all groups."""
    left = [each for each in mirrors if each.is_read_only]
    fetched = [each for each in left if each.state is not MirrorState.PROMOTING]
    if not fetched:
        return
    if link.is_paused or any(each.state is not MirrorState.ACTIVE for each in fetched):
        fail(
            f"link {link.name} or a mirror of it is not active in the other cluster: see `barnabas "
            f"links describe {link.name}` there, and resume it"
        )
    options = PromotionOptions([each.topic for each in fetched])
    await_no_lag(client, link, fetched, options)
    if link.groups is not None:
        GroupOffsetsCheck(client, link, options.names).await_copied(options)


def _check_cluster(other: Client, link: LinkDefinition) -> None:
    """Fail unless the other cluster is the source of the link, and has links itself."""
    cluster = other.describe_cluster()
    if link.source_cluster_id not in ("", cluster.cluster_id):
        fail(
            f"the source of link {link.name} is cluster {link.source_cluster_id}, and these "
            f"properties lead to cluster {cluster.cluster_id}"
        )
    if not may_have_links(other, cluster.brokers):
        fail(
            f"the source of link {link.name} cannot mirror topics, since its brokers are not "
            "Barnabas. To go back to it, copy the new records there by MirrorMaker 2, with other "
            "offsets; or replace its brokers by Barnabas first, node by node on their directories"
        )


def _opposite_settings(
    here: Client, other: Client, link: LinkDefinition, own_config: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of the link that the other cluster needs; empty if it has that link."""
    _check_cluster(other, link)
    own_id = here.describe_cluster().cluster_id or ""
    opposite = read_table(other).links.get(link.name)
    if opposite is not None:
        if opposite.source_cluster_id != own_id:
            fail(
                f"the source has another link {link.name}: delete it there, or give it another name"
            )
        return {}
    if not own_config.get("bootstrap.servers"):
        fail(
            "--config is missing: a file of properties with which the brokers of the old source "
            "connect to this cluster, with bootstrap.servers"
        )
    settings = {
        TOPICS: "" if link.topics is None else link.topics.text,
        GROUPS: "" if link.groups is None else link.groups.text,
        GROUP_SYNC_MS: str(link.group_sync_ms),
        SOURCE_CLUSTER_ID: own_id,
        **own_config,
    }
    if link.copies_acls:
        settings[ACLS] = "true"
    if link.bytes_per_second is not None:
        settings[BYTES_PER_SECOND] = str(link.bytes_per_second)
    return settings


def _accept_losses(new: NewMirrors, *, discard: bool, asks: bool = True) -> None:
    """Fail if records would be lost, unless the operator wants to discard them."""
    found = new.unmirrored
    if not found:
        return
    text = unmirrored_text(found)
    count = counted(sum(each.records for each in found), "record")
    if not discard:
        fail(
            f"{count} of the old source were never mirrored: {text}. Read them there if they are "
            "needed, for example by `barnabas consume --from`; --discard removes them"
        )
    if asks:
        terminal.confirm(f"Remove {count} of the old source, which were never mirrored? {text}")


@contextmanager
def _unfenced_on_failure(new: NewMirrors) -> Iterator[None]:
    """Make topics writable again if the command fails before it has changed more."""
    is_done = False
    try:
        yield
        is_done = True
    finally:
        if not is_done and new.is_fenced:
            new.unfence()


def _refuse(problem: str) -> None:
    """Fail if there is a problem."""
    if problem:
        fail(problem)
