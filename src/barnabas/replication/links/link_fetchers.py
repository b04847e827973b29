"""The fetchers of one link: one for each broker of the source cluster that leads partitions.

They are the fetchers of followers (`ReplicaFetcher`), with the mirrors of this broker in the place
of followed replicas, and with the connections of a client in the place of those of a broker.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.replication.fetcher.fetch_states import InitialFetchState
from barnabas.replication.fetcher.leader_endpoint import FetcherKey, LeaderEndpoint
from barnabas.replication.fetcher.replica_fetcher import FetcherDependencies, ReplicaFetcher
from barnabas.replication.links.mirror_replicas import Mirror, MirrorReplicas, SourcePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.replication.fetcher.leader_channels import LeaderChannels
    from barnabas.replication.partition.partition import Partition
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class LinkFetchers:
    """Fetches the mirrors of one link that this broker leads."""

    def __init__(
        self,
        name: str,
        channels: LeaderChannels,
        replicas: MirrorReplicas,
        dependencies: FetcherDependencies,
    ) -> None:
        """Create the link without mirrors.

        Args:
            name: the name of the link.
            channels: opens connections to brokers of the source.
            replicas: receives the mirrors.
            dependencies: those of the fetchers. Their `local` is `replicas`.
        """
        self._name = name
        self._channels = channels
        self._replicas = replicas
        self._dependencies = dependencies
        # By broker id in the source cluster.
        self._fetchers: dict[int, ReplicaFetcher] = {}

    @property
    def mirrors(self) -> dict[TopicPartition, Mirror]:
        """The mirrors that this broker leads."""
        return self._replicas.mirrors

    def follow_truncation(self, follows: bool) -> None:
        """Set whether mirrors truncate their logs where the source has lost records."""
        self._replicas.follows_truncation = follows

    def lead(self, partitions: Iterable[Partition]) -> None:
        """Mirror these partitions, and no others.

        A mirror of an earlier leader epoch is replaced: this broker may have followed in between.
        """
        wanted = {each.topic_partition: each for each in partitions}
        mirrors = self.mirrors
        gone = [
            key
            for key, mirror in mirrors.items()
            if key not in wanted
            or wanted[key] is not mirror.partition
            or wanted[key].leader_epoch != mirror.leader_epoch
        ]
        self._remove(gone)
        for key in gone:
            del mirrors[key]
        for key, partition in wanted.items():
            if key not in mirrors:
                mirrors[key] = Mirror(partition)

    def follow(self, find: Callable[[TopicPartition], SourcePlace | None]) -> None:
        """Fetch each mirror from the current leader of its source.

        Args:
            find: returns the leader of a partition in the source cluster, or None.
        """
        moved: dict[int, dict[TopicPartition, InitialFetchState]] = {}
        for key, mirror in self.mirrors.items():
            place = None if mirror.problem else find(key)
            if place == mirror.place:
                continue
            if place is not None:
                self._compare_after_election(mirror, place)
            mirror.place = place
            if place is None:
                self._remove([key])
                continue
            moved.setdefault(place.leader_id, {})[key] = InitialFetchState(
                place.topic_id, place.leader_id, place.leader_epoch, mirror.fetch_offset, True
            )
        for leader_id, group in moved.items():
            self._remove(group)
            self._fetcher(leader_id).add(group)
        self._close_unused()
        if self._replicas.has_waiting:
            self._replicas.has_waiting = any(each.is_waiting for each in self.mirrors.values())

    def _compare_after_election(self, mirror: Mirror, place: SourcePlace) -> None:
        """Compare the last batch with a new leader of the source, which may be a mirror itself.

        Its earlier leader may have replaced records in one leader epoch, so that the epochs do not
        show it. Older sources, which cannot mirror, are asked for the end of the last epoch.
        """
        known = mirror.source_leader_epoch
        mirror.source_leader_epoch = place.leader_epoch
        if known not in (None, place.leader_epoch) and self._dependencies.settings.finds_divergence:
            mirror.compare_again()

    def note_responses(self) -> None:
        """Note when the sources have last responded: responses omit unchanged partitions."""
        for key, mirror in self.mirrors.items():
            fetcher = None if mirror.place is None else self._fetchers.get(mirror.place.leader_id)
            state = None if fetcher is None else fetcher.states.get(key)
            if fetcher is None or state is None or mirror.fetched_ms < 0:
                continue
            if state.may_change_fetchers and not state.errors_in_a_row:
                mirror.note_unchanged(fetcher.answered_ms)

    def retry_failed(self) -> None:
        """Forget the places of partitions whose fetching has failed: `follow` starts them again."""
        failed = list(self._dependencies.failed)
        self._dependencies.failed.discard(failed)
        for key in failed:
            if key in self.mirrors:
                self.mirrors[key].place = None

    @property
    def has_errors(self) -> bool:
        """Whether a source broker refuses a partition, so that its leader has to be looked up."""
        now_ms = self._dependencies.clock.monotonic_ms()
        return any(
            state.errors_in_a_row or state.delayed_until_ms > now_ms
            for fetcher in self._fetchers.values()
            for _, state in fetcher.states.items()
        ) or bool(len(self._dependencies.failed))

    @property
    def failing(self) -> int:
        """Number of mirrors that are not fetched: without a known leader, or after an error."""
        count = 0
        for key, mirror in self.mirrors.items():
            fetcher = None if mirror.place is None else self._fetchers.get(mirror.place.leader_id)
            state = None if fetcher is None else fetcher.states.get(key)
            count += state is None or bool(state.errors_in_a_row)
        return count

    @property
    def bytes_in(self) -> int:
        """Bytes of records that were appended."""
        return self._replicas.bytes_in

    @property
    def records_in(self) -> int:
        """Number of records that were appended."""
        return self._replicas.records_in

    def close(self) -> None:
        """Stop fetching."""
        self.mirrors.clear()
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()

    def _remove(self, keys: Iterable[TopicPartition]) -> None:
        keys = list(keys)
        for fetcher in self._fetchers.values():
            fetcher.remove(keys)
        self._dependencies.failed.discard(keys)

    def _fetcher(self, leader_id: int) -> ReplicaFetcher:
        found = self._fetchers.get(leader_id)
        if found is not None and not found.is_dead:
            return found
        if found is not None:
            found.close()
        channel = self._channels.open(leader_id, f"link-{self._name}")
        endpoint = LeaderEndpoint(leader_id, channel, self._dependencies.settings)
        fetcher = ReplicaFetcher(FetcherKey(leader_id, 0), endpoint, self._dependencies, self)
        fetcher.name = f"link-{self._name}-{leader_id}"
        self._fetchers[leader_id] = fetcher
        return fetcher

    def _close_unused(self) -> None:
        for leader_id, fetcher in list(self._fetchers.items()):
            if fetcher.is_dead:
                # Its mirrors are assigned to a new fetcher by the next `follow`.
                for key in fetcher.remove_all():
                    if key in self.mirrors:
                        self.mirrors[key].place = None
            if not len(fetcher) or fetcher.is_dead:
                del self._fetchers[leader_id]
                fetcher.close()

    # Methods for the fetchers, see `FetcherOwner`.

    def before_request(self, fetcher: ReplicaFetcher) -> bool:
        """Return False: partitions move by `follow` only."""
        del fetcher
        return False

    def is_catch_up(self, fetcher: ReplicaFetcher) -> bool:
        """Return True: after a large response, the requests of clients come first."""
        del fetcher
        return True

    def on_unused(self, fetcher: ReplicaFetcher) -> None:
        """Do nothing: `follow` closes fetchers without partitions."""
        del fetcher
