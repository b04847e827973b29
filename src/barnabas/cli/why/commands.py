"""`barnabas why`: explain why something waits, and give a remedy.

A target is a partition, an offset, a topic or a group. The answers are data: reasons by subject.
"""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.common.advice import connection_options
from barnabas.cli.common.named_topics import complete_groups, complete_topics
from barnabas.cli.common.output import (
    EXIT_FAILED,
    EXIT_INCOMPLETE,
    ClientOptions,
    client_options,
    connected,
    echo_json,
    fail,
    metrics_option,
    timeout_message,
)
from barnabas.cli.common.printable import echo, some
from barnabas.cli.common.tables import Styled, bad, dim, echo_entry, echo_line, good, strong, warn
from barnabas.cli.common.units import Seconds
from barnabas.cli.why.reasons import Reason, is_healthy, note
from barnabas.client.errors import (
    BrokerError,
    ClientError,
    CorruptRecordsError,
    UnknownPartitionError,
)
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.cli.why.facts import PartitionFacts
    from barnabas.cli.why.gather import MetricFacts
    from barnabas.client.facade import Client


EXAMPLES = """\b
Examples:
  barnabas why                       all problems of the cluster
  barnabas why orders:0              why does its high watermark or ISR not advance?
  barnabas why orders:0@1234         why can a consumer not read that offset?
  barnabas why billing               why do the group's members wait?
  barnabas why orders --json

\b
The name may be that of a topic or a group. If an offset lags, the command reads it twice, --seconds
apart. A group member without progress is observed for 6.5 seconds, because healthy members commit
every 5 seconds by default. The command uses only Kafka's protocol, so that it works with Apache
Kafka too. Metrics listeners named by --metrics add facts that no API returns, such as waiting
producers.

\b
Exit status: 0 no problem (notes are not problems), 1 a problem was found, 2 wrong usage, 3 no
problem was found but not everything could be examined.

\b
What a principal may do, and by which entry: barnabas acls why.
"""
_SUBJECTS = 6
_MARKS: dict[str, Callable[[object], Styled]] = {"ok": good, "note": warn, "wrong": bad}
# Settings of the client. Short timeouts: a broker that does not answer is a finding.
WHY_DEFAULTS = {"request.timeout.ms": "2000", "socket.connection.setup.timeout.ms": "2000"}
# The kind of the note about what was not examined: with it, the examination is incomplete.
NOT_ASKED = "not-asked"


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    names = complete_topics(ctx, parameter, incomplete)
    return names + [n for n in complete_groups(ctx, parameter, incomplete) if n not in names]


@click.command(epilog=EXAMPLES)
@click.argument(
    "target", required=False, metavar="[TOPIC[:PARTITION[@OFFSET]]|GROUP]", shell_complete=_complete
)
@click.option("-g", "--group", "is_group", is_flag=True, help="The name is a group.")
@click.option("-t", "--topic", "is_topic", is_flag=True, help="The name is a topic.")
@click.option(
    "--seconds",
    type=Seconds(0.1, 600),
    default=2.0,
    show_default=True,
    help="Time between the two measurements.",
)
@metrics_option
@client_options
def why(
    target: str | None,
    is_group: bool,
    is_topic: bool,
    seconds: float,
    metrics: Sequence[str],
    options: ClientOptions,
) -> None:
    """Explain why a partition, an offset or a group does not advance, and what to do."""
    from barnabas.cli.load.metrics import MetricsError
    from barnabas.cli.why.gather import gather_metrics

    if is_group and is_topic:
        raise click.UsageError("give only one of --group and --topic")
    if target is not None and not is_group:
        # Refuse a malformed target before connecting.
        parse_target(target)
    try:
        measured = gather_metrics(metrics)
    except MetricsError as error:
        fail(str(error))
    flags = click.get_current_context().params
    given = {name: flags[name] for name in ("bootstrap", "config_file", "profile")}
    question = Question(target, is_group=is_group, is_topic=is_topic)
    with connection_options(**given), connected(options, WHY_DEFAULTS, limit_total=True) as client:
        answers = examine(client, question, seconds, measured, timeout_message())
    well = all(is_healthy(reasons) for _, reasons in answers)
    complete = all(reason.kind != NOT_ASKED for _, reasons in answers for reason in reasons)
    if options.as_json:
        echo_json(
            {
                "well": well and complete,
                "complete": complete,
                "answers": [
                    {"subject": subject, "reasons": [asdict(reason) for reason in reasons]}
                    for subject, reasons in answers
                ],
            }
        )
    else:
        _echo(answers)
    if not well:
        sys.exit(EXIT_FAILED)
    if not complete:
        sys.exit(EXIT_INCOMPLETE)


