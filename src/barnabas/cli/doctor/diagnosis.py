"""Findings of an examination, and their remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet

    from barnabas.cli.common.machine_lines import Machine

_UNEXAMINED = "not examined: "
Verdict = Literal["ok", "note", "wrong"]


class Finding(NamedTuple):
    """The result of one check."""

    verdict: Verdict
    what: str
    # What to do; empty if there is nothing to do.
    remedy: str = ""

    @property
    def is_unexamined(self) -> bool:
        """Whether it says what was not examined."""
        return self.what.startswith(_UNEXAMINED)


class Diagnosis:
    """Findings in the order of the checks; a finding that explains the others comes first."""

    def __init__(self) -> None:
        # The finding that explains the others, and the other findings.
        self._first: list[Finding] = []
        self._rest: list[Finding] = []
        # Whether nothing was left out that could have been a problem.
        self.is_complete = True
        # The machines of the cluster; empty if each broker has its own.
        self.machines: Sequence[Machine] = ()

    @property
    def findings(self) -> list[Finding]:
        """All findings; the one that explains the others comes first."""
        return [*self._first, *self._rest]

    def add(self, other: Diagnosis) -> None:
        """Take over the findings of another diagnosis."""
        self._first += other._first
        self._rest += other._rest
        self.is_complete = self.is_complete and other.is_complete
        self.machines = self.machines or other.machines

    def ok(self, what: str) -> None:
        """Add the finding that a check passed."""
        self._rest.append(Finding("ok", what))

    def note(self, what: str, remedy: str = "") -> None:
        """Add a finding that is no problem, but useful to know."""
        self._rest.append(Finding("note", what, remedy))

    def unexamined(self, what: str, remedy: str = "") -> None:
        """Add a note about what could not be examined: the examination is incomplete."""
        self.is_complete = False
        self.note(f"{_UNEXAMINED}{what}", remedy)

    def wrong(self, what: str, remedy: str) -> None:
        """Add a problem, or a cause of a future problem."""
        self._rest.append(Finding("wrong", what, remedy))

    def wrong_first(self, what: str, remedy: str) -> None:
        """Add a problem that causes the others; it is printed first.

        A second call replaces the first one, with a more exact description.
        """
        self._first = [Finding("wrong", what, remedy)]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong."""
        return all(finding.verdict != "wrong" for finding in self.findings)


_DAY_MINUTES = 1440
_EVERY_INTERFACE = ("//0.0.0.0:", "//:", "//[::]:")


def dangers(
    values: Mapping[str, str], given: AbstractSet[str], *, brokers: int
) -> Iterator[tuple[str, str]]:
    """Yield the dangers of a configuration: the problem and its remedy.

    Args:
        values: Value by key, including defaults.
        given: Keys that were set explicitly.
        brokers: Number of brokers in the cluster, including those that are down.
    """
    yield from _loss(values, given, brokers)
    yield from _growth(values, given)
    yield from _limits(values)


def _loss(
    values: Mapping[str, str], given: AbstractSet[str], brokers: int
) -> Iterator[tuple[str, str]]:
    if values.get("unclean.leader.election.enable") == "true":
        yield (
            (
                "unclean.leader.election.enable=true: acknowledged records are lost "
                "when a lagging replica becomes leader"
            ),
            "set it to false, and to true only for topics that may lose records",
        )
    replicas = _number(values, "default.replication.factor", 1)
    if replicas >= 3 and _number(values, "min.insync.replicas", 1) == 1:
        yield (
            (
                f"default.replication.factor={replicas} with min.insync.replicas=1: a "
                "single broker is enough for acks=all"
            ),
            "set min.insync.replicas=2",
        )
    for key in ("offsets.topic.replication.factor", "default.replication.factor"):
        wanted = _number(values, key, 1)
        if key in given and wanted > brokers:
            yield (
                (
                    f"{key}={wanted}, but there {'is' if brokers == 1 else 'are'} {brokers} "
                    f"broker{'' if brokers == 1 else 's'}: topics cannot be created"
                ),
                (
                    f"start or add brokers until there are {wanted}; or, if the cluster "
                    f"will not grow, set {key}={brokers}"
                ),
            )
    for directory in values.get("log.dirs", values.get("log.dir", "")).split(","):
        if directory.strip().startswith(("/tmp", "/var/tmp", "/dev/shm")):  # noqa: S108 - only compared, for a warning
            yield (
                f"{directory.strip()} is emptied by a restart of the machine or a cleanup job",
                "set log.dirs to a permanent directory",
            )


def _growth(values: Mapping[str, str], given: AbstractSet[str]) -> Iterator[tuple[str, str]]:
    times = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    forever = next((key for key in times if key in given and values.get(key) == "-1"), None)
    if forever is not None and _number(values, "log.retention.bytes", -1) < 0:
        yield (
            (
                f"{forever}=-1 and no log.retention.bytes: topics that are not compacted grow "
                f"until the disk is full"
            ),
            "set log.retention.bytes or a retention time",
        )
    if values.get("log.cleaner.enable") == "false":
        yield (
            "log.cleaner.enable=false: compacted topics and offsets of groups grow without limit",
            "set it to true",
        )
    minutes = _number(values, "offsets.retention.minutes", 10_080)
    if minutes < _DAY_MINUTES:
        yield (
            f"offsets.retention.minutes={minutes}: then a group without members loses its offsets",
            "set a week (10080) or more",
        )


def _limits(values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    message = _number(values, "message.max.bytes", 0)
    request = _number(values, "socket.request.max.bytes", 1 << 40)
    if message > request:
        yield (
            (
                f"message.max.bytes={message} is over socket.request.max.bytes={request}: "
                f"such a batch cannot be sent"
            ),
            "raise socket.request.max.bytes",
        )
    # On a single node, the controller listener is not opened.
    controllers = values.get("controller.listener.names", "").upper().split(",")
    opened = [
        text
        for text in values.get("listeners", "").split(",")
        if text.partition("://")[0].strip().upper() not in controllers
    ]
    if any(mark in text for text in opened for mark in _EVERY_INTERFACE):
        yield (
            "listeners accepts connections on every interface, without authentication",
            "use an address of the internal network, or restrict access with a firewall",
        )


def _number(values: Mapping[str, str], key: str, default: int) -> int:
    text = values.get(key, "")
    return int(text) if text.lstrip("-").isdigit() else default
