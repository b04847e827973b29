"""A consumer as a membership sees it, which records the calls of the membership."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from barnabas.client.config import ClientConfig
from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.errors import ClientError
from barnabas.client.group.classic_membership import ClassicMembership
from barnabas.client.group.membership import GroupGeneration, OnHostDone
from barnabas.client.topic_partition import TopicPartition
from barnabas.runtime.loop import Runtime

POLL_MS = 50.0


class GroupHost:
    """Implements `MembershipHost`; its user polls while `polls` is True."""

    subscribed_regex: str | None = None

    def __init__(self, cluster: Any, topics: Collection[str] = ("t",)) -> None:
        self.runtime: Runtime = cluster.runtime
        self.config: ClientConfig = cluster.config
        self.cluster: Cluster = cluster
        self.coordinators = Coordinators(self.cluster)
        self.subscribed_topics: list[str] = list(topics)
        self.owned_partitions: list[TopicPartition] = []
        # Calls of the host, in order, such as ("revoke", numbers).
        self.told: list[tuple[str, list[int]]] = []
        # The generation at the time of each step.
        self.spoken: list[GroupGeneration] = []
        self.raised: list[BaseException] = []
        # Exceptions of the next callbacks, by name.
        self.will_raise: dict[str, BaseException] = {}
        # Delayed steps: name -> the function that ends them.
        self.holds: set[str] = set()
        self.held: dict[str, Callable[[], None]] = {}
        self.wakes = 0
        self.patterns_matched = 0
        self.polls = True
        self.membership = ClassicMembership(self.cluster, self.coordinators, self.config, self)

    # Actions of the user

    def poll_on(self) -> None:
        """Poll now and every POLL_MS."""
        if self.polls:
            self.poll()
        self.runtime.timer.call_later(POLL_MS, self.poll_on)

    def poll(self) -> None:
        """Poll once."""
        try:
            self.membership.poll()
        except (ClientError, RuntimeError) as error:
            self.raised.append(error)

    def leave(self) -> None:
        """Leave and stop polling."""
        self.polls = False
        self.membership.leave("the consumer is being closed", lambda: self._tell("left", ()))

    @property
    def owned(self) -> list[int]:
        """The numbers of the owned partitions."""
        return sorted(tp.partition for tp in self.owned_partitions)

    @property
    def names(self) -> list[str]:
        """The names of the membership's calls."""
        return [name for name, _ in self.told]

    # MembershipHost

    def refresh_pattern(self, on_done: OnHostDone) -> None:
        self._step("pattern", (), on_done)

    def commit_before_revoke(
        self, leaving: Collection[TopicPartition], on_done: OnHostDone
    ) -> None:
        self._step("commit", leaving, on_done)

    def revoke(self, partitions: Collection[TopicPartition], on_done: OnHostDone) -> None:
        self._step("revoke", partitions, on_done, self._without(partitions))

    def lose(self, partitions: Collection[TopicPartition], on_done: OnHostDone) -> None:
        self._step("lose", partitions, on_done, self._without(partitions))

    def assign(
        self,
        partitions: Collection[TopicPartition],
        added: Collection[TopicPartition],
        on_done: OnHostDone,
    ) -> None:
        self.owned_partitions = list(partitions)
        self._step("assign", added, on_done)

    def wake(self) -> None:
        self.wakes += 1

    def _without(self, partitions: Collection[TopicPartition]) -> Sequence[TopicPartition]:
        return [tp for tp in self.owned_partitions if tp not in partitions]

    def _step(
        self,
        name: str,
        partitions: Collection[TopicPartition],
        on_done: OnHostDone,
        left: Sequence[TopicPartition] | None = None,
    ) -> None:
        self._tell(name, partitions)

        def end() -> None:
            if left is not None:
                self.owned_partitions = list(left)
            on_done(self.will_raise.pop(name, None))

        if name in self.holds:
            self.held[name] = end
        else:
            end()

    def _tell(self, name: str, partitions: Collection[TopicPartition]) -> None:
        if name == "pattern":
            self.patterns_matched += 1
            return
        self.told.append((name, sorted(tp.partition for tp in partitions)))
        self.spoken.append(self.membership.generation)
