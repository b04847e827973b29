"""Names of principals by rules. The first cases are the examples of Kafka's documentation."""

from __future__ import annotations

import pytest

from barnabas.server.listeners.principal_rules import (
    NoMatchingRuleError,
    PrincipalRules,
    PrincipalRulesError,
)

DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT"
)
CASES = [
    (
        DOCUMENTED,
        "CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
        "serviceuser",
    ),
    (
        DOCUMENTED,
        "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
        "adminuser@admin",
    ),
    (DOCUMENTED, "OU=x,CN=Some.Name,O=y", "some.name"),
    (DOCUMENTED, "O=nobody", "O=nobody"),
    ("DEFAULT", "CN=a,OU=b", "CN=a,OU=b"),
    ("RULE:^CN=(.*?),.*$/$1/U", "CN=abc,O=x", "ABC"),
    ("RULE:^CN=(.*?), OU=(.*?)$/$1-$2/", "CN=a, OU=b", "a-b"),
    ("RULE:CN=(a\\/b)/$1/", "CN=a/b", "a/b"),
    ("RULE:CN=(.)(.)/$2$1/", "CN=xy", "yx"),
    ("RULE:CN=(.*)/$10/", "CN=x", "x0"),
    ("RULE:CN=(.*)/\\$1-$2/", "CN=x", "$1-$2"),
    ("RULE:CN=(.*)/$0!/", "CN=x", "CN=x!"),
    ("RULE:(?i)cn=(.*)/$1/", "CN=x", "x"),
    ("RULE:CN=(?!root)(.*)/$1/,DEFAULT", "CN=x", "x"),
    ("RULE:CN=(?!root)(.*)/$1/,DEFAULT", "CN=root", "CN=root"),
    (" RULE:CN=(.*)/$1/ , , DEFAULT ", "O=x", "O=x"),
    ("RULE:CN=(.*)/fixed/", "CN=x", "fixed"),
]


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
