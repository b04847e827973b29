"""The options of `barnabas start`, and reading them without click."""

from __future__ import annotations

from typing import NamedTuple

_TAKES_VALUE = ("--listen", "--data-dir", "--set", "--metrics", "--log-format", "--log-level")


class StartOptions(NamedTuple):
    """What the user asked for."""

    # A Java .properties file, or None.
    properties_file: str | None = None
    # "HOST:PORT"; None: from the file, else the default.
    listen: str | None = None
    data_dir: str | None = None
    # KEY=VALUE each; the last of a key wins, and over the file.
    settings: tuple[str, ...] = ()
    # "HOST:PORT" of the metrics listener, "text" or "json", and the level of the log; None: from
    # the file, else the default.
    metrics: str | None = None
    log_format: str | None = None
    log_level: str | None = None

    @classmethod
    def parse(cls, words: list[str]) -> StartOptions | None:
        """The options in `words`.

        Returns:
            None when they hold anything that only click answers: help, or a mistake.
        """
        single: dict[str, str] = {}
        settings: list[str] = []
        file: str | None = None
        rest = iter(words)
        for word in rest:
            name, equals, attached = word.partition("=")
            if name in _TAKES_VALUE:
                value = attached if equals else next(rest, None)
                if value is None or name in single:
                    return None
                if name == "--set":
                    settings.append(value)
                else:
                    single[name] = value
            elif word.startswith("-") or file is not None:
                return None
            else:
                file = word
        return cls(
            file,
            single.get("--listen"),
            single.get("--data-dir"),
            tuple(settings),
            single.get("--metrics"),
            single.get("--log-format"),
            single.get("--log-level"),
        )
