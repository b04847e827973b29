"""Topics, partitions and groups that a page asks for and that do not exist, in plain words."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from barnabas.client.errors import BrokerError, ClientError, UnknownPartitionError
from barnabas.console.forms import query_fields
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

    from barnabas.client.facade import Client
    from barnabas.console.cluster_access import ClusterAccess

_TOPIC_CODES = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
# Fields of addresses that name a topic.
_TOPIC_FIELDS = ("topic", "name", "like", "target")
_MEANT = re.compile(r"did you mean ([^?]+)\?")
# A broker may learn of a new topic a moment after the response to its creation.
_TRIES = 3
_PAUSE_S = 0.25


def absent_text(error: Exception, request: Request) -> str:
    """Return what an error of the client says does not exist; "" for another error."""
    code = getattr(error, "error_code", None)
    query = query_fields(request)
    if isinstance(error, UnknownPartitionError):
        has = (error.detail or "").split(";")[0]
        return f"There is no partition {error.subject}: {has}."
    if code in _TOPIC_CODES:
        named = next(filter(None, map(query.stripped, _TOPIC_FIELDS)), "")
        subject = error.subject if isinstance(error, BrokerError) else ""
        meant = _MEANT.search(str(error))
        hint = f" Did you mean {meant[1]}?" if meant else ""
        return f"This cluster has no topic {named or subject}.{hint}"
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return f"This cluster has no group {query.stripped('id') or query.stripped('target')}."
    return ""


def absent_topics(client: Client, names: Iterable[str]) -> list[str]:
    """Return the names for which there is no topic, in order.

    Raises:
        ClientError: A topic could not be described for another reason.
    """
    wanted = sorted(names)
    if not wanted:
        return []
    absent = []
    for name, found in client.admin.describe_topic_partitions(wanted).items():
        if isinstance(found, ClientError):
            if found.error_code not in _TOPIC_CODES:
                raise found
            absent.append(name)
    return absent


async def require_topic(cluster: ClusterAccess, name: str) -> int:
    """Return the number of partitions of a topic.

    Raises:
        ClientError: It does not exist, or the brokers do not respond.
    """
    tries = 0
    while True:
        tries += 1
        described = await cluster.call(
            lambda client: client.admin.describe_topic_partitions([name])
        )
        found = described[name]
        if not isinstance(found, ClientError):
            return len(found.partitions)
        if tries == _TRIES or found.error_code not in _TOPIC_CODES:
            raise found
        await asyncio.sleep(_PAUSE_S)
