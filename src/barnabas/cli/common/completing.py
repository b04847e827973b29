"""Shell completion of topic names, group names and config keys.

Completion must never hang or print errors: a broker that does not answer in time gives no names.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

from barnabas.cli.profiles.selection import select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.client.facade import Client

__all__ = ["complete_config_keys", "complete_groups", "complete_topics"]

_TIMEOUT_MS = 500


def complete_topics(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the matching topic names; internal topics only if an underscore was typed."""
    internal = incomplete.startswith("_")
    return _requested(ctx, incomplete, lambda client: client.topics(internal=internal))


def complete_groups(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the matching group names."""
    return _requested(
        ctx, incomplete, lambda client: [group.group_id for group in client.admin.list_groups()]
    )


def complete_config_keys(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the matching config keys of the given resource type, without asking a broker.

    Only the keys of topics and brokers are known here.
    """
    kind = ctx.params.get("kind")
    if kind == "topic":
        from barnabas.storage.config import TOPIC_CONFIGS as KEYS
    elif kind == "broker":
        from barnabas.server.configs.configuration import BROKER_KEYS as KEYS
    else:
        return []
    return _beginning((key.name for key in KEYS), incomplete)


def _requested(
    ctx: click.Context, incomplete: str, request: Callable[[Client], Iterable[str]]
) -> list[str]:
    from barnabas.client.errors import ClientError
    from barnabas.client.facade import Client

    # This process only completes names, so its log would disturb the shell.
    logging.disable()
    limits = dict.fromkeys(
        ("default_api_timeout_ms", "request_timeout_ms", "socket_connection_setup_timeout_ms"),
        _TIMEOUT_MS,
    )
    try:
        given = ctx.params.get
        chosen = select(given("bootstrap"), (), given("profile"), given("config_file"))
        settings = dict(each.split("=", 1) for each in chosen.properties)
        with Client(chosen.bootstrap, **{**settings, **limits}) as client:
            return _beginning(request(client), incomplete)
    except (ClientError, click.UsageError):
        return []


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
