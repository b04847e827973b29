"""Requests to a schema registry, and brokers whose groups form at once."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from typing import Any

SECONDS = 60
# A broker whose groups form at once and may have short sessions.
QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
# Timeouts of the group, so that a dead leader is replaced soon.
QUICK_SESSION = (*("-X", "session.timeout.ms=2000"), *("-X", "heartbeat.interval.ms=200"))


def exchange(
    method: str,
    url: str,
    body: object = None,
    headers: dict[str, str] | None = None,
    trust: ssl.SSLContext | None = None,
) -> tuple[int, Any, dict[str, str]]:
    """Send a request; return the status, the JSON and the headers of the response."""
    data = None if body is None else json.dumps(body).encode()
    given = {"Content-Type": "application/vnd.schemaregistry.v1+json", **(headers or {})}
    sent = urllib.request.Request(url, data, given, method=method)
    try:
        with urllib.request.urlopen(sent, timeout=SECONDS, context=trust) as response:
            return response.status, json.loads(response.read()), dict(response.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read()), dict(error.headers)


def request(
    method: str, url: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Send a request; return the status and the JSON of the response."""
    status, answer, _ = exchange(method, url, body, headers)
    return status, answer


def register(url: str, subject: str, schema: str) -> int:
    """Register a schema; return its id."""
    status, answer = request("POST", f"{url}/subjects/{subject}/versions", {"schema": schema})
    assert status == 200, answer
    return int(answer["id"])
