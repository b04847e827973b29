"""SCRAM beside the examples of its RFCs, and against peers that do not follow them."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, strategies as st

from barnabas.sasl.mechanism import Identity, SaslError
from barnabas.sasl.scram import (
    ScramClient,
    ScramServer,
    ScramUser,
    parse_client_final,
    parse_client_first,
    parse_server_first,
)
from barnabas.sasl.scram_keys import (
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
    credential_of,
    dummy_credential,
    printable_salt,
    salted_password,
)

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
# RFC 7677, section 3.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(
    password: str, mechanism: ScramMechanism = SHA_256, salt: bytes = SALT, iterations: int = 4096
) -> ScramCredential:
    return credential_of(
        mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations
    )


class Users:
    """Stored credentials by name."""

    def __init__(self, **users: ScramCredential) -> None:
        self.users = users
        self.tokens: dict[str, ScramUser] = {}

    def find(self, _: ScramMechanism, name: str) -> ScramUser | None:
        found = self.users.get(name)
        return None if found is None else ScramUser(found, Identity(name))

    def find_token(self, _: ScramMechanism, token_id: str) -> ScramUser | None:
        return self.tokens.get(token_id)

    def dummy_credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        return dummy_credential(mechanism, name, b"secret")


def server(users: Users, mechanism: ScramMechanism = SHA_256) -> ScramServer:
    return ScramServer(mechanism, users, SERVER_NONCE)


def run(client: ScramClient, peer: ScramServer) -> bytes | None:
    """Pass the messages between both until one of them rejects or both are done."""
    message: bytes | None = client.first()
    while message is not None:
        answer = peer.respond(message)
        work = client.prepare(answer)
        if work is not None:
            work()
        message = client.respond(answer)
    return message


def test_the_server_messages_equal_the_example_of_rfc_7677() -> None:
    peer = server(Users(user=credential("pencil")))
    assert peer.respond(CLIENT_FIRST) == SERVER_FIRST
    assert peer.identity is None
    assert peer.respond(CLIENT_FINAL) == SERVER_FINAL
    assert peer.identity == Identity("user")


def test_the_client_messages_equal_the_example_of_rfc_7677() -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    assert client.first() == CLIENT_FIRST
    work = client.prepare(SERVER_FIRST)
    assert work is not None
    work()
    assert client.respond(SERVER_FIRST) == CLIENT_FINAL
    assert client.prepare(SERVER_FINAL) is None
    assert client.respond(SERVER_FINAL) is None
    assert client.is_complete


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("name", ["alice", "a,b=c", "=2C", "älice", "a b"])
def test_both_sides_agree_on_any_name(mechanism: ScramMechanism, name: str) -> None:
    peer = server(Users(**{name: credential("päss,=word", mechanism)}), mechanism)
    client = ScramClient(mechanism, name, "päss,=word", "nonce")
    run(client, peer)
    assert client.is_complete
    assert peer.identity == Identity(name)
    assert SCRAM_MECHANISMS[mechanism.sasl_name] is mechanism
    assert len(credential("x", mechanism).stored_key) == mechanism.key_bytes


def test_a_wrong_password_is_rejected_at_the_last_message() -> None:
    peer = server(Users(user=credential("pencil")))
    client = ScramClient(SHA_256, "user", "pen", "nonce")
    with pytest.raises(SaslError, match="wrong password") as caught:
        run(client, peer)
    assert caught.value.shown is None
    assert peer.identity is None


def test_the_reason_names_old_librdkafka_if_the_nonce_of_the_client_comes_twice() -> None:
    final = CLIENT_FINAL.replace(b"r=", b"r=" + CLIENT_NONCE.encode())
    for message, is_named in ((final, True), (CLIENT_FINAL.replace(b"r=", b"r=x"), False)):
        peer = server(Users(user=credential("pencil")))
        peer.respond(CLIENT_FIRST)
        with pytest.raises(SaslError, match="is not that of the server") as caught:
            peer.respond(message)
        assert ("librdkafka before 2.6.1" in str(caught.value)) == is_named
        assert caught.value.shown is None


def test_an_unknown_user_gets_the_same_messages_as_a_known_one() -> None:
    known = Users(user=credential("pencil", salt=printable_salt(b"x" * 20)))
    answers = [server(known).respond(CLIENT_FIRST.replace(b"user", b"other")) for _ in range(2)]
    assert answers[0] == answers[1], "the salt of an unknown user stays the same"
    shape = parse_server_first(server(known).respond(CLIENT_FIRST))
    made_up = parse_server_first(answers[0])
    assert made_up.iterations == shape.iterations
    assert all(25 <= len(each.salt) <= 26 for each in (shape, made_up))
    third = server(known).respond(CLIENT_FIRST.replace(b"user", b"third"))
    assert third != answers[0]
    with pytest.raises(SaslError, match="unknown user") as caught:
        run(ScramClient(SHA_256, "other", "pencil", "nonce"), server(known))
    assert caught.value.shown is None


def test_made_up_salts_use_all_characters_of_kafkas_salts() -> None:
    made = b"".join(
        dummy_credential(SHA_256, f"user{number}", b"secret").salt for number in range(100)
    )
    assert set(made) == set(b"0123456789abcdefghijklmnopqrstuvwxyz")


def test_made_up_iterations_are_as_frequent_as_those_of_users() -> None:
    iterations = (4096,) * 30 + (8192,) * 10
    names = [f"user{number}" for number in range(1000)]
    made = [dummy_credential(SHA_256, name, b"secret", iterations).iterations for name in names]
    assert set(made) == {4096, 8192}
    assert 150 < made.count(8192) < 350
    more = [
        dummy_credential(SHA_256, name, b"secret", (*iterations, 8192)).iterations for name in names
    ]
    changed = sum(one != other for one, other in zip(made, more, strict=True))
    assert changed < 30, "another user changes the iterations of few names"


def test_the_server_does_the_same_steps_for_known_and_unknown_users() -> None:
    asked: list[str] = []

    class Watched(Users):
        def dummy_credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
            asked.append(name)
            return super().dummy_credential(mechanism, name)

    users = Watched(user=credential("pencil"))
    for name in (b"user", b"other"):
        server(users).respond(CLIENT_FIRST.replace(b"user", name))
    assert asked == ["user", "other"]


def test_a_message_that_a_server_would_have_to_keep_is_limited() -> None:
    for message in (b"n,,n=user,r=" + b"x" * 9000, b"n,,n=user,r=x" + b",a=b" * 3000):
        with pytest.raises(SaslError, match="more than 8192 bytes"):
            server(Users()).respond(message)


@pytest.mark.parametrize("nonce", [b"a b", b"a\x7f", b"a\x1f", "é".encode()])
def test_a_nonce_has_printable_characters_only(nonce: bytes) -> None:
    with pytest.raises(SaslError, match="not printable"):
        server(Users()).respond(b"n,,n=user,r=" + nonce)


def test_a_credential_with_fewer_iterations_than_kafka_allows_is_not_used() -> None:
    users = Users(user=credential("pencil", iterations=4095))
    with pytest.raises(SaslError, match="unknown user"):
        run(ScramClient(SHA_256, "user", "pencil", "nonce"), server(users))


def test_a_token_logs_in_as_its_owner() -> None:
    users = Users(user=credential("pencil"))
    owner = Identity("owner", is_token=True, expiry_ms=99)
    users.tokens["id"] = ScramUser(credential("hmac"), owner)
    peer = server(users)
    run(ScramClient(SHA_256, "id", "hmac", "nonce", {"tokenauth": "true"}), peer)
    assert peer.identity == owner
    assert peer.claimed_name == "id"
    with pytest.raises(SaslError):
        run(ScramClient(SHA_256, "user", "pencil", "nonce", {"tokenauth": "true"}), server(users))
    with pytest.raises(SaslError):
        run(ScramClient(SHA_256, "id", "hmac", "nonce"), server(users))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,r=x,n=user",
        b"p=tls-unique,,n=user,r=x",
        b"x,,n=user,r=x",
        b"n,b=x,n=user,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"n,,n=user,r=\x07",
        b"n,,m=x,n=user,r=x",
        b"n,,n=user,r=x,m=y",
        b"n,,n=user,r=x,",
        b"n,,n=user\0,r=x",
        b"\xff\xfe",
        b"n,,n=user,r=x,1=2",
    ],
)
def test_a_malformed_first_message_is_rejected(message: bytes) -> None:
    with pytest.raises(SaslError):
        parse_client_first(message)


@pytest.mark.parametrize(
    "change",
    [
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c=!"),
        (b"r=rOpr", b"r=rOpq"),
        (b"p=dHzb", b"p=eHzb"),
        (b"p=dHzb", b"p=dHzbdHzb"),
        (b",p=", b",q="),
    ],
)
def test_a_changed_last_message_is_rejected(change: tuple[bytes, bytes]) -> None:
    peer = server(Users(user=credential("pencil")))
    peer.respond(CLIENT_FIRST)
    with pytest.raises(SaslError):
        peer.respond(CLIENT_FINAL.replace(*change))
    assert peer.identity is None


def test_another_authorization_id_is_rejected_and_the_own_one_is_not() -> None:
    users = Users(user=credential("pencil"))
    assert server(users).respond(CLIENT_FIRST.replace(b"n,,", b"n,a=user,"))
    with pytest.raises(SaslError) as caught:
        server(users).respond(CLIENT_FIRST.replace(b"n,,", b"n,a=other,"))
    assert caught.value.shown is not None
    assert "authorization id that is different" in caught.value.shown


def answer_to(client: ScramClient, message: bytes) -> bytes | None:
    work = client.prepare(message)
    if work is not None:
        work()
    return client.respond(message)


@pytest.mark.parametrize(
    "answer",
    [
        b"r=nonce,s=AAAA,i=4096",
        b"r=other,s=AAAA,i=4096",
        b"r=nonce1,s=!,i=4096",
        b"r=nonce1,s=AAAA,i=4095",
        b"r=nonce1,s=AAAA,i=1000001",
        b"r=nonce1,s=AAAA,i=x",
        b"r=nonce1,s=AAAA,i=99999999999999999999",
        b"s=AAAA,r=nonce1,i=4096",
        b"e=other-error",
    ],
)
def test_the_client_rejects_a_server_that_does_not_follow_the_rfc(answer: bytes) -> None:
    client = ScramClient(SHA_256, "user", "pencil", "nonce")
    client.first()
    with pytest.raises(SaslError):
        answer_to(client, answer)


@pytest.mark.parametrize("last", [b"v=AAAA", b"e=invalid-proof", b"x=1", SERVER_FINAL + b"x"])
def test_the_client_rejects_a_server_that_does_not_know_the_password(last: bytes) -> None:
    client = ScramClient(SHA_256, "user", "pencil", CLIENT_NONCE)
    client.first()
    work = client.prepare(SERVER_FIRST)
    assert work is not None
    work()
    client.respond(SERVER_FIRST)
    with pytest.raises(SaslError):
        client.respond(last)
    assert not client.is_complete


@given(st.binary(max_size=200) | st.text(alphabet="n,a=r=mcp=2C\0x", max_size=60).map(str.encode))
def test_any_bytes_are_a_message_or_an_error(message: bytes) -> None:
    for parse in (parse_client_first, parse_client_final):
        try:
            parse(message)
        except SaslError:
            continue
