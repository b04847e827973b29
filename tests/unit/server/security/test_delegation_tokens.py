"""Logins by delegation tokens, and requests for tokens, on a simulated broker."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from barnabas.metadata.credentials import token_hmac
from barnabas.metadata.image import ClusterImage
from barnabas.network.principal import Principal
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.security import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from barnabas.protocol.records.security import DelegationTokenRecord
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.sasl.mechanism import SaslError
from barnabas.sasl.scram import ScramClient, ScramServer
from barnabas.sasl.scram_keys import ScramMechanism
from barnabas.server.security.sasl import mechanisms
from barnabas.server.security.sasl.mechanisms import ImageUsers, TokenUsers
from unit.server.security.authorizer.secured_broker import MARY, SecuredBroker, allowing

KEY = "a secret"
NOW_MS = 1_000_000
MECHANISMS = list(ScramMechanism)


class Clock:
    def wall_ms(self) -> int:
        return NOW_MS


class Cluster:
    """A cluster view whose image has tokens."""

    def __init__(self, *tokens: DelegationTokenRecord) -> None:
        image = ClusterImage()
        changes = {each.token_id: each for each in tokens}
        self.image = ClusterImage(tokens=image.tokens.with_changes(changes))


def token(
    token_id: str = "id", owner: str = "User:alice", expiry_ms: int = NOW_MS, max_ms: int = NOW_MS
) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=owner,
        requester="User:bob",
        renewers=[],
        issue_timestamp=1,
        max_timestamp=max_ms,
        expiration_timestamp=expiry_ms,
        token_id=token_id,
    )


def log_in(
    cluster: Cluster, mechanism: ScramMechanism, name: str, password: bytes, key: str = KEY
) -> Any:
    """Log in by a token, and return the identity."""
    users = ImageUsers(cluster, "cluster", TokenUsers(key, Clock()))  # type: ignore[arg-type]
    server = ScramServer(mechanism, users, "server-nonce")
    text = base64.b64encode(password).decode()
    client = ScramClient(mechanism, name, text, "client-nonce", {"tokenauth": "true"})
    first = server.respond(client.first())
    hash_password = client.prepare(first)
    assert hash_password is not None
    hash_password()
    proof = client.respond(first)
    assert proof is not None
    assert client.respond(server.respond(proof)) is None
    assert client.is_complete
    return server.identity


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_hmac_is_the_password_and_the_owner_the_user(mechanism: ScramMechanism) -> None:
    identity = log_in(Cluster(token()), mechanism, "id", token_hmac(KEY, "id"))
    assert (identity.name, identity.is_token, identity.expiry_ms) == ("alice", True, NOW_MS)


@pytest.mark.parametrize(
    ("stored", "name", "password"),
    [
        (token(), "other", token_hmac(KEY, "other")),
        (token(), "id", token_hmac("another key", "id")),
        (token(), "id", b""),
        (token(), "alice", token_hmac(KEY, "id")),
        (token(expiry_ms=NOW_MS - 1), "id", token_hmac(KEY, "id")),
        (token(expiry_ms=NOW_MS + 5, max_ms=NOW_MS - 1), "id", token_hmac(KEY, "id")),
        # The user alice is not the group alice.
        (token(owner="Group:alice"), "id", token_hmac(KEY, "id")),
        (token(owner="alice"), "id", token_hmac(KEY, "id")),
    ],
)
def test_a_login_is_refused(stored: DelegationTokenRecord, name: str, password: bytes) -> None:
    with pytest.raises(SaslError):
        log_in(Cluster(stored), ScramMechanism.SCRAM_SHA_256, name, password)


def test_without_a_secret_key_no_token_is_valid() -> None:
    with pytest.raises(SaslError):
        log_in(Cluster(token()), MECHANISMS[0], "id", token_hmac("", "id"), key="")


def test_a_kept_credential_is_the_one_that_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanisms, "KEPT_MAX", 2)
    cluster = Cluster(*(token(str(number)) for number in range(4)))
    users = TokenUsers(KEY, Clock())  # type: ignore[arg-type]
    first = [users.find(cluster.image.tokens, MECHANISMS[0], str(each)) for each in range(4)]
    assert len(users._kept) == 2
    again = [users.find(cluster.image.tokens, MECHANISMS[0], str(each)) for each in range(4)]
    assert first == again
    assert len({each.credential.stored_key for each in first if each is not None}) == 4
    assert users.find(ClusterImage().tokens, MECHANISMS[0], "3") is None


def creating(renewers: int = 0, owner: str | None = None) -> CreateDelegationTokenRequest:
    names = [
        CreatableRenewers(principal_type="User", principal_name=f"r{number}")
        for number in range(renewers)
    ]
    request = CreateDelegationTokenRequest(renewers=names, max_lifetime_ms=-1)
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = "User", owner
    return request


def describing(*owners: str) -> DescribeDelegationTokenRequest:
    named = [
        DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners
    ]
    return DescribeDelegationTokenRequest(owners=named or None)


@pytest.fixture
def broker() -> SecuredBroker:
    return SecuredBroker(delegation_token_secret_key=KEY)


def test_a_user_manages_own_tokens_only(broker: SecuredBroker) -> None:
    mary, eve = broker.mary, broker.client_of(Principal("eve"))
    made = mary.ask(creating(renewers=1_000), 3)
    assert made.error_code == ErrorCode.NONE
    assert bytes(made.hmac) == token_hmac(KEY, made.token_id)
    (shown,) = mary.ask(describing(), 3).tokens
    assert (shown.token_id, bytes(shown.hmac)) == (made.token_id, bytes(made.hmac))
    assert len(shown.renewers) == 1_000
    assert eve.ask(describing(), 3).tokens == []
    assert eve.ask(describing("mary"), 3).tokens == []
    assert len(broker.client_of(Principal("r999")).ask(describing("mary"), 3).tokens) == 1
    renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=-1)
    assert eve.ask(renewal, 2).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert mary.ask(renewal, 2).error_code == ErrorCode.NONE
    removal = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
    assert mary.ask(removal, 2).error_code == ErrorCode.NONE
    assert mary.ask(describing(), 3).tokens == []


def test_other_owners_and_their_tokens_need_rights(broker: SecuredBroker) -> None:
    refused = broker.mary.ask(creating(owner="ann"), 3)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    user = AclResourceType.USER
    broker.allow(allowing(AclOperation.CREATE_TOKENS, "User:ann", user))
    made = broker.mary.ask(creating(owner="ann"), 3)
    assert (made.error_code, made.principal_name) == (ErrorCode.NONE, "ann")
    own = broker.client_of(Principal("ann")).ask(creating(), 3)
    ids = {each.token_id for each in broker.mary.ask(describing("ann"), 3).tokens}
    # The client is the requester of one of both.
    assert ids == {made.token_id}
    broker.allow(allowing(AclOperation.DESCRIBE_TOKENS, "User:ann", user))
    ids = {each.token_id for each in broker.mary.ask(describing(), 3).tokens}
    assert ids == {made.token_id, own.token_id}


@pytest.mark.parametrize("principal", [None, Principal("mary", is_token=True)])
def test_clients_without_a_login_or_with_a_token_get_no_tokens(
    broker: SecuredBroker, principal: Principal | None
) -> None:
    client = broker if principal is None else broker.client_of(principal)
    requests = (
        (creating(), 3),
        (RenewDelegationTokenRequest(hmac=b"", renew_period_ms=-1), 2),
        (ExpireDelegationTokenRequest(hmac=b"", expiry_time_period_ms=-1), 2),
        (describing(), 3),
    )
    for request, version in requests:
        answer: Any = client.ask(request, version)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_each_version_can_be_encoded(broker: SecuredBroker, version: int) -> None:
    for error, request in ((0, creating()), (67, creating())):
        if error:
            request.renewers = [CreatableRenewers(principal_type="Group", principal_name="x")]
        made = broker.mary.ask(request, version)
        assert made.error_code == error
        assert made.token_requester_principal_name == ("mary" if version >= 3 else "")
    (shown,) = broker.mary.ask(describing(), version).tokens
    assert shown.token_requester_principal_name == ("mary" if version >= 3 else "")


def test_without_a_secret_key_tokens_are_switched_off() -> None:
    broker = SecuredBroker()
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert broker.mary.ask(creating(), 3).error_code == disabled
    assert broker.mary.ask(describing(), 3).error_code == disabled


def test_tokens_survive_a_restart_and_get_other_hmacs_with_another_key(
    broker: SecuredBroker,
) -> None:
    made = broker.mary.ask(creating(), 3)
    for key in (KEY, "another secret", KEY):
        broker.host.kill()
        broker.settings["delegation.token.secret.key"] = key
        broker.restart()
        mary = broker.client_of(MARY)
        (shown,) = mary.ask(describing(), 3).tokens
        assert shown.token_id == made.token_id
        assert (bytes(shown.hmac) == bytes(made.hmac)) is (key == KEY)
        renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=-1)
        error = ErrorCode.NONE if key == KEY else ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert mary.ask(renewal, 2).error_code == error


def test_the_controller_removes_expired_tokens() -> None:
    broker = SecuredBroker(
        delegation_token_secret_key=KEY, delegation_token_expiry_check_interval_ms="1000"
    )
    request = creating()
    request.max_lifetime_ms = 2_000
    assert broker.mary.ask(request, 3).error_code == ErrorCode.NONE
    stays = broker.mary.ask(creating(), 3)

    def ids() -> list[str]:
        return [each.token_id for each in broker.mary.ask(describing(), 3).tokens]

    assert len(ids()) == 2
    assert broker.world.run_until(lambda: ids() == [stays.token_id])
