"""Makes topics with records mirrors of the same topics in another cluster.

`links reverse` does this in the old source of a link, `links failback` in the cluster of the link
itself:

1. The topics become read-only, as paused mirrors. Nothing is fetched yet.
2. The leaders report that all records are committed and that no transaction is open.
3. The logs of both clusters are compared. Records that only the new mirrors have would be removed:
   without the operator's consent, the topics become ordinary topics again.
4. The mirrors become active. Each leader compares its log with the source's again, batch by batch,
   and begins to fetch.

All of it is in the metadata, so a command that was interrupted is repeated.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.common.printable import counted
from barnabas.cli.links.mirrors import change, find_lags, read_table
from barnabas.cli.links.unmirrored import find_unmirrored
from barnabas.client.errors import ClientError, UnknownTopicError
from barnabas.client.topic_partition import TopicPartition
from barnabas.replication.links.link_table import (
    NEXT_ON_TRUNCATION,
    ON_TRUNCATION,
    STATE,
    LinkTable,
    MirrorState,
    MirrorTopic,
    TruncationPolicy,
    setting_name,
)
from barnabas.replication.links.source_offsets import MIRROR_UNCOMMITTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.cli.links.unmirrored import Unmirrored
    from barnabas.client.admin.topics import TopicState
    from barnabas.client.facade import Client

_POLL_S = 0.2
# Leaders learn that their topics are read-only, and followers fetch the last records, within this
# time.
_SETTLE_S = 30.0
# All mirrors have compared their logs within this time, if their replicas are online.
_VERIFY_S = 120.0
# Partitions that a message names.
_NAMED = 10


class Clusters(NamedTuple):
    """The clusters of new mirrors."""

    # Has the topics to which clients produce.
    source: Client
    # Gets the mirrors.
    target: Client


class NewMirrors:
    """Topics of a cluster that become mirrors of the topics of another one."""

    def __init__(
        self,
        clusters: Clusters,
        link: str,
        topics: Sequence[str],
        settings: Mapping[str, str],
    ) -> None:
        """Look at the topics in both clusters. Nothing is changed yet.

        Args:
            clusters: both clusters.
            link: the name of the link in the cluster with the mirrors.
            topics: topics of the source. Those that it does not have are left out.
            settings: those of a link that does not exist yet; empty for an existing one.
        """
        self._source, self._target = clusters
        self._link = link
        self._settings = settings
        self._table: LinkTable = read_table(self._target)
        self._theirs = _describe(self._source, topics)
        self._own = _describe(self._target, topics)
        # The topics that become mirrors.
        self.topics = [name for name in topics if name in self._theirs]
        self._unmirrored: list[Unmirrored] = []
        # Whether topics are read-only by this command, or by an interrupted one.
        self.is_fenced = any(self._is_fenced(self._table.mirrors.get(name)) for name in topics)

    def _is_fenced(self, mirror: MirrorTopic | None) -> bool:
        """Whether an interrupted command has made a topic read-only."""
        link = self._table.links.get(self._link)
        if mirror is None or mirror.link != self._link or link is None:
            return False
        return mirror.state is MirrorState.PAUSED and link.is_paused

    @property
    def unmirrored(self) -> list[Unmirrored]:
        """The records that only the new mirrors have, as of the last `compare`."""
        return [each for each in self._unmirrored if each.records]

    def problem(self) -> str:
        """Return why the topics cannot become mirrors; empty if they can."""
        for name in self.topics:
            mirror, own = self._table.mirrors.get(name), self._own.get(name)
            if mirror is not None and mirror.is_read_only and mirror.link != self._link:
                return f"topic {name} is a mirror of link {mirror.link} there"
            count = len(self._theirs[name].partitions)
            if own is not None and len(own.partitions) > count:
                return (
                    f"topic {name} has {len(own.partitions)} partitions there, and its source has "
                    f"only {count}: add partitions to the source first"
                )
        return self._open_transactions()

    def _open_transactions(self) -> str:
        partitions = self._partitions()
        ends = self._target.admin.list_offsets(dict.fromkeys(partitions, "latest"))
        stable = self._target.admin.list_offsets(
            dict.fromkeys(partitions, "latest"), read_committed=True
        )
        for key in partitions:
            end, last = ends[key], stable[key]
            if isinstance(end, ClientError) or isinstance(last, ClientError):
                return f"the end of {key.topic}-{key.partition} is not known: it has no leader"
            if last.offset < end.offset:
                return (
                    f"a transaction is open in {key.topic}-{key.partition}: stop its producer, or "
                    "abort it by `barnabas transactions abort`"
                )
        return ""

    def _partitions(self) -> list[TopicPartition]:
        """Return the partitions that exist in the cluster of the mirrors."""
        return [
            TopicPartition(name, index)
            for name, topic in self._own.items()
            for index in topic.partitions
        ]

    def compare(self) -> None:
        """Find the records that only the new mirrors have."""
        configs = self._source.describe_topic_configs(list(self._own)) if self._own else {}
        compacted = {
            name
            for name, entries in configs.items()
            if any(
                each.name == "cleanup.policy" and "compact" in str(each.value) for each in entries
            )
        }
        self._unmirrored = find_unmirrored(
            self._target, self._source, self._partitions(), compacted
        )

    def fence(self) -> None:
        """Make the topics read-only. Clients cannot produce from now on."""
        changes: dict[str, str | None] = {
            setting_name(self._link, key): value for key, value in self._settings.items()
        }
        if self._settings:
            changes[setting_name(self._link, STATE)] = str(MirrorState.PAUSED)
        self.is_fenced = True
        change(self._target, changes | self._states(MirrorState.PAUSED))

    def unfence(self) -> None:
        """Make the topics again what they were."""
        changes: dict[str, str | None] = {
            setting_name(self._link, key): None for key in (*self._settings, STATE)
        }
        if not self._settings:
            changes = {}
        for name in self.topics:
            before, fenced = self._table.mirrors.get(name), self._mirror(name, MirrorState.PAUSED)
            if before is None or before.link != self._link:
                changes[fenced.config_name] = None
                continue
            if self._is_fenced(before):
                before = self._mirror(name, MirrorState.PROMOTED)
            changes[fenced.config_name] = before.config_value
        change(self._target, changes)

    def await_committed(self) -> str:
        """Wait until all leaders refuse producers, and all records are committed.

        Returns:
            Why that did not happen; empty if it did.
        """
        partitions = self._partitions()
        deadline = time.monotonic() + _SETTLE_S
        while True:
            found = self._target.admin.list_offsets(dict.fromkeys(partitions, MIRROR_UNCOMMITTED))
            left = []
            for key, each in found.items():
                if isinstance(each, ClientError) or each.offset:
                    left.append(key)
            if not left:
                return ""
            if time.monotonic() > deadline:
                return (
                    f"{counted(len(left), 'partition')}, for example {left[0].topic}-"
                    f"{left[0].partition}, has records that are not committed: see `barnabas "
                    "partitions --unwell` there, and whether transactions are open"
                )
            time.sleep(_POLL_S)

    def activate(self) -> None:
        """Begin to mirror. Records that only the new mirrors have are removed."""
        changes = self._states(MirrorState.ACTIVE)
        changes[setting_name(self._link, STATE)] = str(MirrorState.ACTIVE)
        link = self._table.links.get(self._link)
        if self._unmirrored:
            policy = TruncationPolicy.STOP
            if link is not None:
                # An interrupted command may have changed the policy.
                policy = link.next_on_truncation or link.on_truncation
            changes[setting_name(self._link, ON_TRUNCATION)] = str(TruncationPolicy.FOLLOW)
            changes[setting_name(self._link, NEXT_ON_TRUNCATION)] = str(policy)
        change(self._target, changes)

    def await_verified(self) -> str:
        """Wait until all leaders have compared their logs with the source's.

        Returns:
            Why that did not happen; empty if it did.
        """
        deadline = time.monotonic() + _VERIFY_S
        while True:
            mirrors = read_table(self._target).mirrors
            new = [mirrors[name] for name in self.topics if name in mirrors]
            stopped = [each for each in new if each.state is MirrorState.STOPPED]
            if stopped:
                return f"the mirror {stopped[0].topic} has stopped: {stopped[0].reason}"
            wanted = sum(len(topic.partitions) for topic in self._theirs.values())
            lags = find_lags(self._target, new)
            known = [each for each in lags if each.responded_ms is not None]
            if len(known) >= wanted:
                end_truncation(self._target, self._link)
                return ""
            if time.monotonic() > deadline:
                return (
                    f"{counted(wanted - len(known), 'partition')} of the new mirrors did not begin "
                    f"to fetch yet. The brokers go on: see `barnabas links describe {self._link}` "
                    "and `barnabas partitions --unwell` in that cluster, and then repeat the "
                    "command. All replicas have to be online to remove records"
                )
            time.sleep(_POLL_S)

    def _states(self, state: MirrorState) -> dict[str, str | None]:
        mirrors = [self._mirror(name, state) for name in self.topics]
        return {each.config_name: each.config_value for each in mirrors}

    def _mirror(self, name: str, state: MirrorState) -> MirrorTopic:
        return MirrorTopic(self._link, name, state, self._theirs[name].topic_id)


def end_truncation(client: Client, name: str) -> None:
    """Set the policy that a link had before its mirrors were allowed to remove records."""
    link = read_table(client).links.get(name)
    if link is None or link.next_on_truncation is None:
        return
    policy = link.next_on_truncation
    is_default = policy is TruncationPolicy.STOP
    change(
        client,
        {
            setting_name(name, ON_TRUNCATION): None if is_default else str(policy),
            setting_name(name, NEXT_ON_TRUNCATION): None,
        },
    )


def _describe(client: Client, topics: Sequence[str]) -> dict[str, TopicState]:
    """Return the topics that exist."""
    found: dict[str, TopicState] = {}
    if not topics:
        return found
    for name, topic in client.admin.describe_topic_partitions(topics).items():
        if not isinstance(topic, ClientError):
            found[name] = topic
        elif not isinstance(topic, UnknownTopicError):
            raise topic
    return found


def unmirrored_text(found: Sequence[Unmirrored]) -> str:
    """Return how many records of which partitions are not mirrored."""
    named = [
        f"{each.topic}-{each.partition}: {counted(each.records, 'record')} from offset "
        f"{each.offset} on"
        for each in found[:_NAMED]
    ]
    more = f"; and {counted(len(found) - _NAMED, 'more partition')}" if len(found) > _NAMED else ""
    return "; ".join(named) + more
