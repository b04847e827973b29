"""Brings mirrors from the state `promoting` to `promoted`.

1. `barnabas links promote` writes `promoting`. Each broker stops fetching the mirror.
2. Each leader aborts the open transactions of the source, and each replica forgets its producers
   (`ended_mirrors`). A new leader finds the state in the metadata and goes on.
3. The broker that manages topics asks all leaders for `SOURCE_REMAINS`. When nothing of the source
   is left in any partition, it writes `promoted`, and clients may produce.

So no step depends on the command, or on one broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.replication.links.link_table import MirrorState
from barnabas.server.links.ended_mirrors import EndedMirrors
from barnabas.server.links.link_configs import alter_configs
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.metadata.image import ClusterImage
    from barnabas.protocol.errors import ErrorCode
    from barnabas.replication.links.link_table import LinkTable, MirrorTopic
    from barnabas.server.links.link_dependencies import LinkDependencies

# Topics that one turn of a promotion works on.
_TOPICS_AT_ONCE = 200


class Promotions:
    """The promotions of all links, on one broker."""

    def __init__(self, dependencies: LinkDependencies) -> None:
        self._dependencies = dependencies
        runtime = dependencies.runtime
        self._ended = EndedMirrors(dependencies.replicas, runtime.clock)
        self._clock, self._timer = runtime.clock, runtime.timer
        # Whether this broker aborts transactions at present, and whether it asks leaders.
        self._is_ending = False
        self._is_asking = False

    def end_at_once(self, image: ClusterImage, topics: set[str]) -> None:
        """Make the logs of topics usable to which clients may write from now on."""
        self._ended.end_at_once(image, topics)

    def check(self, table: LinkTable, *, manages_topics: bool) -> None:
        """Go on with the promotions in the metadata."""
        promoting = [
            each for each in table.mirrors.values() if each.state is MirrorState.PROMOTING
        ][:_TOPICS_AT_ONCE]
        if not promoting:
            return
        if not self._is_ending:
            self._is_ending = True
            image = self._dependencies.cluster.image
            steps = self._ended.end_slowly(image, [each.topic for each in promoting])
            run_in_slices(steps, self._clock, self._timer.call_soon, self._on_ended)
        if manages_topics and not self._is_asking:
            self._ask(promoting)

    def _on_ended(self, _result: object) -> None:
        self._is_ending = False

    def _ask(self, promoting: list[MirrorTopic]) -> None:
        """Ask the leaders of all partitions how much of the source is left."""
        partitions: list[TopicPartition] = []
        done: list[MirrorTopic] = []
        for mirror in promoting:
            topic = self._dependencies.cluster.image.topics.by_name(mirror.topic)
            if topic is None:
                # The topic was deleted here.
                done.append(mirror)
                continue
            partitions += [TopicPartition(mirror.topic, each) for each in topic.partitions]
        self._promote(done)
        if not partitions:
            return
        self._is_asking = True

        def on_found(remains: Mapping[TopicPartition, int | ErrorCode]) -> None:
            self._is_asking = False
            left = {key.topic for key in partitions if remains[key] != 0}
            topics = {key.topic for key in partitions} - left
            self._promote([each for each in promoting if each.topic in topics])

        self._dependencies.remains.find(partitions, on_found)

    def _promote(self, mirrors: list[MirrorTopic]) -> None:
        promoted = [replace(each, state=MirrorState.PROMOTED) for each in mirrors]
        changes = {each.config_name: each.config_value for each in promoted}
        alter_configs(self._dependencies.forwarding, changes)
