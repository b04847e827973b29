"""Validation of SCRAM credentials, and their stored form."""

from __future__ import annotations

import pytest

from barnabas.controller.credentials import alter_scram_credentials
from barnabas.metadata.credentials import find_credential
from barnabas.metadata.image import ClusterImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.sasl.scram_keys import ScramMechanism, credential_of
from steps import finish
from unit.controller.parts import applied, view_of

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
Errors = dict[str, tuple[ErrorCode, str | None]]


def up(
    user: str = "u",
    mechanism: int = 1,
    iterations: int = 4096,
    salt: bytes = b"salt",
    salted: bytes = b"salted",
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def down(user: str = "u", mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=user, mechanism=mechanism)


def alter(
    image: ClusterImage, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> tuple[ClusterImage, Errors]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    result = finish(alter_scram_credentials(view_of(image), request))
    errors = {
        each.user: (ErrorCode(each.error_code), each.error_message)
        for each in result.response.results
    }
    return applied(image, result.records), errors


def test_the_keys_of_a_password_are_stored_and_deleted() -> None:
    image, errors = alter(ClusterImage(), up("a"), up("b", 2, 16384))
    assert errors == {"a": (ErrorCode.NONE, None), "b": (ErrorCode.NONE, None)}
    assert find_credential(image.credentials, SHA_256, "a") == credential_of(
        SHA_256, b"salted", b"salt", 4096
    )
    stored = find_credential(image.credentials, SHA_512, "b")
    assert stored == credential_of(SHA_512, b"salted", b"salt", 16384)
    assert find_credential(image.credentials, SHA_512, "a") is None
    image, errors = alter(image, down("a"), up("b", 1))
    assert set(errors.values()) == {(ErrorCode.NONE, None)}
    assert find_credential(image.credentials, SHA_256, "a") is None
    assert find_credential(image.credentials, SHA_256, "b") is not None
    assert find_credential(image.credentials, SHA_512, "b") is not None


# Code and text are those of Apache Kafka 4.4, except for the empty salt and password.
@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (up(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (up(iterations=-1), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (up(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (up(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (down("", 9), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (up(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (up(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (down(mechanism=-1), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (
            down(),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
        (
            up(salt=b""),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Salt and salted password must not be empty",
        ),
        (
            up(salted=b""),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Salt and salted password must not be empty",
        ),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(
    change: ScramCredentialUpsertion | ScramCredentialDeletion, code: ErrorCode, text: str
) -> None:
    image, errors = alter(ClusterImage(), change, up("good"))
    assert errors[change.name] == (code, text)
    assert errors["good"] == (ErrorCode.NONE, None)
    assert len(image.credentials) == 1


@pytest.mark.parametrize(
    "changes",
    [
        [up(), up()],
        [up(mechanism=1), up(mechanism=2)],
        [down(), up()],
        [down(), down(), up()],
    ],
)
def test_a_duplicate_user_in_a_request_is_refused(
    changes: list[ScramCredentialUpsertion | ScramCredentialDeletion],
) -> None:
    before, _ = alter(ClusterImage(), up())
    image, errors = alter(before, *changes)
    assert errors["u"][0] is ErrorCode.DUPLICATE_RESOURCE
    assert image.credentials.get("1/u") == before.credentials.get("1/u")


def test_a_user_gets_the_first_of_several_errors() -> None:
    before, _ = alter(ClusterImage(), up())
    _, errors = alter(before, down(mechanism=2), up())
    assert errors["u"][0] is ErrorCode.RESOURCE_NOT_FOUND
