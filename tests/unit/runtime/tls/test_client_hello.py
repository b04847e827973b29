"""First messages of clients that the server answers, and those that it refuses."""

from __future__ import annotations

import ssl
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from barnabas.runtime.tls.handshakes import check_client_hello, is_first_record_complete


def hello_of(version: ssl.TLSVersion) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = context.maximum_version = version
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


def number(value: int, size: int = 2) -> bytes:
    return value.to_bytes(size)


def sized(data: bytes, size: int = 2) -> bytes:
    return number(len(data), size) + data


def extension(kind: int, content: bytes) -> bytes:
    return number(kind) + sized(content)


def hello_with(*extensions: bytes) -> bytes:
    body = (
        b"\3\3"
        + bytes(32)
        + sized(b"", 1)
        + sized(b"\x13\x01")
        + sized(b"\0", 1)
        + sized(b"".join(extensions))
    )
    return b"\x16\3\1" + sized(b"\1" + sized(body, 3))


def groups(*values: int) -> bytes:
    return extension(10, sized(b"".join(map(number, values))))


def shares(*values: int) -> bytes:
    return extension(51, sized(b"".join(number(value) + sized(b"key") for value in values)))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_hello_of_openssl_is_answered(version: ssl.TLSVersion) -> None:
    hello = hello_of(version)
    assert is_first_record_complete(hello)
    assert not any(is_first_record_complete(hello[:size]) for size in range(len(hello)))
    assert check_client_hello(hello) is None


@pytest.mark.parametrize(
    "hello",
    [
        hello_with(),
        hello_with(groups(29, 0x0100), shares(29)),
        hello_with(groups(0x11EC, 29), shares(0x11EC, 29)),
        hello_with(groups(24)),
        hello_with(extension(0, b"name"), groups(23), shares()),
    ],
)
def test_a_hello_with_a_curve_is_answered(hello: bytes) -> None:
    assert check_client_hello(hello) is None


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (hello_with(groups(29, 0x0104), shares(0x0104)), "finite-field"),
        (hello_with(groups(29, 0x0104), shares(29, 0x0104)), "finite-field"),
        (hello_with(groups(0x0104)), "no usual elliptic curve"),
        (hello_with(groups()), "no usual elliptic curve"),
        (hello_with(groups(29))[:-1], "malformed"),
        (b"\x16\3\1\0\0", "malformed"),
        (b"\x16\3\1\0\4\2\0\0\0", "malformed"),
        (b"\x16\3\1\xff\xff" + bytes(100), "malformed"),
    ],
)
def test_a_hello_that_costs_much_or_is_malformed_is_refused(hello: bytes, reason: str) -> None:
    assert reason in str(check_client_hello(hello))


def test_a_hello_that_is_divided_among_records_is_refused() -> None:
    whole = hello_with(groups(29), shares(0x0104))
    message = whole[5:]
    divided = b"".join(b"\x16\3\1" + sized(part) for part in (message[:50], message[50:]))
    assert "divided" in str(check_client_hello(divided))


@given(st.binary(max_size=200))
def test_no_bytes_raise_an_exception(data: bytes) -> None:
    data = b"\x16\3\1" + data
    if is_first_record_complete(data):
        check_client_hello(data)


@given(st.data())
def test_no_changed_hello_raises_an_exception(data: st.DataObject) -> None:
    hello = bytearray(hello_with(groups(29, 23), shares(29)))
    place = data.draw(st.integers(5, len(hello) - 1))
    hello[place] = data.draw(st.integers(0, 255))
    check_client_hello(bytes(hello))
