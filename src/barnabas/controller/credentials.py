"""Changes of SCRAM credentials and delegation tokens.

AlterUserScramCredentials (API 51; KIP-554) changes each user once in a request. The controller gets
a salted password, and writes the keys that it derives from it. Rules, and the texts that tools
show, are those of Kafka.

Delegation tokens are created, renewed and expired (APIs 38, 39 and 40; KIP-48, KIP-373). A client
may renew and expire a token that it owns, or of which it is a renewer; it names the token by the
HMAC. Brokers have checked before that the client has authenticated, and not by a token. The
metadata log has ids only, so `TokenIndex` finds the token of an HMAC.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING

from barnabas.controller.result import ControllerResult, Refusal, refuse_as_a_whole
from barnabas.metadata.credentials import (
    NO_TOKENS,
    find_credential,
    is_expired,
    principal_parts,
    token_hmac,
)
from barnabas.metadata.metadata_version import has_delegation_tokens
from barnabas.network.principal import ANONYMOUS, USER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenResponse,
)
from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.records.security import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from barnabas.sasl.scram_keys import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, credential_of
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.credentials import Tokens
    from barnabas.metadata.image import ClusterImage
    from barnabas.network.principal import Principal
    from barnabas.protocol.messages.security import (
        CreatableRenewers,
        CreateDelegationTokenRequest,
        ExpireDelegationTokenRequest,
        RenewDelegationTokenRequest,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )
    from barnabas.protocol.schema import Record
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng

    Outcomes = dict[str, Record | Refusal]
    Steps = Generator[None, None, ControllerResult[CreateDelegationTokenResponse]]
    RenewSteps = Generator[None, None, ControllerResult[RenewDelegationTokenResponse]]
    ExpireSteps = Generator[None, None, ControllerResult[ExpireDelegationTokenResponse]]


_log = logging.getLogger(__name__)

_TWICE = Refusal(
    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
)


def alter_scram_credentials(
    view: ControllerView, request: AlterUserScramCredentialsRequest
) -> Generator[None, None, ControllerResult[AlterUserScramCredentialsResponse]]:
    """Set and delete credentials; yields before each of them."""
    # The record or the error of each user.
    outcomes: Outcomes = {}
    for deletion in request.deletions:
        yield
        _store_outcome(outcomes, deletion.name, _deletion(view.image, deletion))
    for upsertion in request.upsertions:
        yield
        _store_outcome(outcomes, upsertion.name, _upsertion(upsertion))
    results = yield from gradually(_result(user, outcome) for user, outcome in outcomes.items())
    records = [(each, 0) for each in outcomes.values() if not isinstance(each, Refusal)]
    return ControllerResult(records, AlterUserScramCredentialsResponse(results=results))


def refuse_alter_scram_credentials(
    request: AlterUserScramCredentialsRequest, refusal: Refusal
) -> Generator[None, None, AlterUserScramCredentialsResponse]:
    """Return the error of the whole request, for each user."""
    names = dict.fromkeys(
        [each.name for each in request.deletions] + [each.name for each in request.upsertions]
    )
    results = yield from gradually(_result(name, refusal) for name in names)
    return AlterUserScramCredentialsResponse(results=results)


def _store_outcome(outcomes: Outcomes, user: str, outcome: Record | Refusal) -> None:
    """Store the outcome of a user. A second valid change is an error; the first error stays."""
    before = outcomes.get(user)
    if not isinstance(before, Refusal):
        outcomes[user] = outcome if before is None else _TWICE


def _deletion(image: ClusterImage, deletion: ScramCredentialDeletion) -> Record | Refusal:
    try:
        mechanism = _checked_mechanism(deletion.name, deletion.mechanism)
    except Refusal as refusal:
        return refusal.with_traceback(None)
    if find_credential(image.credentials, mechanism, deletion.name) is None:
        return Refusal(
            ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        )
    return RemoveUserScramCredentialRecord(name=deletion.name, mechanism=int(mechanism))


def _upsertion(upsertion: ScramCredentialUpsertion) -> Record | Refusal:
    try:
        mechanism = _checked_mechanism(upsertion.name, upsertion.mechanism)
    except Refusal as refusal:
        return refusal.with_traceback(None)
    if upsertion.iterations < ITERATIONS_MIN:
        return _unacceptable("Too few iterations")
    if upsertion.iterations > ITERATIONS_MAX:
        return _unacceptable("Too many iterations")
    if not upsertion.salt or not upsertion.salted_password:
        # Kafka writes such credentials, or fails. Clients cannot log in with them.
        return _unacceptable("Salt and salted password must not be empty")
    made = credential_of(
        mechanism, bytes(upsertion.salted_password), bytes(upsertion.salt), upsertion.iterations
    )
    return UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=mechanism,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )


def _checked_mechanism(user: str, number: int) -> ScramMechanism:
    """Return the mechanism; raises Refusal for an empty user name or an unknown mechanism."""
    if not user:
        raise _unacceptable("Username must not be empty")
    try:
        return ScramMechanism(number)
    except ValueError:
        error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        raise Refusal(error, "Unknown SCRAM mechanism") from None


def _unacceptable(message: str) -> Refusal:
    return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)


def _result(user: str, outcome: Record | Refusal) -> AlterUserScramCredentialsResult:
    error, message = ErrorCode.NONE, None
    if isinstance(outcome, Refusal):
        error, message = outcome.error_code, outcome.message
    return AlterUserScramCredentialsResult(user=user, error_code=error, error_message=message)


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
        self._secret_key = config.token_secret_key
        self._lifetime_ms_max = config.broker.integer("delegation.token.max.lifetime.ms")
        # Time until a token must be renewed.
        self._expiry_ms = config.broker.integer("delegation.token.expiry.time.ms")
        self._rng = rng
        self._clock = clock
        self._index = TokenIndex(self._secret_key)
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
        lifetime_ms = _shorter(self._lifetime_ms_max, request.max_lifetime_ms)
        max_ms = _later(now_ms, lifetime_ms)
        record = DelegationTokenRecord(
            owner=owner,
            requester=str(view.requester),
            renewers=renewers,
            issue_timestamp=now_ms,
            max_timestamp=max_ms,
            expiration_timestamp=min(max_ms, _later(now_ms, self._expiry_ms)),
            token_id=uuid_to_string(self._rng.uuid()),
        )
        response = _not_created(ErrorCode.NONE, record.owner, record.requester, 0)
        response.issue_timestamp_ms = now_ms
        response.expiry_timestamp_ms = record.expiration_timestamp
        response.max_timestamp_ms = max_ms
        response.token_id = record.token_id
        response.hmac = token_hmac(self._secret_key, record.token_id)
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
            return ControllerResult([], refuse_as_a_whole(request, refusal))
        period_ms = _shorter(self._expiry_ms, request.renew_period_ms)
        renewed = _expiring(token, _later(now_ms, period_ms))
        response = RenewDelegationTokenResponse(
            error_code=ErrorCode.NONE, expiry_timestamp_ms=renewed.expiration_timestamp
        )
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
            return ControllerResult([], refuse_as_a_whole(request, refusal))
        response = ExpireDelegationTokenResponse(
            error_code=ErrorCode.NONE, expiry_timestamp_ms=now_ms
        )
        if period_ms < 0:
            removal = RemoveDelegationTokenRecord(token_id=token.token_id)
            return ControllerResult([(removal, 0)], response)
        changed = _expiring(token, _later(now_ms, period_ms))
        response.expiry_timestamp_ms = changed.expiration_timestamp
        return ControllerResult([(changed, 0)], response)

    def remove_expired(self, view: ControllerView) -> ControllerResult[bool]:
        """Remove expired tokens among the next ones. The response: whether more are to be checked.

        Nodes without the secret key know no tokens, and remove none.
        """
        tokens = view.image.tokens if self._secret_key else NO_TOKENS
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
        if not self._secret_key:
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
