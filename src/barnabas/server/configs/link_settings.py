"""Checks of links that clients change as dynamic configs of all brokers.

`barnabas links` and the brokers write these configs, and so do `kafka-configs.sh` and other admin
clients. A wrong value would only become a problem that the link shows, and an unknown name would
have no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.result import Refusal
from barnabas.metadata.configs_image import ALL_BROKERS
from barnabas.protocol.errors import ErrorCode
from barnabas.replication.links.link_table import (
    LINK_PREFIX,
    client_key_of,
    link_of,
    problem_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_HELP = "`barnabas links create --help` shows the settings of links"


def check_link_settings(resource: str, changes: Mapping[str, str | None]) -> None:
    """Check changes of links. Other configs are skipped.

    Args:
        resource: name of the broker resource; empty for all brokers.
        changes: new values by key; None for deleted keys.

    Raises:
        Refusal: INVALID_REQUEST for the configs of a single broker; INVALID_CONFIG for unknown
            names and for values that cannot be used.
    """
    for name, value in changes.items():
        if value is None or not name.startswith(LINK_PREFIX):
            continue
        if resource != ALL_BROKERS:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"{name} has no effect on a single broker: set it for all brokers, by "
                "`kafka-configs.sh --entity-default` or `barnabas configs set broker default`",
            )
        problem = problem_of(name, value) or _client_problem(name)
        if problem:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"{name}: {problem}; {_HELP}")


def _client_problem(name: str) -> str:
    """Return why a config has no key of a client; empty if it has one, or is no such config."""
    key = client_key_of(name)
    if key is None:
        return ""
    # Imported only for clusters with links.
    from barnabas.client.config import is_known

    return "" if is_known(key) else f"neither links nor clients have a key {key}"


def check_links_kept(current: Iterable[str], named: Collection[str]) -> None:
    """Check a request that deletes all configs that it does not name.

    Args:
        current: names of the configs that the resource has.
        named: names of the configs in the request.

    Raises:
        Refusal: INVALID_REQUEST if settings of links would be deleted, or the states of mirrors,
            to which clients could produce then.
    """
    lost = [each for each in current if each.startswith(LINK_PREFIX) and each not in named]
    if lost:
        links = sorted({link_of(each) for each in lost})
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"the request replaces all configs, so it would delete links ({', '.join(links)}) and "
            "their mirrors would become topics: send IncrementalAlterConfigs, as kafka-configs.sh "
            "and `barnabas configs set` do; `barnabas links delete` deletes a link",
        )
