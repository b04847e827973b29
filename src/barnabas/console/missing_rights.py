"""Errors of a cluster as statuses of HTTP, and the access control entry that would help."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from barnabas.client.errors import BrokerError, ClientError
from barnabas.console.access.users import acting_user
from barnabas.console.cluster_access import ClusterDownError
from barnabas.console.forms import query_fields
from barnabas.console.frame import frame_of
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from starlette.requests import Request

    from barnabas.console.forms import Fields

# Types of resources, as `barnabas acls add` names them.
_TOPIC, _GROUP, _CLUSTER = "--topic", "--group", "--cluster"
_REFUSED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _TOPIC,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _GROUP,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _CLUSTER,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "--transactional-id",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "--user",
}
_ABSENT = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    ErrorCode.RESOURCE_NOT_FOUND,
)
# The operation that a path needs on a type of resource. The first match counts.
_OPERATIONS = (
    (_TOPIC, "/message", "read"),
    (_TOPIC, "/produce", "write"),
    (_GROUP, "/group/reset", "read"),
    ("", "/topics/create", "create"),
    (_CLUSTER, "/broker", "describe_configs"),
    ("", "/config", "alter_configs"),
    ("", "/delete", "delete"),
)
# Names that a shell does not have to be told with quotes.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")


def status_of(error: ClientError) -> int:
    """Return the status of the page that shows an error of the client."""
    if isinstance(error, ClusterDownError):
        return 503
    if error.error_code in _REFUSED:
        return 403
    if error.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return 400
    return 404 if error.error_code in _ABSENT else 502


def missing_right(error: Exception, request: Request, form: Fields | None = None) -> str:
    """Return the access control entry that a refused request needs, in words; "" for other errors.

    Args:
        error: The error.
        request: The request that got it.
        form: The form that was sent; None for the address of a page.
    """
    # The problem of a field may have an error of the client as its cause.
    cause = error if isinstance(error, ClientError) else error.__cause__
    code = cause.error_code if isinstance(cause, ClientError) else None
    if cause is None or code not in _REFUSED:
        return ""
    kind = _REFUSED[code]
    principal, operation = _principal(request), _operation(request, kind)
    command = f"barnabas acls add {principal} --operation {operation} {kind}"
    if kind != _CLUSTER:
        command += " " + _quoted(_name(cause, form or query_fields(request), kind))
    return f"The cluster refuses this to {principal}. An entry that allows it: {command}"


def _operation(request: Request, kind: str) -> str:
    path = frame_of(request).path(request)
    for of_kind, part, operation in _OPERATIONS:
        if of_kind in ("", kind) and part in path and (of_kind or request.method == "POST"):
            return operation
    return "describe" if request.method == "GET" else "alter"


def _name(error: BaseException, fields: Fields, kind: str) -> str:
    named = ("id", "name") if kind == _GROUP else ("topic", "name")
    for each in named:
        if fields.stripped(each):
            return fields.stripped(each)
    subject = error.subject if isinstance(error, BrokerError) else ""
    return subject if _PLAIN_NAME.fullmatch(subject) else "NAME"


def _principal(request: Request) -> str:
    """Return the principal that the brokers know the console by."""
    user = acting_user.get()
    if user is not None:
        return _quoted(f"User:{user.name}")
    client = {
        key.replace("_", "."): value for key, value in frame_of(request).settings.client.items()
    }
    name = client.get("sasl.plain.username") or client.get("sasl.username")
    return _quoted(f"User:{name}") if name else "User:NAME"


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name.replace(":", "")) else "'" + name + "'"
