"""Creation, renewal, expiry and removal of delegation tokens, and their records."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.controller.credentials import RENEWERS_MAX, TokenControl
from barnabas.controller.result import ControllerView
from barnabas.metadata.credentials import token_hmac
from barnabas.metadata.image import ClusterImage
from barnabas.network.principal import Principal
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.security import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from barnabas.protocol.records.nodes import FeatureLevelRecord
from barnabas.runtime.rng import SeededRng
from steps import finish
from unit.controller.parts import applied, config_of

if TYPE_CHECKING:
    from collections.abc import Generator

ALICE, BOB, CAROL = Principal("alice"), Principal("bob"), Principal("carol")
KEY = "a secret"
LONG_MAX = (1 << 63) - 1
HOUR_MS = 3_600_000


class SettableClock:
    """A wall clock that the test sets, in ms."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> float:
        return 0.0


class Tokens:
    """A controller's tokens with the image that its records make."""

    def __init__(self, metadata_version: int = 33, **config: str) -> None:
        self.clock = SettableClock()
        given = {"delegation__token__secret__key": KEY, **config}
        self.control = TokenControl(config_of(**given), SeededRng(1), self.clock)
        level = FeatureLevelRecord(name="metadata.version", feature_level=metadata_version)
        self.image = applied(ClusterImage(), [(level, 0)])

    def _done(self, steps: Generator[None, None, Any]) -> Any:
        result = finish(steps)
        self.image = applied(self.image, result.records)
        return result.response

    def _view(self, requester: Principal) -> ControllerView:
        return ControllerView(self.image, 0, requester=requester)

    def create(
        self,
        requester: Principal = ALICE,
        renewers: tuple[tuple[str, str], ...] = (),
        lifetime_ms: int = -1,
        owner: tuple[str, str] | None = None,
    ) -> CreateDelegationTokenResponse:
        request = CreateDelegationTokenRequest(
            renewers=[CreatableRenewers(principal_type=a, principal_name=b) for a, b in renewers],
            max_lifetime_ms=lifetime_ms,
        )
        if owner is not None:
            request.owner_principal_type, request.owner_principal_name = owner
        made = self._done(self.control.create(self._view(requester), request))
        assert isinstance(made, CreateDelegationTokenResponse)
        return made

    def renew(self, secret: bytes, period_ms: int = -1, by: Principal = ALICE) -> tuple[int, int]:
        request = RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms)
        made = self._done(self.control.renew(self._view(by), request))
        return made.error_code, made.expiry_timestamp_ms

    def expire(self, secret: bytes, period_ms: int = -1, by: Principal = ALICE) -> tuple[int, int]:
        request = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)
        made = self._done(self.control.expire(self._view(by), request))
        return made.error_code, made.expiry_timestamp_ms

    def sweep(self) -> int:
        """Run the periodic task once, and return the number of its parts."""
        parts = 1
        while True:
            result = self.control.remove_expired(self._view(ALICE))
            self.image = applied(self.image, result.records)
            if not result.response:
                return parts
            parts += 1


def test_a_token_has_the_hash_of_its_id_and_the_default_times() -> None:
    tokens = Tokens()
    made = tokens.create(renewers=(("User", "bob"),))
    assert made.error_code == ErrorCode.NONE
    assert made.hmac == hmac.new(KEY.encode(), made.token_id.encode(), hashlib.sha512).digest()
    assert (made.principal_type, made.principal_name) == ("User", "alice")
    times = made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms
    assert times == (1_000_000, 1_000_000 + 24 * HOUR_MS, 1_000_000 + 7 * 24 * HOUR_MS)
    record = tokens.image.tokens[made.token_id]
    assert (record.owner, record.requester) == ("User:alice", "User:alice")
    assert record.renewers == ["User:bob"]
    assert KEY not in repr(record)


def test_a_token_for_another_owner_keeps_the_requester() -> None:
    tokens = Tokens()
    made = tokens.create(owner=("User", "carol"))
    assert (made.principal_name, made.token_requester_principal_name) == ("carol", "alice")
    record = tokens.image.tokens[made.token_id]
    assert (record.owner, record.requester) == ("User:carol", "User:alice")
    # The requester is neither owner nor renewer.
    mismatch = (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert tokens.renew(made.hmac, by=ALICE) == mismatch
    assert tokens.expire(made.hmac, by=ALICE) == mismatch
    assert tokens.renew(made.hmac, by=CAROL)[0] == ErrorCode.NONE


@pytest.mark.parametrize(
    ("wanted_ms", "max_ms"),
    [(5_000, 5_000), (LONG_MAX, 20_000), (0, 20_000), (-(1 << 63), 20_000)],
)
def test_a_lifetime_is_within_the_limit(wanted_ms: int, max_ms: int) -> None:
    tokens = Tokens(
        delegation__token__max__lifetime__ms="20000", delegation__token__expiry__time__ms="9000"
    )
    made = tokens.create(lifetime_ms=wanted_ms)
    assert made.max_timestamp_ms - made.issue_timestamp_ms == max_ms
    assert made.expiry_timestamp_ms - made.issue_timestamp_ms == min(max_ms, 9_000)


def test_times_do_not_exceed_64_bits() -> None:
    longest = str(LONG_MAX)
    tokens = Tokens(
        delegation__token__max__lifetime__ms=longest, delegation__token__expiry__time__ms=longest
    )
    made = tokens.create(lifetime_ms=LONG_MAX)
    assert (made.max_timestamp_ms, made.expiry_timestamp_ms) == (LONG_MAX, LONG_MAX)
    assert tokens.renew(made.hmac, LONG_MAX) == (ErrorCode.NONE, LONG_MAX)
    assert tokens.expire(made.hmac, LONG_MAX) == (ErrorCode.NONE, LONG_MAX)


def test_a_renewer_is_a_user() -> None:
    tokens = Tokens()
    made = tokens.create(renewers=(("User", "bob"), ("Group", "admins")))
    assert made.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert (made.hmac, made.token_id) == (b"", "")
    assert len(tokens.image.tokens) == 0


def test_the_number_of_renewers_is_limited() -> None:
    tokens = Tokens()
    renewers = tuple(("User", f"r{number}") for number in range(RENEWERS_MAX))
    assert tokens.create(renewers=renewers).error_code == ErrorCode.NONE
    more = tokens.create(renewers=(*renewers, ("User", "one-more")))
    assert (more.error_code, more.hmac) == (ErrorCode.INVALID_REQUEST, b"")


def test_owner_and_renewers_may_renew_within_the_lifetime() -> None:
    tokens = Tokens()
    made = tokens.create(renewers=(("User", "bob"),), lifetime_ms=2 * HOUR_MS)
    tokens.clock.now_ms += HOUR_MS // 2
    now_ms = tokens.clock.now_ms
    assert tokens.renew(made.hmac, 1_000, by=BOB) == (ErrorCode.NONE, now_ms + 1_000)
    assert tokens.image.tokens[made.token_id].expiration_timestamp == now_ms + 1_000
    assert tokens.renew(made.hmac, by=ALICE) == (ErrorCode.NONE, made.max_timestamp_ms)
    assert tokens.renew(made.hmac, by=CAROL) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)


