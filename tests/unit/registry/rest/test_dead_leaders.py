"""A change that is forwarded to a leader which has ended."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from barnabas.registry.errors import RegistryError
from barnabas.registry.leader.election import RegistryIdentity
from barnabas.registry.rest import forwarding
from barnabas.registry.rest.forwarding import LeaderForwarder
from barnabas.testing.free_ports import HOST, free_ports
from unit.serializers.registry_server import RegistryServer

BODY = json.dumps({"schema": '"string"'}).encode()


class KnownLeaders:
    """What a process believes about the leader: the next entry at each question, then the last."""

    def __init__(self, *leaders: RegistryIdentity | None) -> None:
        self._leaders = list(leaders)

    async def leader(self) -> RegistryIdentity | None:
        return self._leaders.pop(0) if len(self._leaders) > 1 else self._leaders[0]


class ReadAll:
    """A reader that has read everything."""

    async def read_to_end(self, _timeout_s: float) -> None:
        pass


class RegistrationCall:
    """The call of a client that registers a schema."""

    def __init__(self) -> None:
        path = b"/subjects/a/versions"
        scope = {"type": "http", "method": "POST", "raw_path": path, "query_string": b""}
        self.request = Request({**scope, "path": path.decode(), "headers": []})


def forwarded(*leaders: RegistryIdentity | None) -> Response | None:
    given: Any = KnownLeaders(*leaders), ReadAll()
    call: Any = RegistrationCall()
    return asyncio.run(LeaderForwarder(*given).forwarded(call, BODY))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_PAUSE_S", 0.0)


@pytest.fixture
def dead() -> RegistryIdentity:
    return RegistryIdentity(HOST, free_ports(1)[0])


def test_the_next_leader_gets_the_request(dead: RegistryIdentity) -> None:
    with RegistryServer() as server:
        port = int(server.url.rpartition(":")[2])
        response = forwarded(dead, dead, RegistryIdentity(HOST, port))
    assert response is not None
    assert json.loads(response.body) == {"id": 1}
    assert server.requests == ["POST /subjects/a/versions"]


def test_the_process_itself_may_be_the_next_leader(dead: RegistryIdentity) -> None:
    assert forwarded(dead, None) is None


def test_a_request_fails_if_no_other_process_leads(dead: RegistryIdentity) -> None:
    with pytest.raises(RegistryError, match=r"the leader does not answer: .*refused") as raised:
        forwarded(dead)
    assert raised.value.code == 50003
