"""The host of a membership, which records the calls of the membership."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.client.group.membership import OnHostDone
    from barnabas.client.topic_partition import TopicPartition


class ScriptedHost:
    """Runs each step at once, or when the test finishes it."""

    def __init__(self, *topics: str) -> None:
        self.subscribed_topics: list[str] = list(topics)
        self.subscribed_regex: str | None = None
        self.owned: set[TopicPartition] = set()
        # The calls as text: "commit", "revoke t-0", "assign t-0 t-1 +t-1", "lose t-0".
        self.done: list[str] = []
        # The result of the next step, by name.
        self.failures: dict[str, BaseException] = {}
        # Names of steps that wait for `finish`.
        self.slow: set[str] = set()
        self._waiting: list[tuple[str, OnHostDone]] = []
        self.wakes = 0

    @property
    def owned_partitions(self) -> Collection[TopicPartition]:
        return sorted(self.owned)

    def refresh_pattern(self, on_done: OnHostDone) -> None:
        self._end("match", on_done)

    def commit_before_revoke(
        self, leaving: Collection[TopicPartition], on_done: OnHostDone
    ) -> None:
        self.done.append("commit" + _words(leaving, "-"))
        self._end("commit", on_done)

    def revoke(self, partitions: Collection[TopicPartition], on_done: OnHostDone) -> None:
        self.done.append("revoke" + _words(partitions))
        self.owned -= set(partitions)
        self._end("revoke", on_done)

    def lose(self, partitions: Collection[TopicPartition], on_done: OnHostDone) -> None:
        self.done.append("lose" + _words(partitions))
        self.owned -= set(partitions)
        self._end("lose", on_done)

    def assign(
        self,
        partitions: Collection[TopicPartition],
        added: Collection[TopicPartition],
        on_done: OnHostDone,
    ) -> None:
        self.done.append("assign" + _words(partitions) + _words(added, "+"))
        self.owned = set(partitions)
        self._end("assign", on_done)

    def wake(self) -> None:
        self.wakes += 1

    def finish(self) -> None:
        """Finish the pending step."""
        name, on_done = self._waiting.pop(0)
        on_done(self.failures.pop(name, None))

    def _end(self, name: str, on_done: OnHostDone) -> None:
        if name in self.slow:
            self._waiting.append((name, on_done))
        else:
            on_done(self.failures.pop(name, None))


def _words(partitions: Collection[TopicPartition], mark: str = "") -> str:
    return "".join(f" {mark}{tp}" for tp in sorted(partitions))
