"""SCRAM users of `barnabas format --add-scram`, in Kafka's form."""

from __future__ import annotations

import base64

import pytest

from barnabas.runtime.rng import SeededRng
from barnabas.sasl.scram_keys import ScramCredential, ScramMechanism, credential_of, salted_password
from barnabas.server.startup.formatting import FirstUserError, parse_first_user

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALT = base64.b64encode(b"salt").decode()


def parsed(text: str) -> tuple[str, int, ScramCredential]:
    record = parse_first_user(text, SeededRng(1))
    credential = ScramCredential(
        record.salt, record.stored_key, record.server_key, record.iterations
    )
    return record.name, record.mechanism, credential


def test_a_password_is_hashed_with_a_new_salt() -> None:
    name, mechanism, found = parsed("SCRAM-SHA-512=[name=alice,password=secret]")
    assert (name, mechanism, found.iterations) == ("alice", 2, 4096)
    # 130 bits in base 36.
    assert 20 <= len(found.salt) <= 26
    salted = salted_password(SHA_512, "secret", found.salt, 4096)
    assert found == credential_of(SHA_512, salted, found.salt, 4096)


@pytest.mark.parametrize(
    "text",
    [
        f"SCRAM-SHA-256=[name=a b,password=x=y,iterations=8192,salt={SALT}]",
        f' SCRAM-SHA-256 = [ salt = "{SALT}" , iterations=8192, name="a b", password="x=y" ]',
    ],
)
def test_iterations_salt_and_quotes_may_be_given(text: str) -> None:
    expected = credential_of(SHA_256, salted_password(SHA_256, "x=y", b"salt", 8192), b"salt", 8192)
    assert parsed(text) == ("a b", 1, expected)


def test_a_salted_password_is_used_as_it_is() -> None:
    salted = base64.b64encode(b"salted").decode()
    text = f"SCRAM-SHA-256=[name=a,saltedpassword={salted},salt={SALT}]"
    assert parsed(text)[2] == credential_of(SHA_256, b"salted", b"salt", 4096)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SCRAM-SHA-1=[name=a,password=secret]",
        "SCRAM-SHA-256=name=a,password=secret",
        "SCRAM-SHA-256=[password=secret]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,password=]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=4095]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=16385]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=x]",
        "SCRAM-SHA-256=[name=a,password=secret,salt=!]",
        "SCRAM-SHA-256=[name=a,password=secret,name=b]",
        "SCRAM-SHA-256=[name=a,password=secret,other=b]",
        "SCRAM-SHA-256=[name=a,password=secret,saltedpassword=AAAA,salt=AAAA]",
        "SCRAM-SHA-256=[name=a,saltedpassword=AAAA]",
        'SCRAM-SHA-256=[name=a,password="secret]',
    ],
)
def test_anything_else_is_refused_without_the_password(text: str) -> None:
    with pytest.raises(FirstUserError) as caught:
        parse_first_user(text, SeededRng(1))
    assert "secret" not in str(caught.value)
