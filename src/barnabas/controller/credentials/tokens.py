"""Delegation tokens: create, renew and expire them (API keys 38, 39 and 40; KIP-48, KIP-373).

Rules and the order of checks are those of Kafka. A client may renew and expire a token that it
owns, or of which it is a renewer; it names the token by the HMAC. Brokers have checked before that
the client has authenticated, and not by a token. The metadata log has ids only, so `TokenIndex`
finds the token of an HMAC.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING

from barnabas.controller.result import ControllerResult, Refusal
from barnabas.metadata.credentials import NO_TOKENS, is_expired, principal_parts, token_hmac
from barnabas.metadata.metadata_version import has_delegation_tokens
from barnabas.network.principal import ANONYMOUS, USER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.security import (
    CreateDelegationTokenResponse,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenResponse,
)
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.records.security import DelegationTokenRecord, RemoveDelegationTokenRecord

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.metadata.credentials import Tokens


_COMPUTED_AT_ONCE = 200


class TokenIndex:
    """The HMACs of all tokens, as of the last search. A search adds and removes what changed."""

    __slots__ = ("_hmacs", "_ids", "_indexed", "_secret_key")

    def __init__(self, secret_key: str) -> None:
        self._secret_key = secret_key
        # The tokens that the two dictionaries contain.
        self._indexed: Tokens = NO_TOKENS
        self._ids: dict[bytes, str] = {}
        self._hmacs: dict[str, bytes] = {}

    def find(self, tokens: Tokens, hmac: bytes) -> Generator[None, None, str | None]:
        """Return the id of a token, None if no token has the HMAC; yields after some tokens."""
        if self._indexed is not tokens:
            yield from self._index(tokens)
        return self._ids.get(hmac)

    def _index(self, tokens: Tokens) -> Generator[None, None, None]:
        before = self._hmacs
        hmacs: dict[str, bytes] = {}
        ids: dict[bytes, str] = {}
        for number, token_id in enumerate(tokens):
            hmac = before.get(token_id) or token_hmac(self._secret_key, token_id)
            hmacs[token_id] = hmac
            ids[hmac] = token_id
            if number % _COMPUTED_AT_ONCE == 0:
                yield
        self._indexed, self._hmacs, self._ids = tokens, hmacs, ids


if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.image import ClusterImage
    from barnabas.network.principal import Principal
    from barnabas.protocol.messages.security import (
        CreatableRenewers,
        CreateDelegationTokenRequest,
        ExpireDelegationTokenRequest,
        RenewDelegationTokenRequest,
    )
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng

    Steps = Generator[None, None, ControllerResult[CreateDelegationTokenResponse]]
    RenewSteps = Generator[None, None, ControllerResult[RenewDelegationTokenResponse]]
    ExpireSteps = Generator[None, None, ControllerResult[ExpireDelegationTokenResponse]]

_log = logging.getLogger(__name__)

_TIME_MAX = (1 << 63) - 1
# Timestamp of responses without a token.
_NO_TIME = -1
# Each response about a token lists its renewers. Kafka has no limit.
RENEWERS_MAX = 1_000
_RENEWERS_AT_ONCE = 200
# Number of tokens that one part of the periodic task checks.
_CHECKED_AT_ONCE = 1_000


class TokenControl:
    """Handles changes of delegation tokens and returns the resulting records."""

    def __init__(self, config: ControllerConfig, rng: Rng, clock: Clock) -> None:
        """Create the part of a controller that changes tokens.

        Args:
            config: the secret key, and the limits of lifetimes.
            rng: makes the ids of tokens.
            clock: its wall clock is the time of tokens.
        """
        self._config = config
        self._rng = rng
        self._clock = clock
        self._index = TokenIndex(config.token_secret_key)
        # Ids that the periodic task has not checked yet; None between its runs.
        self._unchecked: Iterator[str] | None = None

    def create(self, view: ControllerView, request: CreateDelegationTokenRequest) -> Steps:
        """Create a token; yields after some renewers."""
        owner = owner_of(request, view.requester)
        try:
            self._check_enabled(view.image)
            renewers = yield from _renewers(request.renewers)
        except Refusal as refusal:
            response = _not_created(refusal.error_code, owner, str(view.requester), 0)
            return ControllerResult([], response)
        now_ms = self._clock.wall_ms()
        lifetime_ms = _shorter(self._config.token_max_lifetime_ms, request.max_lifetime_ms)
        max_ms = _later(now_ms, lifetime_ms)
        record = DelegationTokenRecord(
            owner=owner,
            requester=str(view.requester),
            renewers=renewers,
            issue_timestamp=now_ms,
            max_timestamp=max_ms,
            expiration_timestamp=min(max_ms, _later(now_ms, self._config.token_expiry_time_ms)),
            token_id=uuid_to_string(self._rng.uuid()),
        )
        response = _not_created(ErrorCode.NONE, record.owner, record.requester, 0)
        response.issue_timestamp_ms = now_ms
        response.expiry_timestamp_ms = record.expiration_timestamp
        response.max_timestamp_ms = max_ms
        response.token_id = record.token_id
        response.hmac = token_hmac(self._config.token_secret_key, record.token_id)
        return ControllerResult([(record, 0)], response)

    def renew(self, view: ControllerView, request: RenewDelegationTokenRequest) -> RenewSteps:
        """Set a later expiry, or an earlier one; yields during the search for the token."""
        now_ms = self._clock.wall_ms()
        try:
            token = yield from self._find(view.image, bytes(request.hmac))
            if is_expired(token, now_ms):
                raise Refusal(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            _check_may_change(token, view.requester)
        except Refusal as refusal:
            return ControllerResult([], _not_renewed(refusal.error_code, 0))
        period_ms = _shorter(self._config.token_expiry_time_ms, request.renew_period_ms)
        renewed = _expiring(token, _later(now_ms, period_ms))
        response = _not_renewed(ErrorCode.NONE, renewed.expiration_timestamp)
        return ControllerResult([(renewed, 0)], response)

    def expire(self, view: ControllerView, request: ExpireDelegationTokenRequest) -> ExpireSteps:
        """Set the expiry, or remove the token now; yields during the search for the token.

        An expired token can only be removed.
        """
        now_ms, period_ms = self._clock.wall_ms(), request.expiry_time_period_ms
        try:
            token = yield from self._find(view.image, bytes(request.hmac))
            _check_may_change(token, view.requester)
            if period_ms >= 0 and is_expired(token, now_ms):
                raise Refusal(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        except Refusal as refusal:
            return ControllerResult([], _not_expired(refusal.error_code, 0))
        if period_ms < 0:
            removal = RemoveDelegationTokenRecord(token_id=token.token_id)
            return ControllerResult([(removal, 0)], _not_expired(ErrorCode.NONE, now_ms))
        changed = _expiring(token, _later(now_ms, period_ms))
        response = _not_expired(ErrorCode.NONE, changed.expiration_timestamp)
        return ControllerResult([(changed, 0)], response)

    def remove_expired(self, view: ControllerView) -> ControllerResult[bool]:
        """Remove expired tokens among the next ones. The response: whether more are to be checked.

        Nodes without the secret key know no tokens, and remove none.
        """
        tokens = view.image.tokens if self._config.token_secret_key else NO_TOKENS
        now_ms = self._clock.wall_ms()
        if self._unchecked is None:
            self._unchecked = iter(tokens)
        checked = list(islice(self._unchecked, _CHECKED_AT_ONCE))
        if not checked:
            self._unchecked = None
        records: list[VersionedRecord] = []
        for token_id in checked:
            token = tokens.get(token_id)
            if token is not None and is_expired(token, now_ms):
                _log.info("Delegation token expired: id=%s owner=%s", token_id, token.owner)
                records.append((RemoveDelegationTokenRecord(token_id=token_id), 0))
        return ControllerResult(records, bool(checked))

    def _check_enabled(self, image: ClusterImage) -> None:
        if not self._config.token_secret_key:
            raise Refusal(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        if not has_delegation_tokens(image.features.metadata_version):
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION)

    def _find(
        self, image: ClusterImage, hmac: bytes
    ) -> Generator[None, None, DelegationTokenRecord]:
        """Return the token with this HMAC.

        Raises:
            Refusal: there is none, or tokens are switched off.
        """
        self._check_enabled(image)
        token_id = yield from self._index.find(image.tokens, hmac)
        token = None if token_id is None else image.tokens.get(token_id)
        if token is None:
            raise Refusal(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token


def owner_of(request: CreateDelegationTokenRequest, requester: Principal) -> str:
    """Return the owner of the token that a client asks for: by default, the client."""
    if not request.owner_principal_name:
        return str(requester)
    return f"{request.owner_principal_type}:{request.owner_principal_name}"


def refuse_create_token(
    _request: CreateDelegationTokenRequest, refusal: Refusal
) -> CreateDelegationTokenResponse:
    """Return the error of a request that no controller has served."""
    return _not_created(refusal.error_code, str(ANONYMOUS), str(ANONYMOUS), _NO_TIME)


def refuse_creation(
    error: ErrorCode, owner: str, requester: Principal
) -> CreateDelegationTokenResponse:
    """Return the error of a request that a broker refuses before it asks the controller."""
    return _not_created(error, owner, str(requester), _NO_TIME)


def refuse_renew_token(
    _request: RenewDelegationTokenRequest, refusal: Refusal
) -> RenewDelegationTokenResponse:
    """Return the error of a request that no controller has served."""
    return _not_renewed(refusal.error_code, 0)


def refuse_expire_token(
    _request: ExpireDelegationTokenRequest, refusal: Refusal
) -> ExpireDelegationTokenResponse:
    """Return the error of a request that no controller has served."""
    return _not_expired(refusal.error_code, 0)


def _renewers(wanted: list[CreatableRenewers]) -> Generator[None, None, list[str]]:
    """Return the renewers as TYPE:NAME.

    Raises:
        Refusal: there are too many, or one is not of the type User.
    """
    if len(wanted) > RENEWERS_MAX:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    renewers: list[str] = []
    for number, each in enumerate(wanted):
        if each.principal_type != USER:
            raise Refusal(ErrorCode.INVALID_PRINCIPAL_TYPE)
        renewers.append(f"{USER}:{each.principal_name}")
        if number % _RENEWERS_AT_ONCE == 0:
            yield
    return renewers


def _check_may_change(token: DelegationTokenRecord, requester: Principal) -> None:
    name = str(requester)
    if name != token.owner and name not in token.renewers:
        raise Refusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _expiring(token: DelegationTokenRecord, expiry_ms: int) -> DelegationTokenRecord:
    """Return the record of the token with another expiry, within its lifetime."""
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=token.renewers,
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=min(token.max_timestamp, expiry_ms),
        token_id=token.token_id,
    )


def _shorter(limit_ms: int, wanted_ms: int) -> int:
    """Return the requested time within the limit; the limit if the client requests none."""
    return min(limit_ms, wanted_ms) if wanted_ms > 0 else limit_ms


def _later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, _TIME_MAX)


def _not_created(
    error: ErrorCode, owner: str, requester: str, time_ms: int
) -> CreateDelegationTokenResponse:
    """Return a response without a token."""
    owner_type, owner_name = principal_parts(owner)
    requester_type, requester_name = principal_parts(requester)
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=time_ms,
        expiry_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
        token_id="",
        hmac=b"",
    )


def _not_renewed(error: ErrorCode, expiry_ms: int) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=expiry_ms)


def _not_expired(error: ErrorCode, expiry_ms: int) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=expiry_ms)
