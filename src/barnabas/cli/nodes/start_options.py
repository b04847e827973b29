"""The options of `barnabas start`, and a parser for them without click."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.nodes.start_report import StartError

if TYPE_CHECKING:
    from barnabas.cli.nodes.registry_child import RegistryOptions
    from barnabas.server.process.first_topics import NewTopic

FORMAT_KEY = "barnabas.log.format"
LEVEL_KEY = "barnabas.log.level"
REGISTRY_PREFIX = "barnabas.registry."

_TAKES_VALUE = (
    "--listen",
    "--port",
    "--data-dir",
    "--set",
    "--metrics",
    "--log-format",
    "--log-level",
    "--topic",
    "--ready-file",
    "--exit-with",
    "--remove-orphaned",
    "--registry",
    "--brokers",
)


class StartOptions(NamedTuple):
    """The options that the user gave."""

    # Path of a Java .properties file, "-" for standard input, or None.
    properties_file: str | None = None
    # "HOST:PORT". None: taken from the file, else the default.
    listen: str | None = None
    data_dir: str | None = None
    # KEY=VALUE items. The last value of a key wins, and overrides the file.
    settings: tuple[str, ...] = ()
    # "HOST:PORT" of the metrics listener, "text" or "json", and the level of the log. None: taken
    # from the file, else the default.
    metrics: str | None = None
    log_format: str | None = None
    log_level: str | None = None
    # A port of 127.0.0.1. None: `listen` applies.
    port: int | None = None
    # Whether to use a new data directory that is deleted when the broker ends.
    temporary: bool = False
    # NAME or NAME:PARTITIONS items.
    topics: tuple[str, ...] = ()
    # File to which the address is written when the broker is ready.
    ready_file: str | None = None
    # Id of a process. The broker ends when this process ends.
    exit_with: int | None = None
    # A directory to remove if the process of `exit_with` has ended first.
    remove_orphaned: str | None = None
    # "HOST:PORT" of a schema registry. None: taken from the file, else no registry.
    registry: str | None = None
    # "auto", or the number of broker processes. None: taken from the file, else one process.
    brokers: str | None = None

    @classmethod
    def parse(cls, words: list[str]) -> StartOptions | None:
        """Parse the options in `words`.

        Returns:
            None if click must handle them: a request for help, or a mistake.
        """
        single: dict[str, str] = {}
        repeated: dict[str, list[str]] = {"--set": [], "--topic": []}
        temporary = False
        file: str | None = None
        rest = iter(words)
        for word in rest:
            name, equals, attached = word.partition("=")
            if name in _TAKES_VALUE:
                value = attached if equals else next(rest, None)
                if value is None or name in single:
                    return None
                if name in repeated:
                    repeated[name].append(value)
                else:
                    single[name] = value
            elif word == "--temporary":
                temporary = True
            elif (word.startswith("-") and word != "-") or file is not None:
                return None
            else:
                file = word
        numbers = {name: single[name] for name in ("--port", "--exit-with") if name in single}
        if not all(value.isascii() and value.isdecimal() for value in numbers.values()):
            return None
        return cls(
            properties_file=file,
            listen=single.get("--listen"),
            data_dir=single.get("--data-dir"),
            settings=tuple(repeated["--set"]),
            metrics=single.get("--metrics"),
            log_format=single.get("--log-format"),
            log_level=single.get("--log-level"),
            port=int(numbers["--port"]) if "--port" in numbers else None,
            temporary=temporary,
            topics=tuple(repeated["--topic"]),
            ready_file=single.get("--ready-file"),
            exit_with=int(numbers["--exit-with"]) if "--exit-with" in numbers else None,
            remove_orphaned=single.get("--remove-orphaned"),
            registry=single.get("--registry"),
            brokers=single.get("--brokers"),
        )


def first_topics(options: StartOptions) -> list[NewTopic]:
    """Return the topics of --topic.

    Raises:
        StartError: A topic cannot be read.
    """
    if not options.topics:
        # Most starts have none, so they do not import the module.
        return []
    from barnabas.server.process.first_topics import TopicError, parse_topic

    try:
        return [parse_topic(text) for text in options.topics]
    except TopicError as error:
        raise StartError(f"--topic: {error}") from error


def registry_options(properties: dict[str, str]) -> RegistryOptions | None:
    """Take the keys of a registry out of the properties; return None if there are none."""
    if not any(name.startswith(REGISTRY_PREFIX) for name in properties):
        return None
    from barnabas.cli.nodes.registry_child import RegistryOptions, take_registry_properties

    log_format = properties.get(FORMAT_KEY, "text")
    log_level = properties.get(LEVEL_KEY, "warning")
    return RegistryOptions(take_registry_properties(properties), log_format, log_level)
