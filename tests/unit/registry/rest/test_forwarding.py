"""Two registries on the loop of a broker: the follower answers changes as the leader does."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from barnabas.registry.config import RegistrySettings
from barnabas.registry.serving import running_registry
from barnabas.runtime.web import verifying_context
from barnabas.testing.broker_on_loop import running_broker
from certificates import Authority, shared_authority
from registry_requests import exchange

STRING = {"schema": '"string"'}
Ask = Callable[..., Coroutine[Any, Any, tuple[int, Any]]]


def requests_to(url: str, trust: ssl.SSLContext | None) -> Ask:
    """Return a function that sends a request to a registry."""

    async def ask(
        method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        given = {"Content-Type": "application/json", **(headers or {})}
        status, answer, _ = await asyncio.to_thread(
            exchange, method, url.rstrip("/") + path, body, given, trust
        )
        return status, answer

    return ask


def run(
    test: Callable[[Ask, Ask], Coroutine[Any, Any, None]],
    tls: dict[str, Any],
    tls_of_follower: dict[str, Any] | None = None,
) -> None:
    """Run a test with a leader and a follower."""
    trust = tls.get("peer_tls")
    other = tls if tls_of_follower is None else tls_of_follower

    async def main() -> None:
        async with running_broker() as broker:
            leader = RegistrySettings(broker.bootstrap, **tls)
            follower = RegistrySettings(broker.bootstrap, leader_eligibility=False, **other)
            async with (
                running_registry(leader, lambda: None) as first,
                running_registry(follower, lambda: None) as second,
            ):
                await test(requests_to(first, trust), requests_to(second, trust))

    asyncio.run(main())


async def change_all(leader: Ask, follower: Ask) -> None:
    """Send each change to the follower, and read its result at both."""
    versions = "/subjects/a%2Fb/versions"
    assert await follower("POST", versions, STRING) == (200, {"id": 1})
    assert await follower("GET", versions) == (200, [1])
    assert await leader("GET", versions) == (200, [1])
    assert await follower("PUT", "/config/a", {"compatibility": "none"}) == (
        200,
        {"compatibility": "NONE"},
    )
    assert await follower("GET", "/config/a") == (200, {"compatibilityLevel": "NONE"})
    assert await leader("GET", "/config/a") == (200, {"compatibilityLevel": "NONE"})
    assert await follower("DELETE", "/config/a") == (200, {"compatibilityLevel": "NONE"})
    assert await follower("PUT", "/mode/a", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    refused = await follower("POST", "/subjects/a/versions", STRING)
    assert (refused[0], refused[1]["error_code"]) == (422, 42205)
    assert await follower("DELETE", "/mode/a") == (200, {"mode": "READONLY"})
    assert await follower("DELETE", f"{versions}/1") == (200, 1)
    assert await follower("DELETE", f"{versions}/1?permanent=true") == (200, 1)
    assert await leader("GET", "/subjects?deleted=true") == (200, [])
    missing = await follower("DELETE", "/subjects/a")
    assert (missing[0], missing[1]["error_code"]) == (404, 40401)


def test_a_follower_forwards_each_change() -> None:
    run(change_all, {})


def test_a_forwarded_request_is_not_forwarded_again() -> None:
    async def test(_leader: Ask, follower: Ask) -> None:
        headers = {"X-Forward": "true"}
        status, answer = await follower("POST", "/subjects/a/versions", STRING, headers)
        assert (status, answer["error_code"]) == (500, 50004)

    run(test, {})


def test_each_schema_has_one_id_in_all_processes() -> None:
    async def test(leader: Ask, follower: Ask) -> None:
        def body(number: int) -> dict[str, str]:
            return {"schema": f'{{"type":"fixed","name":"f{number}","size":1}}'}

        asked = [
            ask("POST", f"/subjects/{subject}-{number}/versions", body(number))
            for number in range(5)
            for subject in ("a", "b")
            for ask in (leader, follower)
        ]
        found = await asyncio.gather(*asked)
        ids = [answer["id"] for _, answer in found]
        assert sorted(set(ids)) == [1, 2, 3, 4, 5]
        assert all(len(set(ids[each : each + 4])) == 1 for each in range(0, 20, 4))

    run(test, {})


def trusting(authority: Authority, directory: Path) -> ssl.SSLContext:
    file = directory / "ca.pem"
    file.write_text(authority.pem)
    return verifying_context(str(file))


def test_changes_are_forwarded_over_tls(tmp_path: Path) -> None:
    authority = shared_authority()
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(authority.issue("CN=registry").write_pem(tmp_path / "registry.pem"))
    trust = trusting(authority, tmp_path)
    run(change_all, {"tls": own, "peer_tls": trust})


def test_a_follower_with_tls_sends_no_change_to_a_leader_without_it(tmp_path: Path) -> None:
    authority = shared_authority()
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(authority.issue("CN=registry").write_pem(tmp_path / "registry.pem"))
    trust = trusting(authority, tmp_path)

    async def test(_leader: Ask, follower: Ask) -> None:
        status, answer = await follower("POST", "/subjects/a/versions", STRING)
        assert (status, answer["error_code"]) == (500, 50003)
        assert "has no HTTPS" in answer["message"]

    run(test, {"peer_tls": trust}, {"tls": own, "peer_tls": trust})
