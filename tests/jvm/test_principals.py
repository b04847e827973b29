"""Names of principals equal those of Kafka: text of subjects, and mapping rules."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from barnabas.runtime.tls.distinguished_name import name_of
from barnabas.server.listeners.tls_principals import (
    NoMatchingRuleError,
    PrincipalRules,
    PrincipalRulesError,
)
from jvm.java import TIMEOUT_S
from unit.server.listeners.principal_cases import CASES

SOURCE = Path(__file__).parent / "PrincipalNames.java"


def encoded(*parts: tuple[tuple[x509.ObjectIdentifier, str], ...], kind: _ASN1Type | None) -> str:
    return (
        x509.Name(
            [
                x509.RelativeDistinguishedName(
                    [x509.NameAttribute(oid, text, kind, _validate=False) for oid, text in part]
                )
                for part in parts
            ]
        )
        .public_bytes()
        .hex()
    )


def one(text: str, kind: _ASN1Type | None = None) -> str:
    return encoded(((NameOID.COMMON_NAME, text),), kind=kind)


TYPES = [
    NameOID.COUNTRY_NAME, NameOID.STATE_OR_PROVINCE_NAME, NameOID.LOCALITY_NAME,
    NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.STREET_ADDRESS,
    NameOID.USER_ID, NameOID.DOMAIN_COMPONENT, NameOID.EMAIL_ADDRESS, NameOID.SERIAL_NUMBER,
    NameOID.GIVEN_NAME, NameOID.SURNAME, NameOID.TITLE, NameOID.DN_QUALIFIER,
    NameOID.PSEUDONYM, NameOID.INITIALS, x509.ObjectIdentifier("1.2.3.4.5"),
    x509.ObjectIdentifier("2.999.70000"),
]  # fmt: skip
NAMES = [
    *(encoded(((each, "DE"),), ((NameOID.COMMON_NAME, "x"),), kind=None) for each in TYPES),
    encoded(
        ((NameOID.COMMON_NAME, "x"), (NameOID.ORGANIZATION_NAME, "y"), (NameOID.USER_ID, "z")),
        kind=None,
    ),
    *map(one, ['a,b+c=d<e>f#g;h"i\\j', " lead and trail  ", "a  b", "#x", "tab\tand\nline"]),
    *map(one, ["München", "日本語", "😀", "nul\0x", " ", "under_score"]),
    *(
        one("texts, mixed ü", kind)
        for kind in _ASN1Type
        if kind.name in ("UTF8String", "BMPString", "UniversalString")
    ),
    *(
        one("texts, mixed", kind)
        for kind in _ASN1Type
        if kind.name
        in ("PrintableString", "IA5String", "T61String", "VisibleString", "NumericString")
    ),
]
RULES = [
    *((rules, subject) for rules, subject, _ in CASES),
    ("", "CN=a"),
    ("RULE:^CN=(.*)$/$1/", "O=x"),
    ("RULE:.*/x/", "CN=a"),
    ("RULE:CN=(.*)/$1/LU", "CN=a"),
    ("RULE:CN=(.*)", "CN=a"),
    ("RULE:CN=(.*)/$1", "CN=a"),
    ("default", "CN=a"),
    ("DEFAULT,", "CN=a"),
    ("RULE:CN=(.*)/$2-$1/", "CN=a"),
    ("RULE:(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)/$10$11/", "abcdefghij"),
]


@pytest.fixture(scope="module")
def kafka_names(
    kafka_jars: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    lines = [f"name\t{name}" for name in NAMES]
    lines += [f"rules\t{rules}\t{subject}" for rules, subject in RULES]
    path = tmp_path_factory.mktemp("names") / "names.txt"
    path.write_text("\n".join(lines) + "\n")
    words = ["java", "-Xmx256m", "-cp", kafka_jars("kafka"), str(SOURCE), str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return done.stdout.splitlines()


def content(name: str) -> bytes:
    """Return the content of the outer sequence."""
    data = bytes.fromhex(name)
    return data[2:] if data[1] < 0x80 else data[2 + (data[1] & 0x7F) :]


def test_subjects_are_formatted_as_in_java(kafka_names: list[str]) -> None:
    ours = [name_of(content(name)).replace("\n", "\\n") for name in NAMES]
    assert ours == kafka_names[: len(NAMES)]


def mapped(rules: str, subject: str) -> str:
    try:
        return PrincipalRules(rules).name(subject)
    except PrincipalRulesError:
        return "!"
    except NoMatchingRuleError:
        return "-"


def test_rules_map_names_as_in_kafka(kafka_names: list[str]) -> None:
    found = {(rules, subject): mapped(rules, subject) for rules, subject in RULES}
    assert found == dict(zip(RULES, kafka_names[len(NAMES) :], strict=True))
