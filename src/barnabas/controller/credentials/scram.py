"""Changing SCRAM credentials (AlterUserScramCredentials API 51; KIP-554).

Each user is changed once in a request. The controller gets a salted password, and writes the keys
that it derives from it. Rules, and the texts that tools show, are those of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.result import ControllerResult, Refusal
from barnabas.metadata.credentials import find_credential
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from barnabas.protocol.records.security import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from barnabas.sasl.scram_keys import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    credential_of,
)
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.controller.result import ControllerView
    from barnabas.metadata.image import ClusterImage
    from barnabas.protocol.messages.security import (
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )
    from barnabas.protocol.schema import Record

    Answers = dict[str, Record | Refusal]

_TWICE = Refusal(
    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
)


def alter_scram_credentials(
    view: ControllerView, request: AlterUserScramCredentialsRequest
) -> Generator[None, None, ControllerResult[AlterUserScramCredentialsResponse]]:
    """Set and delete credentials; yields before each of them."""
    # The record or the error of each user.
    answers: Answers = {}
    for deletion in request.deletions:
        yield
        _store_answer(answers, deletion.name, _deletion(view.image, deletion))
    for upsertion in request.upsertions:
        yield
        _store_answer(answers, upsertion.name, _upsertion(upsertion))
    results = yield from gradually(_result(user, answer) for user, answer in answers.items())
    records = [(each, 0) for each in answers.values() if not isinstance(each, Refusal)]
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


def _store_answer(answers: Answers, user: str, answer: Record | Refusal) -> None:
    """Store the answer of a user. A second valid change is an error; the first error stays."""
    before = answers.get(user)
    if not isinstance(before, Refusal):
        answers[user] = answer if before is None else _TWICE


def _deletion(image: ClusterImage, deletion: ScramCredentialDeletion) -> Record | Refusal:
    try:
        mechanism = _checked_mechanism(deletion.name, deletion.mechanism)
    except Refusal as refusal:
        return refusal.with_traceback(None)
    if find_credential(image.credentials, mechanism, deletion.name) is None:
        return Refusal(
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
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


def _result(user: str, answer: Record | Refusal) -> AlterUserScramCredentialsResult:
    error, message = ErrorCode.NONE, None
    if isinstance(answer, Refusal):
        error, message = answer.error_code, answer.message
    return AlterUserScramCredentialsResult(user=user, error_code=error, error_message=message)
