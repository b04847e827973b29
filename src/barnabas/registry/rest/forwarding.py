"""Forwards changes to the leader: the whole request, once, with the header `X-Forward`.

A leader that has ended does not get the request. It then waits for the next leader, which the group
elects after the session of the dead one; Confluent's registry responds with an error at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from starlette.responses import Response

from barnabas.client.errors import ClientError
from barnabas.registry.errors import forwarding_failed, leader_unknown
from barnabas.registry.rest.http_call import accepted_type
from barnabas.runtime.web import WebRequest, exchange

if TYPE_CHECKING:
    import ssl

    from barnabas.registry.leader.leadership import Leadership
    from barnabas.registry.rest.http_call import Call
    from barnabas.registry.topic import TopicReader

_HEADER = "x-forward"
# Headers of the client that the leader needs, too.
_PASSED = ("accept", "authorization", "content-type")
_TIMEOUT_S = 30.0
# Attempts while no process listens at the leader's address, and the pause between two of them (s).
# Together they are longer than the session of a dead leader.
_ATTEMPTS = 60
_PAUSE_S = 0.25
# How long an answer waits until this process has read the change, too.
_READ_S = 2.0
_OK = 200
# Requests to the leader at the same time; further ones wait.
_CALLS_MAX = 16


class LeaderForwarder:
    """Sends requests to the leader; implements `Forwarder`.

    Args:
        leadership: Knows the leader.
        reader: Reads what the leader wrote, so that the next request to this process finds it.
        tls: Trusted certificates for leaders with HTTPS; None for those of the system.
        is_secure: Whether clients reach this process by HTTPS. Then their passwords are not
            forwarded without it.
    """

    def __init__(
        self,
        leadership: Leadership,
        reader: TopicReader,
        tls: ssl.SSLContext | None = None,
        *,
        is_secure: bool = False,
    ) -> None:
        self._leadership = leadership
        self._reader = reader
        self._tls = tls
        self._is_secure = is_secure
        self._free = asyncio.Semaphore(_CALLS_MAX)

    async def forwarded(self, call: Call, body: bytes) -> Response | None:
        """Return the leader's response; None if this process is the leader."""
        refusal = ""
        for _ in range(_ATTEMPTS):
            leader = await self._leadership.leader()
            if leader is None:
                return None
            if call.request.headers.get(_HEADER, "").lower() == "true":
                # The other process believes that this one leads: it will learn of the new leader.
                raise leader_unknown()
            if self._is_secure and leader.scheme != "https":
                words = f"the leader {leader.url} has no HTTPS, and this process has"
                raise forwarding_failed(words)
            try:
                return await self._response_of(leader.url, call, body)
            except ConnectionRefusedError as error:
                refusal = str(error)
            except OSError as error:
                raise forwarding_failed(f"the leader does not answer: {error}") from None
            await asyncio.sleep(_PAUSE_S)
        raise forwarding_failed(f"the leader does not answer: {refusal}")

    async def _response_of(self, leader: str, call: Call, body: bytes) -> Response:
        """Return the response of the leader with this URL.

        Raises:
            OSError: The leader was not reached, or did not respond.
        """
        headers = call.request.headers
        passed = {name: headers[name] for name in _PASSED if name in headers}
        scope = call.request.scope
        query = scope["query_string"].decode("ascii", "replace")
        path = scope["raw_path"].decode("ascii", "replace")
        request = WebRequest(
            url=f"{leader}{path}" + (f"?{query}" if query else ""),
            headers={**passed, _HEADER: "true"},
            body=body or None,
            method=call.request.method,
            timeout_s=_TIMEOUT_S,
            tls=self._tls,
        )
        async with self._free:
            answer = await asyncio.get_running_loop().run_in_executor(None, exchange, request)
        if answer.status == _OK:
            with contextlib.suppress(ClientError, TimeoutError):
                await self._reader.read_to_end(_READ_S)
        media_type = accepted_type(headers.get("accept"))
        return Response(answer.body, answer.status, media_type=media_type)
