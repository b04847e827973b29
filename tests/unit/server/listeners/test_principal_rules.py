"""Names of principals by rules. The first cases are the examples of Kafka's documentation."""

from __future__ import annotations

import pytest

from barnabas.server.listeners.tls_principals import (
    NoMatchingRuleError,
    PrincipalRules,
    PrincipalRulesError,
)
from unit.server.listeners.principal_cases import CASES


@pytest.mark.parametrize(("rules", "subject", "name"), CASES)
def test_the_first_matching_rule_names_a_principal(rules: str, subject: str, name: str) -> None:
    assert PrincipalRules(rules).name(subject) == name


def test_a_subject_that_no_rule_matches_has_no_name() -> None:
    with pytest.raises(NoMatchingRuleError, match="O=x"):
        PrincipalRules("RULE:^CN=(.*)$/$1/").name("O=x")


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAULT/L",
        "RULE:CN=(.*)",
        "RULE:CN=(.*)/$1",
        "RULE:CN=(.*)/$1/LU",
        "RULE:CN=(.*)/$1/x",
        "RULE:CN=(/$1/",
    ],
)
def test_malformed_rules_are_refused(rules: str) -> None:
    with pytest.raises(PrincipalRulesError):
        PrincipalRules(rules)


def test_a_pattern_cannot_take_exponential_time() -> None:
    rules = PrincipalRules("RULE:^CN=((a+)+)b$/$1/,DEFAULT")
    subject = "CN=" + "a" * 5000
    assert rules.name(subject) == subject
