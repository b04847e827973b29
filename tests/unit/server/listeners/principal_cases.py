"""Rules for principals with names that match and names that do not."""

from __future__ import annotations

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