@pytest.mark.parametrize("secret", [b"", b"x", bytes(64), bytes(1_000_000)])
def test_an_unknown_hmac_is_no_token(secret: bytes) -> None:
    tokens = Tokens()
    made = tokens.create()
    missing = (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert tokens.renew(secret) == missing
    assert tokens.expire(secret) == missing
    # The id of a token, which others may know, does not replace its HMAC.
    assert tokens.renew(made.token_id.encode()) == missing


def test_an_expired_token_can_only_be_removed() -> None:
    tokens = Tokens()
    made = tokens.create(lifetime_ms=1_000)
    tokens.clock.now_ms += 1_000
    assert tokens.renew(made.hmac)[0] == ErrorCode.NONE
    tokens.clock.now_ms += 1
    assert tokens.renew(made.hmac, by=BOB) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    assert tokens.expire(made.hmac, 5) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)
    mismatch = (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0)
    assert tokens.expire(made.hmac, 5, by=BOB) == mismatch
    assert tokens.expire(made.hmac, -7) == (ErrorCode.NONE, tokens.clock.now_ms)
    assert len(tokens.image.tokens) == 0


def test_expiring_sets_the_time_or_removes_the_token() -> None:
    tokens = Tokens()
    made = tokens.create()
    now_ms = tokens.clock.now_ms
    assert tokens.expire(made.hmac, 500) == (ErrorCode.NONE, now_ms + 500)
    assert tokens.expire(made.hmac, 0) == (ErrorCode.NONE, now_ms)
    assert tokens.image.tokens[made.token_id].expiration_timestamp == now_ms
    assert tokens.expire(made.hmac) == (ErrorCode.NONE, now_ms)
    assert tokens.renew(made.hmac) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)


@pytest.mark.parametrize(
    ("tokens", "error"),
    [
        (Tokens(delegation__token__secret__key=""), ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        (Tokens(metadata_version=13), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_without_a_key_or_in_an_old_version_there_are_no_tokens(
    tokens: Tokens, error: ErrorCode
) -> None:
    made = tokens.create(renewers=(("Group", "x"),))
    assert (made.error_code, made.principal_name) == (error, "alice")
    assert tokens.renew(b"x") == (error, 0)
    assert tokens.expire(b"x") == (error, 0)
    assert tokens.sweep() == 1


def test_the_first_version_with_tokens_has_them() -> None:
    assert Tokens(metadata_version=14).create().error_code == ErrorCode.NONE


@pytest.mark.parametrize("number", [0, 999, 1_000, 2_500])
def test_the_periodic_task_removes_the_expired_tokens(number: int) -> None:
    tokens = Tokens()
    made = [tokens.create(lifetime_ms=1_000).token_id for _ in range(number)]
    stays = tokens.create()
    assert tokens.sweep() <= 1 + number // 1_000 + 2
    assert len(tokens.image.tokens) == number + 1
    tokens.clock.now_ms += 1_001
    tokens.sweep()
    assert list(tokens.image.tokens) == [stays.token_id], len(made)


def test_tokens_of_another_key_stay_and_have_other_hmacs() -> None:
    tokens = Tokens()
    made = tokens.create()
    rotated = Tokens(delegation__token__secret__key="another secret")
    rotated.image = tokens.image
    assert rotated.renew(made.hmac) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    secret = token_hmac("another secret", made.token_id)
    assert rotated.renew(secret)[0] == ErrorCode.NONE


def test_a_search_finds_tokens_of_other_images() -> None:
    tokens = Tokens()
    many = [tokens.create() for _ in range(450)]
    before = tokens.image
    for made in many:
        assert tokens.renew(made.hmac)[0] == ErrorCode.NONE
    # Another leader removed them all, and this one then leads again.
    tokens.image = applied(
        ClusterImage(), [(FeatureLevelRecord(name="metadata.version", feature_level=33), 0)]
    )
    assert tokens.renew(many[0].hmac)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    tokens.image = before
    assert tokens.renew(many[-1].hmac)[0] == ErrorCode.NONE