def _echo(answers: Sequence[tuple[str, Sequence[Reason]]]) -> None:
    # Reasons that are the same for many partitions are printed once.
    merged: list[tuple[list[str], Sequence[Reason]]] = []
    for subject, reasons in answers:
        same = next((each for each in merged if list(each[1]) == list(reasons)), None)
        if same is None:
            merged.append(([subject], reasons))
        else:
            same[0].append(subject)
    for index, (subjects, reasons) in enumerate(merged):
        if index:
            echo()
        echo_line(strong(some(subjects, _SUBJECTS)))
        for reason in reasons:
            echo_entry(_MARKS[reason.verdict](reason.verdict), reason.what, reason.remedy)
    if not answers:
        echo_line(good("no problems"), dim(": all partitions and groups are healthy"))


_CLUSTER = "the cluster"


class Question(NamedTuple):
    """The subject of an examination: everything, or a target as `parse_target` reads it."""

    # None: all problems of the cluster.
    target: str | None = None
    # The name is a group, or a topic; neither means that it may be both.
    is_group: bool = False
    is_topic: bool = False


def examine(
    client: Client, question: Question, seconds: float, metrics: MetricFacts, late: str
) -> list[tuple[str, list[Reason]]]:
    """Examine what waits, and return the reasons by subject.

    Args:
        client: A client whose calls are limited together (`Client.limit_total`).
        question: What to examine.
        seconds: Time between the two measurements.
        metrics: The facts from metrics listeners.
        late: The text about calls that reached the limit.

    Raises:
        ClientError: Nothing could be examined.
        TimeoutError: Nothing could be examined within the limit.
        click.UsageError: The target is malformed.
    """
    examination = _Examination(client, seconds, metrics)
    examination.examine_quorum()
    try:
        examination.examine(question)
    except ClientError as error:
        if not examination.answers:
            raise
        # The findings so far usually explain why the remaining questions fail.
        examination.add_unanswered(str(error))
    except TimeoutError:
        if not examination.answers:
            raise
        examination.add_unanswered(late)
    return examination.answers


