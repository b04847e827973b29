"""The language of stories: one command a line, read into steps, with errors that help.

A story's first lines, "# ...", state its subject. Commands and their meanings are in `COMMANDS`;
words in braces are places: {n} a number, {topic} a word, {ids} numbers, {node} a node, {keys}
KEY=VALUE pairs. An `expect` waits until its condition holds.
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
# The last word of a place's name is the kind of its values.
PLACES = {
    "n": r"\d+",
    "ms": r"\d+",
    "word": r"[\w.-]+",
    "topic": r"\w+",
    "group": r"\w+",
    "actor": r"[a-z]\w*",
    "ids": r"(?:\d+(?: \d+)*|none)",
    "who": r"(?:\d+|all|controllers|brokers)",
    "node": _NODE,
    "keys": r"\S+=\S+(?: \S+=\S+)*",
    "acks": r"(?:all|1)",
    "error": r"[A-Z_]+",
    "rest": r".+",
}

COMMANDS = {
    # The stage.
    "{n} brokers": "start that many processes, brokers and controllers",
    "{n} brokers {m_n} controllers": "start brokers 1, 2... and controllers 101, 102...",
    "setting {word} = {rest}": "a broker key, before the brokers start",
    "disk of {n} MB for broker {m_n}": "data on a small file system; before the brokers start",
    "only on Barnabas: {rest}": "why the story is not played on Apache Kafka",
    "relays": "nodes reach each other through relays; before the brokers start",
    "records may be lost": "the story is about a loss: acknowledged records need not survive",
    "topic {topic} replicas {ids}": "make a topic with one partition, placed there",
    "topic {topic} replicas {ids} min-isr {n}": "the same, with min.insync.replicas",
    "topic {topic} replicas {ids} with {keys}": "the same, with other configs",
    "topic {topic} replicas {ids} min-isr {n} while nodes are down": "with fewer in sync",
    # Actions of clients.
    "produce {topic} {n}": "send records with acks=all: all must be acknowledged",
    "produce {topic} {n} acks {acks}": "the same with other acks",
    "produce {topic} {n} acks {acks} fails": "none may be acknowledged",
    "produce {topic} {n} acks {acks} takes {ms} ms": "acknowledged, not earlier after the last cut",
    "keep producing {topic}": "an idempotent producer with acks=all in the background",
    "stop producing": "until all that was sent is acknowledged or given up",
    "consume {topic} as {group}": "a member reads to the end, commits and leaves",
    "keep consuming {topic} as {group}": "a member in the background that commits what it reads",
    "stop consuming": "once the members have come to the end",
    # What transactional producers do. Each is a process, and its name is its transactional id.
    "producer {actor}": "one of the Barnabas client; it is initialized then",
    "producer {actor} as {b_actor}": "with the transactional id of another one, which it fences",
    "producer {actor} with timeout {ms} ms": "with a transaction timeout; else it is 5 minutes",
    "librdkafka producer {actor}": "the same of librdkafka",
    "librdkafka producer {actor} as {b_actor}": "the same of librdkafka",
    "librdkafka producer {actor} with timeout {ms} ms": "the same of librdkafka",
    "{actor} begins": "a transaction",
    "{actor} sends {n} to {topic}": "records, which must be acknowledged",
    "{actor} cannot send to {topic}": "a record is refused for good",
    "{actor} sends offset {n} of {topic} for {group}": "as a part of the transaction",
    "{actor} commits": "it must succeed",
    "{actor} aborts": "it must succeed",
    "{actor} starts to commit": "without waiting for the response",
    "{actor} starts to abort": "without waiting for the response",
    "{actor} has ended it": "what it started to commit or abort has succeeded",
    "{actor} cannot commit": "the commit is refused for good",
    "kill producer {actor}": "kill -9 of its process",
    "pause producer {actor}": "SIGSTOP of its process",
    "resume producer {actor}": "SIGCONT of its process",
    "keep transacting {topic} {b_topic}": "both clients in the background, every third is aborted",
    "keep transacting {topic} {b_topic} with {word}": "one client: `barnabas` or `librdkafka`",
    "await {n} transactions": "so many more commits of each client in the background",
    "stop transacting": "the last transactions have ended then",
    "keep reading {topic} committed": "both clients in the background, to the end of the story",
    # What happens to nodes.
    "kill {node}": "kill -9",
    "stop {node}": "a clean stop",
    "start {node}": "start it again and wait until it is ready",
    "launch {node}": "start it again without waiting",
    "restart {node}": "a clean stop, and a start",
    "pause {node}": "SIGSTOP",
    "resume {node}": "SIGCONT",
    "wipe {node}": "delete all it has stored; it must be down",
    "fill disk of {node}": "until nothing can be written",
    "free disk of {node}": "there is room again",
    "expect {node} down": "it has ended by itself",
    "{node} loses the last {n} records of {topic}": "as a loss of power takes them; while down",
    # What happens to links; they need relays.
    "cut {who} from {b_who}": "connections end, new ones too",
    "stall {who} from {b_who}": "connections stay, no byte passes",
    "delay {who} to {b_who} by {ms} ms": "bytes pass later",
    "heal": "all links are as usual again",
    # What operators do.
    "coordinate {word} on {ids}": "move the partition of `groups` or `transactions`; first leads",
    "reassign {topic} to {ids}": "start to move a topic's partition",
    "elect preferred leader of {topic}": "by the admin API",
    "elect unclean leader of {topic}": "by the admin API",
    "await {n} ms": "let time pass: only for what must not happen meanwhile",
    # What must be so.
    "expect leader of {topic} = {ids}": "none: the partition has no leader",
    "expect leader of {topic} in {ids}": "one of them",
    "expect isr of {topic} = {ids}": "the in-sync replicas, in any order",
    "expect elr of {topic} = {ids}": "the eligible leader replicas (KIP-966)",
    "expect replicas of {topic} = {ids}": "the replicas, in any order",
    "expect epoch of {topic} = {n}": "the leader epoch",
    "expect log end of {topic} on {n} = {m_n}": "by the segment files of that node",
    "expect epochs of {topic} on {n} = {rest}": "EPOCH:START of its log, from its batches",
    "expect log of {n} = log of {m_n}": "segment files hold the same bytes, of all topics",
    "expect {topic} holds {n} records": "as a consumer reads it",
    "expect committed of {group} on {topic} = {n}": "the group's offset",
    "expect controller is not {node}": "another one has become active",
    "expect brokers {ids}": "those that clients are told of: registered, not fenced",
    "expect no failed sends": "of the producers in the background",
    "expect log of {n} mentions {rest}": "the node's log file has these words",
    "expect transaction of {actor} = {word}": "its state, by its coordinator: Ongoing...",
    "expect {topic} shows {n} records": "to read_committed; transactions may be open",
    "expect offset of {group} on {topic} pending": "a transaction decides on it (KIP-447)",
    "expect no failed transactions": "of those in the background",
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
    # By the names of places.
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
        StoryError: a line that is no command, or a story without words on what it is about.
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
        raise StoryError(f"{name}:1: a story opens with what it is about: # ...")
    if not any(step.command.endswith(("brokers", "controllers")) for step in steps):
        raise StoryError(f"{name}: nothing starts brokers: 3 brokers")
    return Story(name, " ".join(about), tuple(steps))


def _parse_line(name: str, number: int, line: str) -> Step:
    for command, pattern in _PATTERNS:
        found = pattern.fullmatch(line)
        if found:
            return Step(number, line, command, found.groupdict())
    near = difflib.get_close_matches(line, COMMANDS, 3, 0.3)
    hint = "".join(f"\n    {each}" for each in near or sorted(COMMANDS))
    raise StoryError(f"{name}:{number}: no command: {line}\n  did you mean{hint}")


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
