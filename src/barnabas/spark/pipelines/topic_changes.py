"""Asks the brokers whether the topics of a pipeline exist, before Spark starts its flows.

Without a topic, Spark starts a flow three times, and our source fails each time. A topic of a sink
that was deleted would be created again, with new rows only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.errors import ClientError, UnknownTopicError
from barnabas.spark.errors import OptionError
from barnabas.spark.options import parse_sink_options, parse_source_options
from barnabas.spark.pipelines.advice import short
from barnabas.spark.pipelines.changes import Change
from barnabas.spark.planner import Planner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from barnabas.client.facade import Client
    from barnabas.spark.client_options import ClientOptions
    from barnabas.spark.pipelines.checkpoints import Checkpoint

    Connect = Callable[[ClientOptions], Client]

_CREATION = "auto.create.topics.enable"


@dataclass(frozen=True, slots=True)
class TopicUse:
    """A read or a write of topics."""

    target: str
    flow: str
    # All options of the source or sink; they may hold secrets.
    options: Mapping[str, str]
    is_sink: bool

    @property
    def key(self) -> str:
        """The key of the flow."""
        return f"{self.target}/{self.flow}"

    def refused(self, problem: str, remedy: str) -> Change:
        """Return a change that a reset does not remove."""
        return Change(self.flow, self.target, problem, remedy, is_of_checkpoint=False)


def find_topic_changes(
    uses: Iterable[TopicUse], checkpoints: Iterable[Checkpoint], connect: Connect
) -> list[Change]:
    """Return what the flows lack: topics, and options that are right.

    Args:
        uses: all reads and writes of topics.
        checkpoints: the checkpoints of all flows.
        connect: returns a client, which others may use too.
    """
    begun = {each.key for each in checkpoints if each.committed_batch >= 0}
    found: list[Change] = []
    for use in uses:
        try:
            check = _sink_changes if use.is_sink else _source_changes
            found += check(use, connect, has_begun=use.key in begun)
        except OptionError as error:
            found.append(use.refused(str(error), "correct the option"))
        except ClientError as error:
            # Other flows may use other brokers, so they run.
            remedy = "start the brokers, or correct kafka.bootstrap.servers"
            problem = f"its brokers cannot be asked for topics: {error}"
            found.append(Change(use.flow, use.target, problem, remedy, is_refused=False))
    return list(dict.fromkeys(found))


def _source_changes(use: TopicUse, connect: Connect, *, has_begun: bool) -> Iterator[Change]:
    options = parse_source_options(use.options, streaming=True)
    if has_begun and not options.fail_on_data_loss:
        # The user accepts that topics are deleted while they are read.
        return
    try:
        partitions = Planner(connect(options.client), options).partitions()
    except UnknownTopicError as error:
        remedy = "correct the name, or create the topic"
        if has_begun:
            remedy = (
                "correct the name. A topic that is created again has other records at the offsets "
                "of the checkpoint, so its first ones would not be read"
            )
        yield use.refused(str(error), remedy)
        return
    if not partitions and options.selection.pattern is not None:
        problem = f"no topic has a name as in subscribePattern={options.selection.pattern}"
        remedy = "check the pattern; the flow reads nothing until there is such a topic"
        yield Change(use.flow, use.target, problem, remedy, is_refused=False)


def _sink_changes(use: TopicUse, connect: Connect, *, has_begun: bool) -> Iterator[Change]:
    options = parse_sink_options(use.options)
    if options.topic is None:
        return
    client = connect(options.client)
    error = _missing(client, options.topic)
    if error is None:
        return
    if has_begun:
        yield use.refused(
            f"topic {options.topic} does not exist, and its checkpoint is not at the beginning: a "
            "new topic would get new rows only",
            "correct the name; if the rows that it had are not needed, create it: "
            f"barnabas topics create {options.topic}. Or write all rows to it: "
            f"barnabas pipeline reset {short(use.target)}, which writes to all topics of "
            f"{short(use.target)} again; a topic that has its rows has them twice then",
        )
    elif not _creates_topics(client):
        yield use.refused(f"{error}", f"create it: barnabas topics create {options.topic}")


def _missing(client: Client, topic: str) -> UnknownTopicError | None:
    try:
        client.describe_topics([topic])
    except UnknownTopicError as error:
        return error
    return None


def _creates_topics(client: Client) -> bool:
    """Return whether brokers create topics that producers name; true if they do not say."""
    try:
        broker = client.describe_cluster().brokers[0]
        entries = client.describe_broker_configs(broker.id)
    except ClientError:
        return True
    return all(each.value != "false" for each in entries if each.name == _CREATION)
