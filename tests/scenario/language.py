"""The language of stories: parses one command per line into steps, with helpful errors.

A story begins with comment lines that state its subject. `COMMANDS` has the commands and their
meanings. Words in braces are placeholders: {n} is a number, {topic} a word, {ids} numbers, {node} a
node, {keys} KEY=VALUE pairs. An `expect` waits until its condition holds.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Any

_NODE = (
    r"(?:broker|controller|node) \d+|leader of \w+|follower of \w+|coordinator of \w+|"
    r"transaction coordinator of \w+|"
    r"controller|it|all brokers|all"
)
# The last word of a placeholder's name is the kind of its values.
PLACES = {
    "n": r"\d+",
    "ms": r"\d+",
    "word": r"[\w.-]+",
    "topic": r"\w+",
    "group": r"\w+",
    "actor": r"[a-z]\w*",
    "ids": r"(?:\d+(?: \d+)*|none)",
    "nodes": r"(?:\d+|all|controllers|brokers)",
    "node": _NODE,
    "keys": r"\S+=\S+(?: \S+=\S+)*",
    "acks": r"(?:all|1)",
    "error": r"[A-Z_]+",
    "rest": r".+",
}

COMMANDS = {
    # Cluster and topics.
    "{n} brokers": "start that many nodes, which are brokers and controllers",
    "{n} brokers {m_n} controllers": "start brokers 1, 2... and controllers 101, 102...",
    "setting {word} = {rest}": "set a broker config, before the brokers start",
    "disk of {n} MB for broker {m_n}": "put data on a small file system, before the brokers start",
    "only on Barnabas: {rest}": "do not run the story on Apache Kafka, for this reason",
    "relays": "connect the nodes through relays, before the brokers start",
    "records may be lost": "acknowledged records may be lost in this story",
    "topic {topic} replicas {ids}": "create a topic with one partition on these brokers",
    "topic {topic} replicas {ids} min-isr {n}": "create a topic with min.insync.replicas",
    "topic {topic} replicas {ids} with {keys}": "create a topic with other configs",
    "topic {topic} replicas {ids} min-isr {n} while nodes are down": "create it with fewer in sync",
    # Actions of clients.
    "produce {topic} {n}": "send records with acks=all; all must be acknowledged",
    "produce {topic} {n} acks {acks}": "send records with other acks",
    "produce {topic} {n} acks {acks} fails": "send records, of which none may be acknowledged",
    "produce {topic} {n} acks {acks} takes {ms} ms": "not earlier after the last change of a link",
    "keep producing {topic}": "start idempotent producers with acks=all in the background",
    "stop producing": "wait until all sent records are acknowledged or have failed",
    "consume {topic} as {group}": "read to the end as a member, commit and leave",
    "keep consuming {topic} as {group}": "start a member in the background, which commits",
    "stop consuming": "wait until the members have committed the end",
    # Transactional producers. Each is a process, whose name is its transactional id.
    "producer {actor}": "start and initialize a producer of the Barnabas client",
    "producer {actor} as {b_actor}": "with the transactional id of another one, which it fences",
    "producer {actor} with timeout {ms} ms": "with a transaction timeout (default: 5 minutes)",
    "librdkafka producer {actor}": "start and initialize a producer of librdkafka",
    "librdkafka producer {actor} as {b_actor}": "with the transactional id of another one",
    "librdkafka producer {actor} with timeout {ms} ms": "with a transaction timeout",
    "{actor} begins": "begin a transaction",
    "{actor} sends {n} to {topic}": "send records, which must be acknowledged",
    "{actor} cannot send to {topic}": "send a record, which must fail",
    "{actor} sends offset {n} of {topic} for {group}": "add an offset to the transaction",
    "{actor} commits": "commit, which must succeed",
    "{actor} aborts": "abort, which must succeed",
    "{actor} starts to commit": "commit without waiting for the response",
    "{actor} starts to abort": "abort without waiting for the response",
    "{actor} has ended it": "wait until the started commit or abort has succeeded",
    "{actor} cannot commit": "commit, which must fail",
    "kill producer {actor}": "kill -9 of its process",
    "pause producer {actor}": "SIGSTOP of its process",
    "resume producer {actor}": "SIGCONT of its process",
    "keep transacting {topic} {b_topic}": "both clients in the background; abort every third one",
    "keep transacting {topic} {b_topic} with {word}": "only `barnabas` or `librdkafka`",
    "await {n} transactions": "wait for that many more commits of each background client",
    "stop transacting": "wait until the last transactions have ended",
    "keep reading {topic} committed": "read with both clients until the end of the story",
    # Events of nodes.
    "kill {node}": "kill -9",
    "stop {node}": "stop it cleanly",
    "start {node}": "start it again and wait until it is ready",
    "launch {node}": "start it again without waiting",
    "restart {node}": "stop it cleanly, and start it",
    "pause {node}": "SIGSTOP",
    "resume {node}": "SIGCONT",
    "wipe {node}": "delete its data; it must be down",
    "fill disk of {node}": "fill it until writes fail",
    "free disk of {node}": "free space again",
    "expect {node} down": "wait until its process has exited",
    "{node} loses the last {n} records of {topic}": "as after a loss of power; it must be down",
    # Events of links, which need relays.
    "cut {nodes} from {b_nodes}": "close connections, and refuse new ones",
    "stall {nodes} from {b_nodes}": "keep connections open, and forward no byte",
    "delay {nodes} to {b_nodes} by {ms} ms": "forward bytes later",
    "heal": "restore all links",
    # Actions of operators.
    "coordinate {word} on {ids}": "move the partition of `groups` or `transactions`",
    "reassign {topic} to {ids}": "start to move a topic's partition",
    "elect preferred leader of {topic}": "by the admin API",
    "elect unclean leader of {topic}": "by the admin API",
    "await {n} ms": "wait, to show that something does not happen",
    # Expected states.
    "expect leader of {topic} = {ids}": "the leader; `none` if there is none",
    "expect leader of {topic} in {ids}": "the leader is one of these",
    "expect isr of {topic} = {ids}": "the in-sync replicas, in any order",
    "expect elr of {topic} = {ids}": "the eligible leader replicas (KIP-966)",
    "expect replicas of {topic} = {ids}": "the replicas, in any order",
    "expect epoch of {topic} = {n}": "the leader epoch",
    "expect log end of {topic} on {n} = {m_n}": "according to the segment files of that node",
    "expect epochs of {topic} on {n} = {rest}": "EPOCH:START according to the batches of its log",
    "expect log of {n} = log of {m_n}": "the segment files of all topics are equal",
    "expect {topic} holds {n} records": "number of records that a consumer reads",
    "expect committed of {group} on {topic} = {n}": "the group's offset",
    "expect controller is not {node}": "another controller is active",
    "expect brokers {ids}": "the registered and unfenced brokers in metadata responses",
    "expect no failed sends": "no send of a background producer has failed",
    "expect log of {n} mentions {rest}": "the node's log file matches this expression",
    "expect transaction of {actor} = {word}": "its state at its coordinator, such as Ongoing",
    "expect {topic} shows {n} records": "with read_committed; transactions may be open",
    "expect offset of {group} on {topic} pending": "an open transaction has it (KIP-447)",
    "expect no failed transactions": "no background transaction has failed",
}


class StoryError(Exception):
    """A line that is invalid or names something unknown; the message has file and line."""


@dataclass(frozen=True)
class Step:
    """One line of a story."""

    line: int
    text: str
    # The key of COMMANDS.
    command: str
    # By the names of placeholders.
    arguments: dict[str, str]


@dataclass(frozen=True)
class Story:
    """A story: its description, and its steps."""

    name: str
    about: str
    steps: tuple[Step, ...]


def parse(name: str, text: str) -> Story:
    """Read a story.

    Raises:
        StoryError: an unknown command, a missing description, or no command that starts brokers.
    """
    about: list[str] = []
    steps: list[Step] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith("#"):
            if not steps:
                about.append(line.removeprefix("#").strip())
            continue
        line = line.partition("  #")[0].strip()
        if line:
            steps.append(_parse_line(name, number, line))
    if not about:
        raise StoryError(f"{name}:1: a story begins with its description: # ...")
    if not any(step.command.endswith(("brokers", "controllers")) for step in steps):
        raise StoryError(f"{name}: the story starts no brokers; add a line such as: 3 brokers")
    return Story(name, " ".join(about), tuple(steps))


def _parse_line(name: str, number: int, line: str) -> Step:
    for command, pattern in _PATTERNS:
        found = pattern.fullmatch(line)
        if found:
            return Step(number, line, command, found.groupdict())
    near = difflib.get_close_matches(line, COMMANDS, 3, 0.3)
    hint = "".join(f"\n    {each}" for each in near or sorted(COMMANDS))
    raise StoryError(f"{name}:{number}: unknown command: {line}\n  did you mean{hint}")


def numbers(text: str) -> list[int]:
    """Return the value of {ids}."""
    return [] if text == "none" else [int(word) for word in text.split()]


def pairs(text: str) -> dict[str, str]:
    """Return the value of {keys}."""
    return dict(each.split("=", 1) for each in text.split())


def _pattern(command: str) -> re.Pattern[str]:
    words = []
    for word in re.split(r"(\{\w+\})", command):
        if word.startswith("{"):
            place = word[1:-1]
            words.append(f"(?P<{place}>{PLACES[place.rpartition('_')[2]]})")
        else:
            words.append(re.escape(word))
    return re.compile("".join(words))


_PATTERNS: list[tuple[str, Any]] = [(command, _pattern(command)) for command in COMMANDS]
