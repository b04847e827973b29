"""Hostile logins: SASL frames, messages of mechanisms, and requests without a login."""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import random
import struct
import time
from collections.abc import Callable
from typing import Any, Protocol

import jwt
from cryptography.hazmat.primitives import serialization

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.codec import encode_request
from barnabas.protocol.messages.connection import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from barnabas.protocol.schema import Message
from fuzz import mutations
from fuzz.grammar import Grammar
from fuzz.secured_broker import AUDIENCE, ISSUER, KEY_ID, MECHANISMS, USER

# Correlation id of requests that need a login. No response may have it.
FORBIDDEN = b"\x7b\xad\xf0\x0d"
# Names with quotes, separators, line ends, and more bytes than a log line should have.
_NAMES = ["", "a" * 5000, "a\nb", "a=2Cb", "a,b", "\x00", "κόσμος", "=3D=3D", "User:alice", "'--"]
_ALLOWED = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
# Sizes above the limit of a listener before the login, and a little below it.
_LARGE = 500_000


class Wire(Protocol):
    """A connection, with TLS or without."""

    def send(self, data: bytes) -> None:
        """Send bytes."""
        ...

    def receive_frame(self) -> bytes | None:
        """Return the next frame; None if there is none in time, or the connection ended."""
        ...


class Logins:
    """Generates attacks on logins from a seed."""

    def __init__(self, rng: random.Random, key: Any) -> None:
        """Args:
        rng: the source of all choices.
        key: the private key of the issuer of tokens.
        """
        self._rng = rng
        self._grammar = Grammar(rng)
        self._key = key
        self.sent_by_attack: dict[str, int] = {}
        self._attacks: list[Callable[[Wire], None]] = [
            self.request_without_login,
            self.odd_handshake,
            self.damaged_frames,
            self.plain,
            self.raw_frames,
            self.scram,
            self.scram_with_wrong_end,
            self.token,
            self.large_messages,
            self.all_at_once,
        ]

    def attack(self, wire: Wire) -> str:
        """Run one attack, send a forbidden request after it, and return the attack's name.

        The broker may close the connection meanwhile.
        """
        chosen = self._rng.choice(self._attacks)
        name = chosen.__name__
        self.sent_by_attack[name] = self.sent_by_attack.get(name, 0) + 1
        with contextlib.suppress(OSError):
            chosen(wire)
            wire.send(self.forbidden())
        return name

    def forbidden(self) -> bytes:
        """Return a valid request that needs a login."""
        while True:
            key, frame = self._grammar.frame()
            if key not in _ALLOWED and len(frame) < _LARGE:
                return frame[:8] + FORBIDDEN + frame[12:]

    # The attacks.

    def request_without_login(self, wire: Wire) -> None:
        """Send a request immediately, or after ApiVersions."""
        if self._rng.random() < 0.5:
            wire.send(_frame(ApiVersionsRequest(), self._rng.choice([0, 2])))
            wire.receive_frame()

    def odd_handshake(self, wire: Wire) -> None:
        """Request an unknown mechanism or version."""
        rng = self._rng
        name = rng.choice([*_NAMES, "GSSAPI", "plain", "SCRAM-SHA-1", "X" * 32_000, *MECHANISMS])
        wire.send(handshake(name, rng.choice([0, 1])))
        if rng.random() < 0.5:
            wire.send(handshake(rng.choice(MECHANISMS), rng.choice([0, 1])))

    def damaged_frames(self, wire: Wire) -> None:
        """Send the frames of a usual login with damage."""
        frames = [
            _frame(ApiVersionsRequest(), 2),
            handshake(self._rng.choice(MECHANISMS), 1),
            authenticate(b"n,,n=alice,r=abc", self._rng.choice([0, 1, 2])),
        ]
        damaged = self._rng.randrange(len(frames))
        for number, frame in enumerate(frames):
            if number == damaged:
                wire.send(self._rng.choice(mutations.ALL)(frame, self._rng))
                return
            wire.send(frame)

    def plain(self, wire: Wire) -> None:
        """Send wrong passwords and malformed messages of PLAIN."""
        wire.send(handshake("PLAIN", 1))
        wire.send(authenticate(self._plain_message(), self._rng.choice([0, 1, 2])))

    def raw_frames(self, wire: Wire) -> None:
        """Send messages as raw frames, after version 0 of the handshake."""
        rng = self._rng
        mechanism = rng.choice(MECHANISMS)
        wire.send(handshake(mechanism, 0))
        message = {
            "PLAIN": self._plain_message,
            "OAUTHBEARER": self._bearer_message,
        }.get(mechanism, self._scram_first)()
        wire.send(_with_length(rng.choice([message, message, b"", rng.randbytes(40)])))
        if rng.random() < 0.5:
            wire.receive_frame()
            wire.send(_with_length(rng.choice([b"", b"\x01", b"c=biws,r=x,p=eA==", message])))
        # In this state, the broker reads each frame as a message and not as a request.
        wire.send(_with_length(b"no message"))

    def scram(self, wire: Wire) -> None:
        """Send a damaged first message of SCRAM, and any second message."""
        wire.send(handshake(self._rng.choice(MECHANISMS[1:3]), 1))
        wire.receive_frame()
        wire.send(authenticate(self._scram_first(), 2))
        wire.send(authenticate(self._rng.choice([b"", b"c=biws,r=x,p=eA==", b"\xff" * 20]), 2))

    def scram_with_wrong_end(self, wire: Wire) -> None:
        """Send a valid first message of SCRAM, and a wrong last message."""
        rng = self._rng
        wire.send(handshake(rng.choice(MECHANISMS[1:3]), 1))
        wire.receive_frame()
        name = rng.choice([USER, "nobody"])
        wire.send(authenticate(f"n,,n={name},r=abc".encode(), 2))
        answer = wire.receive_frame() or b""
        nonce = answer.partition(b"r=")[2].partition(b",")[0] or b"abc"
        proof = base64.b64encode(rng.randbytes(rng.choice([0, 1, 31, 32, 64, 5000])))
        binding = rng.choice([b"biws", b"biws", b"eSws", b"", b"AAAA", b"!"])
        nonce = rng.choice([nonce, nonce, nonce[:-1], b"abc", b"x" * 9000])
        more = rng.choice([b"", b"", b",m=x", b",a=" + b"x" * 3000])
        end = b"c=" + binding + b",r=" + nonce + more + b",p=" + proof
        wire.send(authenticate(end, 2))

    def token(self, wire: Wire) -> None:
        """Send tokens that the issuer did not sign, or that were changed."""
        wire.send(handshake("OAUTHBEARER", 1))
        wire.receive_frame()
        wire.send(authenticate(self._bearer_message(), 2))
        wire.receive_frame()
        wire.send(authenticate(self._rng.choice([b"\x01", b"", self._bearer_message()]), 2))

    def large_messages(self, wire: Wire) -> None:
        """Send costly messages near the size limit of a frame."""
        mechanism, message = self._rng.choice([
            ("PLAIN", b"\0" * _LARGE),
            ("PLAIN", b"\0alice\0" + b"x" * _LARGE),
            ("PLAIN", b"\xff" * _LARGE),
            ("SCRAM-SHA-256", b"n,,n=alice,r=" + b"x" * _LARGE),
            ("SCRAM-SHA-256", b"n,,n=alice,r=x" + b",a=b" * (_LARGE // 4)),
            ("SCRAM-SHA-512", b"n,,n=" + b"=2C" * (_LARGE // 3) + b",r=x"),
            ("SCRAM-SHA-512", b"," * _LARGE),
            ("OAUTHBEARER", b"n,,\x01auth=Bearer " + b"a" * _LARGE + b"\x01\x01"),
            ("OAUTHBEARER", b"n,,\x01" + b"a=b\x01" * (_LARGE // 4) + b"\x01"),
            ("OAUTHBEARER", b"n,,\x01auth=Bearer " + b"." * _LARGE + b"\x01\x01"),
        ])  # fmt: skip
        wire.send(handshake(mechanism, 1))
        wire.send(authenticate(message, 2))

    def all_at_once(self, wire: Wire) -> None:
        """Send a failing login and requests in one write, before any response."""
        frames = [
            _frame(ApiVersionsRequest(), 2),
            handshake("PLAIN", 1),
            authenticate(b"\0alice\0wrong", 2),
            *(self.forbidden() for _ in range(3)),
        ]
        wire.send(b"".join(frames[self._rng.randrange(3) :]))

    # Messages.

    def _plain_message(self) -> bytes:
        rng = self._rng
        name = rng.choice([*_NAMES, USER])
        parts = rng.choice([
            ["", name, "wrong"],
            [name, USER, "wrong"],
            ["", name],
            ["", "", ""],
            ["", name, "alice-secre"],
            ["a", "b", "c", "d", "e"],
        ])  # fmt: skip
        message = "\0".join(parts).encode()
        return rng.choice([message, message, message[:-1], b"\xff" + message])

    def _scram_first(self) -> bytes:
        rng = self._rng
        name = rng.choice([*_NAMES, USER])
        flag = rng.choice(["n", "n", "n", "y", "p=tls-unique", "", "x"])
        authorization = rng.choice(["", "", "a=bob", "a=", "b", "a=" + "x" * 3000])
        nonce = rng.choice(["abc", "", "x" * 100_000, "a b", "é", "a,b", "\x7f"])
        more = rng.choice(["", "", ",tokenauth=true", ",m=y", ",i=999999999", ",a=b" * 2000, ",="])
        message = f"{flag},{authorization},n={name},r={nonce}{more}".encode()
        return rng.choice([message, message, message, message[: len(message) // 2], b""])

    def _bearer_message(self) -> bytes:
        rng = self._rng
        token = self.bad_token()
        header = rng.choice(["n,,", "n,,", "n,,", "y,,", "n,a=bob,", "p,,", "", "n,a=,,"])
        more = rng.choice(["", "", "\x01auth=Bearer x", "\x01trace=\x02", "\x01k=" + "v" * 9000])
        message = f"{header}\x01auth=Bearer {token}{more}\x01\x01".encode("utf-8", "replace")
        return rng.choice([message, message, message, message[:-1], b"\x01"])

    def bad_token(self) -> str:
        """Return an invalid token."""
        now_s = int(time.time())
        claims: dict[str, Any] = {
            "sub": USER,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": now_s,
            "exp": now_s + 300,
        }
        make = self._rng.choice([
            self._without_signature,
            self._signed_with_the_public_key,
            self._of_another_key,
            self._odd_json,
            self._wrong_claims,
            self._changed,
        ])  # fmt: skip
        return make(claims)

    def _without_signature(self, claims: dict[str, Any]) -> str:
        algorithms = ["none", "None", "", None, ["ES256"], 7, {"a": 1}]
        header = {"alg": self._rng.choice(algorithms), "kid": KEY_ID}
        return f"{_part(header)}.{_part(claims)}." + self._rng.choice(["", "eA"])

    def _signed_with_the_public_key(self, claims: dict[str, Any]) -> str:
        """Return a token with the public key as the shared secret of an HMAC."""
        secret = self._key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        body = f"{_part({'alg': 'HS256', 'kid': KEY_ID})}.{_part(claims)}"
        return f"{body}.{_encoded(hmac.digest(secret, body.encode(), 'sha256'))}"

    def _of_another_key(self, claims: dict[str, Any]) -> str:
        kids: list[Any] = ["other", "", "x" * 40_000, None, 7, [KEY_ID], {"a": "b"}, 10**30]
        header = {"alg": "ES256", "kid": self._rng.choice([*kids, KEY_ID])}
        return f"{_part(header)}.{_part(claims)}.{_encoded(self._rng.randbytes(64))}"

    def _odd_json(self, _claims: dict[str, Any]) -> str:
        rng = self._rng
        odd = rng.choice([
            "[" * 30_000, '{"a":' * 8_000, "9" * 40_000, "1e999999", "NaN", '"\\ud800"',
            "\ufeff{}", '{"alg":"ES256","alg":"none"}',
        ])  # fmt: skip
        one = _encoded(odd.encode())
        return f"{rng.choice([one, _part({'alg': 'ES256', 'kid': KEY_ID})])}.{one}.{one}"

    def _wrong_claims(self, claims: dict[str, Any]) -> str:
        now_s = claims["iat"]
        wrong = self._rng.choice([
            {"exp": now_s - 3600}, {"exp": None}, {"exp": "x"}, {"exp": 1e300}, {"exp": -1},
            {"exp": [1]}, {"nbf": now_s + 3600}, {"aud": "others"}, {"aud": {"kafka": 1}},
            {"iss": "x"}, {"iss": [ISSUER]}, {"sub": ""}, {"sub": 7}, {"sub": ["alice"]},
            {"iat": "x"}, {"iat": True},
        ])  # fmt: skip
        payload = json.dumps({**claims, **wrong}).encode()
        return jwt.api_jws.encode(payload, self._key, "ES256", {"kid": KEY_ID})

    def _changed(self, claims: dict[str, Any]) -> str:
        signed = jwt.encode(claims, self._key, "ES256", {"kid": KEY_ID})
        head, body, signature = signed.split(".")
        plain = {"alg": "ES256", "kid": KEY_ID}
        detached = _part({**plain, "b64": False, "crit": ["b64"]})
        elsewhere = _part({"alg": "ES256", "jwk": {}, "jku": "http://x", "x5u": "file:///"})
        return self._rng.choice([
            f"{head}.{_part({**claims, 'sub': 'admin'})}.{signature}",
            f"{head}.{body}.{signature[:-8]}",
            f"{head}.{body}.",
            f"{head}.{body}",
            f"{head}.{body}.{_encoded(bytes(64))}",
            f"{_part({**plain, 'alg': 'ES384'})}.{body}.{signature}",
            f"{detached}.{body}.{signature}",
            f"{elsewhere}.{body}.{signature}",
            signed[::-1],
        ])  # fmt: skip


def _with_length(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _frame(request: Message, version: int) -> bytes:
    return b"".join(bytes(chunk) for chunk in encode_request(1, "attack", request, version))


def handshake(mechanism: str, version: int) -> bytes:
    """Return a frame with a SaslHandshake."""
    return _frame(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(message: bytes, version: int) -> bytes:
    """Return a frame with a SaslAuthenticate."""
    return _frame(SaslAuthenticateRequest(auth_bytes=message), version)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _part(value: Any) -> str:
    return _encoded(json.dumps(value).encode())
