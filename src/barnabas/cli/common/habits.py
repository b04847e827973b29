"""Words and options of other tools that users type from habit, and the commands to use instead.

The other tools are kcat, the shell scripts of Apache Kafka, rpk and kaf. What means the same here
is accepted: `topics --list`, and options of the client before the command. For everything
else, the error message names the command.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# Words in the place of a command -> the command to use.
COMMANDS = {
    # kcat's modes
    "-C": "consume --from beginning",
    "-P": "produce",
    "-Q": "consume --timestamp",
    "-G": "consume --group",
    # Apache Kafka's scripts
    "kafka-acls": "acls",
    "kafka-broker-api-versions": "features list",
    "kafka-client-metrics": "configs",
    "kafka-cluster": "brokers",
    "kafka-configs": "configs",
    "kafka-console-consumer": "consume",
    "kafka-console-producer": "produce",
    "kafka-console-share-consumer": "consume --share",
    "kafka-consumer-groups": "groups",
    "kafka-consumer-perf-test": "bench consume",
    "kafka-delegation-tokens": "tokens",
    "kafka-delete-records": "topics purge",
    "kafka-dump-log": "log dump",
    "kafka-e2e-latency": "bench latency",
    "kafka-features": "features",
    "kafka-get-offsets": "topics describe",
    "kafka-groups": "groups",
    "kafka-leader-election": "partitions elect",
    "kafka-log-dirs": "log-dirs",
    "kafka-metadata-quorum": "quorum describe",
    "kafka-producer-perf-test": "bench produce",
    "kafka-reassign-partitions": "partitions reassign",
    "kafka-server-start": "start",
    "kafka-share-groups": "groups",
    "kafka-storage": "format",
    "kafka-streams-groups": "groups",
    "kafka-topics": "topics",
    "kafka-transactions": "transactions",
    "zookeeper-server-start": "start",
    # rpk and kaf
    "acl": "acls",
    "balancer": "rebalance",
    "config": "configs",
    "create": "topics create",
    "decommission": "rebalance --exclude-broker",
    "delete": "topics delete",
    "describe": "topics describe",
    "drain": "rebalance --exclude-broker",
    "group": "groups",
    "health": "doctor",
    "info": "metadata",
    "lag": "groups describe",
    "list": "topics list",
    "logdirs": "log-dirs",
    "ls": "topics list",
    "node": "brokers",
    "nodes": "brokers list",
    "offsets": "topics describe",
    "partition": "partitions",
    "ping": "doctor",
    "query": "consume --timestamp",
    "quota": "quotas",
    "reassign": "partitions reassign",
    "reset": "groups reset",
    "run": "start",
    "seek": "groups reset",
    "serve": "start",
    "status": "doctor",
    "tail": "consume",
    "token": "tokens",
    "topic": "topics",
    "transaction": "transactions",
    "txn": "transactions",
    "user": "users",
}
# Words below a command -> the subcommand. Only existing subcommands are suggested.
SUBCOMMANDS = {
    "add": ("create", "set"),
    "add-partitions": ("alter",),
    "alter": ("set",),
    "alter-config": ("alter", "set"),
    "create": ("add",),
    "del": ("delete", "remove"),
    "delete": ("remove", "unset", "expire"),
    "delete-records": ("purge",),
    "edit": ("alter", "set"),
    "get": ("describe", "list"),
    "info": ("describe", "list"),
    "ls": ("list",),
    "new": ("create", "add"),
    "offset-delete": ("delete-offsets",),
    "reset-offsets": ("reset",),
    "remove": ("delete", "unset"),
    "rm": ("delete", "remove"),
    "seek": ("reset",),
    "set": ("alter",),
    "show": ("describe", "list"),
    "status": ("describe",),
    "trim-prefix": ("purge",),
    "truncate": ("purge",),
    "unregister": ("remove",),
    "update": ("alter", "set"),
}
# Words below a command -> another command.
ELSEWHERE = {
    ("brokers", "decommission"): "rebalance --exclude-broker",
    ("configs", "alter"): "configs set TYPE NAME KEY=VALUE",
    ("groups", "lag"): "groups describe",
    ("topics", "consume"): "consume",
    ("topics", "produce"): "produce",
}
# Options of other tools by command, "" for all commands -> the text after "use".
OPTIONS = {
    "": {
        "--broker-list": "--bootstrap",
        "--brokers": "--bootstrap",
        "--consumer.config": "--config-file",
        "--producer.config": "--config-file",
        "--producer-property": "--property",
        "--consumer-property": "--property",
        "--zookeeper": "--bootstrap",
    },
    "acls": {
        "--allow-principal": "`barnabas acls add User:NAME`",
        "--deny-principal": "`barnabas acls add User:NAME --deny`",
    },
    "configs": {
        "--add-config": "`barnabas configs set TYPE NAME KEY=VALUE`",
        "--delete-config": "`barnabas configs unset TYPE NAME KEY`",
        "--entity-name": "`barnabas configs describe TYPE NAME`",
        "--entity-type": "`barnabas configs describe TYPE NAME`",
    },
    "consume": {
        "--max-messages": "--max-records",
        "--num": "--max-records",
        "--skip-message-on-error": "--on-error skip",
        "--timeout-ms": "--exit-at-end",
        "--formatter-property": "--key, --headers, --offsets, or --format",
        "--value-deserializer": "--as value=FORMAT",
        "--key-deserializer": "--as key=FORMAT",
        "-G": "--group",
        "-u": "no option: records are printed as they arrive",
    },
    "groups": {
        "--all-groups": "`barnabas groups list`, or name the groups",
    },
    "produce": {
        "--compression-codec": "--compression",
        "--reader-property": "--key-separator",
        "-l": "FILE without -l: each line is a record",
    },
    "topics": {
        "--replica-assignment": "`barnabas partitions reassign` after the creation",
        "--unavailable-partitions": "`barnabas partitions --unwell`",
        "--under-replicated-partitions": "`barnabas partitions --unwell`",
        "--under-min-isr-partitions": "`barnabas partitions --unwell`",
    },
}
# Keys of --property in Kafka's console tools by command -> the option to use.
_PROPERTIES = {
    "consume": {
        "key.separator": "--key-delimiter",
        "line.separator": "--delimiter",
        "null.literal": "--show-null",
        "print.headers": "--headers",
        "print.key": "--key",
        "print.offset": "--offsets",
        "print.partition": "--format '%p %s\\n'",
        "print.timestamp": "--format '%T %s\\n'",
        "print.value": "--format",
    },
    "produce": {
        "headers.separator": "--header or --from-json",
        "ignore.error": "no option: lines without the separator have no key",
        "key.separator": "--key-separator",
        "null.marker": "--empty-is-null",
        "parse.headers": "--header or --from-json",
        "parse.key": "--key-separator",
    },
}
# Options with which a client connects, and whether they have a value.
_CONNECTING = {
    "-b": True,
    "--bootstrap": True,
    "--bootstrap-server": True,
    "-X": True,
    "--property": True,
    "-F": True,
    "--config-file": True,
    "--command-config": True,
    "--profile": True,
    "--timeout": True,
    "-J": False,
    "--json": False,
    "--no-header": False,
}


def command_hint(word: str, commands: Collection[str]) -> str:
    """Return a sentence that names the command to use instead of a word; empty if unknown."""
    known = COMMANDS.get(word.removesuffix(".sh").removesuffix(".bat"))
    if known is not None:
        return f"Use `barnabas {known}`."
    close = difflib.get_close_matches(word, commands, n=1)
    return f"Did you mean {close[0]!r}?" if close else ""


def subcommand_hint(command: str, word: str, subcommands: Collection[str]) -> str:
    """Return a sentence that names the subcommand to use instead of a word.

    Args:
        command: The name of the command.
        word: The word behind it, without leading dashes.
        subcommands: The names of the subcommands.
    """
    elsewhere = ELSEWHERE.get((command, word))
    if elsewhere is not None:
        return f"Use `barnabas {elsewhere}`."
    for name in SUBCOMMANDS.get(word, ()):
        if name in subcommands:
            return f"Use `barnabas {command} {name}`."
    close = difflib.get_close_matches(word, subcommands, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Subcommands: {', '.join(subcommands)}."


def option_hint(command: str, option: str) -> str:
    """Return a sentence that names what to use instead of an option; empty if unknown.

    Args:
        command: The name of the first command.
        option: The option, with its dashes.
    """
    use = OPTIONS.get(command, {}).get(option) or OPTIONS[""].get(option)
    return "" if use is None else f"Use {use}."


def property_hint(command: str, key: str) -> str:
    """Return a sentence that names the option to use instead of a property; empty if unknown."""
    use = _PROPERTIES.get(command, {}).get(key)
    return "" if use is None else f"--property {key} is of Kafka's console tools: use {use}"


def options_last(arguments: Sequence[str]) -> list[str]:
    """Move options of the client from the beginning to the end, behind the command.

    kcat, rpk and kaf accept them in front: `kcat -b HOST:PORT -L`.
    """
    moved: list[str] = []
    rest = list(arguments)
    while rest:
        name, is_joined, _ = rest[0].partition("=")
        has_value = _CONNECTING.get(name)
        if has_value is None:
            break
        length = 2 if has_value and not is_joined else 1
        moved += rest[:length]
        rest = rest[length:]
    if not moved or not rest:
        return list(arguments)
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *moved, *rest[end:]]


def action_first(arguments: Sequence[str], subcommands: Collection[str]) -> list[str]:
    """Return the arguments with an action of Kafka's scripts, such as `--list`, as first word.

    Args:
        arguments: The words behind a command that has subcommands.
        subcommands: The names of the subcommands.
    """
    words = options_last(arguments)
    if not words or not words[0].startswith("-"):
        return words
    for index, word in enumerate(words):
        name = word.removeprefix("--")
        known = [name, *SUBCOMMANDS.get(name, ())]
        action = next((each for each in known if each in subcommands), None)
        if word.startswith("--") and action is not None:
            return [action, *words[:index], *words[index + 1 :]]
    return words
