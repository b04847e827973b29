"""One valid request of each API for delegation tokens; see `valid_requests`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Scene

    Make = Callable[[Scene], dict[str, Any]]


def _create_delegation_token(scene: Scene) -> dict[str, Any]:
    owner = {"owner_principal_type": "User", "owner_principal_name": "owner"}
    renewers = [{"principal_type": "User", "principal_name": "renewer"}]
    return {"renewers": renewers, "max_lifetime_ms": -1, **(owner if scene.version >= 3 else {})}


def _renew_delegation_token(_scene: Scene) -> dict[str, Any]:
    return {"hmac": bytes(64), "renew_period_ms": -1}


def _expire_delegation_token(_scene: Scene) -> dict[str, Any]:
    return {"hmac": bytes(64), "expiry_time_period_ms": -1}


def _describe_delegation_token(_scene: Scene) -> dict[str, Any]:
    return {"owners": [{"principal_type": "User", "principal_name": "owner"}]}


TOKENS: dict[ApiKey, dict[str, Make]] = {
    ApiKey.CREATE_DELEGATION_TOKEN: {"create delegation token": _create_delegation_token},
    ApiKey.RENEW_DELEGATION_TOKEN: {"renew delegation token": _renew_delegation_token},
    ApiKey.EXPIRE_DELEGATION_TOKEN: {"expire delegation token": _expire_delegation_token},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {"describe delegation token": _describe_delegation_token},
}
