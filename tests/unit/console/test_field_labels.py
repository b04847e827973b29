"""Errors about the fields of a form have the names that the form shows."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from barnabas.console.field_labels import label_of
from barnabas.console.forms import Fields, FormError

_MACRO = re.compile(
    r'inputs\.(?:text|area|choice|file)\(draft, "(?P<path>[^"]+)", '
    r'(?P<part>name(?: ~ )?)?(?:"(?P<name>\w+)")?, "(?P<label>[^"]+)"'
)
_FORM = re.compile(r"<form[^>]*?action=\"\{\{ link\('(?P<path>[^']+)'\)")
_INPUT = re.compile(
    r'<label[^>]*>(?P<label>[^<]+?)\s*<(?:input|select|textarea) name="(?P<name>\w+)"'
)
# Fields that have any text, so that no error is about them, and those of other words in their
# errors, such as the name that the user has to type.
_WITHOUT_ERRORS = {
    "q", "text", "key", "value", "header", "filter", "configs", "match", "offsets", "host", "how",
    "topics", "kind", "id", "confirm", "user", "target", "principal", "partitions", "replicas",
}  # fmt: skip


def fields() -> list[tuple[str, str, str, str]]:
    """Return template, path, name and label of the fields of all forms."""
    found = []
    for template in (files("barnabas.console") / "templates").iterdir():
        text, path = template.read_text(), ""
        for part in re.split(r"(?=<form)", text):
            form = _FORM.match(part)
            path = form["path"] if form else path
            inputs = _INPUT.finditer(part)
            found += [(template.name, path, each["name"], each["label"]) for each in inputs]
        for each in _MACRO.finditer(text):
            names = [each["name"]]
            if each["part"]:
                names = [f"{part}{each['name'] or ''}" for part in ("key", "value")]
            found += [(template.name, each["path"], name, each["label"]) for name in names]
    return found


FIELDS = [each for each in fields() if each[2] not in _WITHOUT_ERRORS]


def test_the_forms_of_the_templates_are_found() -> None:
    found = {(path, name) for _, path, name, _ in fields()}
    assert len(found) > 60
    assert {
        ("/topic/purge", "offset"),
        ("/produce", "key_version"),
        ("/messages", "limit"),
    } <= found


@pytest.mark.parametrize(("template", "path", "name", "label"), FIELDS)
def test_an_error_calls_a_field_as_its_form_does(
    template: str, path: str, name: str, label: str
) -> None:
    called = label_of(path, name)
    assert label.strip().startswith(called), template
    assert called != name


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("partition", "x", "Partition must be a whole number, not 'x'"),
        ("partition", "-1", "Partition must be a number from 0 on, not -1"),
        ("partition", "", "fill in Partition"),
        ("brokers", "1;2", "Brokers must be numbers with commas between them, such as 1,2,3"),
        ("time", "soon", "Time: write a time in UTC such as 2026-01-31T12:00, 7d for 7 days ago"),
        ("age", "long", "Open for longer than: write a length of time such as 90s, 15m, 12h or 7d"),
        ("level", "x", "Compatibility: choose one of NONE, FULL, not x"),
        ("topic", " ", "fill in Topic"),
    ],
)
def test_errors_name_the_label_and_not_the_name_of_a_field(
    name: str, text: str, error: str
) -> None:
    form = Fields([(name, text)], "/east/schemas/compatibility")
    read = {
        "partition": form.number,
        "brokers": form.integers,
        "time": form.moment,
        "age": form.duration,
        "level": lambda name: form.one_of(name, ("NONE", "FULL")),
        "topic": form.required,
    }[name]
    with pytest.raises(FormError) as raised:
        read(name)
    assert str(raised.value).startswith(error)
    assert raised.value.field == name