class _Examination:
    """The questions of one run, and their answers."""

    def __init__(self, client: Client, seconds: float, metrics: MetricFacts) -> None:
        self._client = client
        self._seconds = seconds
        self._metrics = metrics
        # The subject of each question, and the reasons found.
        self.answers: list[tuple[str, list[Reason]]] = []
        self._quorum_lost = False

    def examine_quorum(self) -> None:
        """Check whether the metadata quorum has a leader.

        This comes first: without a leader, nothing else recovers.
        """
        from barnabas.cli.admin.quorum import quorum_state
        from barnabas.cli.why.partition_reasons import no_controller

        self._quorum_lost = quorum_state(self._client).is_lost
        if self._quorum_lost:
            self.answers.append((_CLUSTER, [no_controller()]))

    def examine(self, question: Question) -> None:
        """Examine the target of the question."""
        name = question.target
        if name is None:
            self.examine_all()
        elif question.is_group:
            self.examine_group(name)
        else:
            wanted = parse_target(name)
            if wanted.partition is not None:
                self.examine_partition(wanted)
            else:
                self.examine_name(name, may_be_group=not question.is_topic)

    def add_unanswered(self, error: str) -> None:
        """Report that the remaining questions could not be answered, and the error."""
        self.answers.append(("the rest", [note(NOT_ASKED, f"not examined: {error}")]))

    def examine_all(self) -> None:
        """Examine the brokers, every partition with a problem, and every group that waits."""
        facts = self._partitions((), None)
        self._add_partitions(facts, only_unhealthy=True)
        self._add_links(None)
        if self._quorum_lost:
            # Brokers that died since are not fenced, so requests to their groups would wait.
            words = "groups are not examined while the metadata quorum has no leader"
            self.answers.append(("the rest", [note(NOT_ASKED, words)]))
            return
        names = [group.group_id for group in self._client.admin.list_groups()]
        for name, reasons in self._groups(names):
            # A group without members is only reported if the user asks for that group.
            if any(r.verdict == "wrong" and r.kind != "no-members" for r in reasons):
                self.answers.append((f"group {name}", reasons))

    def examine_name(self, name: str, *, may_be_group: bool) -> None:
        """Examine the topic or group with that name, or both."""
        is_topic = name in self._client.topics(internal=True)
        is_group = may_be_group and any(
            each.group_id == name for each in self._client.admin.list_groups()
        )
        if is_group or (may_be_group and not is_topic):
            self.examine_group(name)
        if is_topic or not may_be_group:
            self._add_links(name)
            self._add_partitions(self._partitions((name,), None), only_unhealthy=False)

    def examine_group(self, name: str) -> None:
        """Examine a group."""
        self.answers += [(f"group {name}", reasons) for _, reasons in self._groups([name])]

    def examine_partition(self, target: Target) -> None:
        """Examine a partition, or an offset in it."""
        from barnabas.cli.why.group_reasons import offset_reasons, unreadable
        from barnabas.cli.why.tier_reasons import is_only_in_tier, unread_reason

        assert target.partition is not None
        tp = TopicPartition(target.name, target.partition)
        found = self._partitions((target.name,), tp)
        if not found:
            count = len(self._client.partitions_for([tp.topic], may_be_new=False)[tp.topic])
            raise UnknownPartitionError(tp.topic, tp.partition, count)
        facts = found[0]
        if target.offset is None:
            self._add_links(target.name)
            self._add_partitions(found, only_unhealthy=False)
            return
        try:
            record = self._first_record(facts, target.offset)
        except CorruptRecordsError as error:
            self.answers.append((f"{tp} at {target.offset}", [unreadable(error, facts.leader)]))
            return
        except (ClientError, TimeoutError) as error:
            # The state of the partition usually explains why the record cannot be read.
            self._add_partitions(found, only_unhealthy=False)
            if facts.tier is None or not is_only_in_tier(facts.tier, target.offset):
                raise
            reason = unread_reason(facts.tier, target.offset, error)
            self.answers.insert(0, (f"{tp} at {target.offset}", [reason]))
            return
        reasons = offset_reasons(facts, target.offset, record)
        self.answers.append((f"{tp} at {target.offset}", reasons))

    def _partitions(
        self, names: Sequence[str], only: tuple[str, int] | None
    ) -> list[PartitionFacts]:
        from barnabas.cli.why.gather import gather_partitions

        wanted = None if only is None else [TopicPartition(*only)]
        return gather_partitions(self._client, names, wanted, self._seconds, self._metrics)

    def _add_partitions(self, found: Sequence[PartitionFacts], *, only_unhealthy: bool) -> None:
        from barnabas.cli.why.partition_reasons import cluster_reasons, partition_reasons

        if found:
            reasons = cluster_reasons(found[0].brokers)
            if reasons:
                # The cluster reasons include the reason for the lost quorum.
                self.answers = [each for each in self.answers if each[0] != _CLUSTER]
                self.answers.insert(0, (_CLUSTER, reasons))
        for facts in found:
            reasons = partition_reasons(facts)
            if not only_unhealthy or any(reason.verdict == "wrong" for reason in reasons):
                self.answers.append((str(facts.partition), reasons))

    def _add_links(self, topic: str | None) -> None:
        """Add the links that do not work, or what a link knows of one topic."""
        from barnabas.cli.links.status import load_settled_links
        from barnabas.cli.why.link_reasons import link_reasons, mirror_reasons

        try:
            links = load_settled_links(self._client, topic)
        except BrokerError:
            # The user may not describe the configs of the brokers.
            return
        for status in links:
            own = [] if topic is not None else link_reasons(status)
            if not is_healthy(own):
                self.answers.append((f"link {status.link.name}", own))
            for each in status.mirrors:
                reasons = mirror_reasons(status, each)
                if topic is not None or any(found.kind == "mirror-stopped" for found in reasons):
                    self.answers.append((f"topic {each.mirror.topic}", reasons))

    def _groups(self, names: Sequence[str]) -> list[tuple[str, list[Reason]]]:
        from barnabas.cli.why.gather_group import gather_groups
        from barnabas.cli.why.group_reasons import group_reasons

        found = gather_groups(self._client, names, self._seconds)
        return [(each.name, group_reasons(each)) for each in found]

    def _first_record(self, facts: PartitionFacts, offset: int) -> int | None:
        """Return the offset of the first record that a consumer receives from `offset` on."""
        from barnabas.cli.why.gather import first_record

        watermark, start = facts.high_watermark, facts.log_start
        if watermark is None or offset >= watermark or (start is not None and offset < start):
            return None
        return first_record(self._client, facts.partition, offset, watermark)


_PARTITION = re.compile(r"(?P<topic>[\w.-]+):(?P<partition>\d+)(?:@(?P<offset>\d+))?", re.ASCII)


class Target(NamedTuple):
    """The parsed target; a plain name is a topic, a group, or both."""

    name: str
    # None: all partitions.
    partition: int | None = None
    # None: the partition as a whole.
    offset: int | None = None


def parse_target(text: str) -> Target:
    """Parse TOPIC:PARTITION, TOPIC:PARTITION@OFFSET, or a name.

    Raises:
        click.UsageError: The text has an offset but no partition.
    """
    found = _PARTITION.fullmatch(text)
    if found is None:
        if "@" in text and ":" not in text and text.rpartition("@")[2].isdigit():
            raise click.UsageError(f"{text}: write TOPIC:PARTITION@OFFSET")
        return Target(text)
    offset = found["offset"]
    return Target(found["topic"], int(found["partition"]), None if offset is None else int(offset))
