"""The console's pages of schemas, with a registry of each kind."""

from __future__ import annotations

import html
import json
import re
import uuid
from collections.abc import Iterator

import pytest

from barnabas.client.facade import Client
from barnabas.console.settings import ConsoleSettings
from barnabas.serializers.registry import SchemaRegistry
from barnabas.serializers.schema import Schema, SchemaReference, SchemaType
from barnabas.testing.broker_process import BrokerProcess
from console_in_process import ConsoleInProcess, table_rows
from waiting import eventually

SECONDS = 60
HOSTILE = "<script>alert(1)</script>"
JSON_SCHEMA = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'


def record(*fields: str, more: str = "") -> str:
    """Return the text of an Avro record whose fields are strings."""
    listed = [{"name": name, "type": "string"} for name in fields]
    if more:
        listed.append({"name": more, "type": "string", "default": HOSTILE})
    return json.dumps({"type": "record", "name": "Line", "fields": listed})


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess) -> str:
    name = f"console-schemas-{uuid.uuid4().hex[:8]}"
    with Client(broker.bootstrap) as client:
        client.create_topic(name, 1, 1)
    return name


@pytest.fixture(scope="module")
def registry(registry_url: str) -> SchemaRegistry:
    return SchemaRegistry(registry_url)


@pytest.fixture(scope="module")
def console(broker: BrokerProcess, registry: SchemaRegistry) -> Iterator[ConsoleInProcess]:
    settings = ConsoleSettings(
        broker.bootstrap, {}, allow_changes=True, registry=registry, interval=3600.0,
        timeout=SECONDS,
    )  # fmt: skip
    with ConsoleInProcess(settings) as running:
        running.log_in()
        yield running


def test_a_draft_is_checked_registered_and_compared(
    console: ConsoleInProcess, topic: str, registry: SchemaRegistry
) -> None:
    subject = f"{topic}-value"
    first = {"subject": subject, "type": "AVRO", "schema": record("text", "place")}
    shown = console.preview("/schemas/register", **first).text
    assert "the first version" in shown
    page = console.change("/schemas/register", **first, confirmed=1).text
    assert f"registered {subject} version 1" in page
    assert f'<a href="/topic?name={topic}"' in page

    wrong = {**first, "schema": record("text", "at")}
    checked = console.post("/schemas/check", **wrong).text
    assert "cannot be registered" in checked
    assert "&#34;name&#34;: &#34;at&#34;" in checked
    # The registration of such a draft shows the form again.
    refused = console.post("/schemas/register", csrf=console.token, **wrong).text
    assert "cannot be registered" in refused
    assert registry.versions(subject) == [1]

    second = {**first, "schema": record("text", more="note")}
    assert "is compatible" in console.post("/schemas/check", **second).text
    shown = console.preview("/schemas/register", **second).text
    assert HOSTILE not in shown
    console.change("/schemas/register", **second, confirmed=1)
    compared = console.get("/schema", subject=subject, version=2, against=1).text
    assert "Changes from version 1 to 2" in compared
    assert HOSTILE not in compared
    oldest_first = console.get("/schema", subject=subject, **{"versions.sort": "version"}).text
    assert re.findall(r'<th scope="row"[^>]*>\s*<a [^>]*>(\d)</a>', oldest_first) == ["1", "2"]
    marks = re.findall(r"<td>([+−])</td><td><code>\s*([^<]*)</code>", compared)
    assert ("−", "&#34;name&#34;: &#34;place&#34;,") in marks
    assert ("+", "&#34;name&#34;: &#34;note&#34;,") in marks
    # The draft begins with the newest text, as lines.
    draft = console.get("/schemas/draft", subject=subject).text
    assert "  &#34;name&#34;: &#34;Line&#34;," in draft


def test_subjects_are_sorted_by_their_compatibility_levels(
    console: ConsoleInProcess, topic: str, registry: SchemaRegistry
) -> None:
    # The last subject has the level of the registry.
    levels = {"a": "NONE", "b": "FULL", "c": ""}
    for name, level in levels.items():
        registry.register(f"{topic}-{name}", Schema('"string"'))
        if name != "c":
            registry.set_compatibility(level, f"{topic}-{name}")

    def names(order: str) -> list[str]:
        rows = table_rows(console.get("/schemas", q=f"{topic}-", sort=order).text)
        return [name[-1] for name in rows if name.removeprefix(f"{topic}-") in levels]

    def is_sorted() -> bool:
        """A page that was made while the registry was slow does not have all levels."""
        levels["c"] = registry.compatibility() or ""
        ascending = sorted(levels, key=lambda name: levels[name])
        descending = sorted(levels, key=lambda name: levels[name], reverse=True)
        return (names("compatibility"), names("-compatibility")) == (ascending, descending)

    eventually(is_sorted, lambda: f"{names('compatibility')} is not the order of {levels}")


def test_a_malformed_draft_is_explained(
    console: ConsoleInProcess, topic: str, registry: SchemaRegistry
) -> None:
    registry.register(f"{topic}-wrong", Schema('"string"'))
    fields = {"subject": f"{topic}-wrong", "type": "AVRO", "schema": "{"}
    checked = console.post("/schemas/check", **fields)
    assert checked.status == 200
    assert "cannot be registered" in checked.text
    assert "status 422" in checked.text
    assert console.post("/schemas/check", **{**fields, "type": "XML"}).status == 400
    assert console.post("/schemas/check", **fields, references="a:b").status == 400


def test_references_are_links_in_both_directions(
    console: ConsoleInProcess, topic: str, registry: SchemaRegistry
) -> None:
    used, using = f"{topic}-airport", f"{topic}-flight"
    registry.register(used, Schema('{"type":"record","name":"Airport","fields":[]}'))
    text = '{"type":"record","name":"Flight","fields":[{"name":"from","type":"Airport"}]}'
    reference = SchemaReference("Airport", used, 1)
    registry.register(using, Schema(text, SchemaType.AVRO, (reference,)))
    page = console.get("/schema", subject=using).text
    assert f"subject={used}&amp;version=1" in page
    page = console.get("/schema", subject=used).text
    assert f"subject={using}&amp;version=1" in page
    shown = console.preview("/schemas/delete", subject=used, confirm=used).text
    assert f"{using} 1" in shown


def test_the_list_has_types_versions_and_levels(
    console: ConsoleInProcess, topic: str, registry: SchemaRegistry
) -> None:
    subject = f"{topic}-listed"
    registry.register(subject, Schema(JSON_SCHEMA, SchemaType.JSON))
    done = console.change("/schemas/compatibility", subject=subject, level="FULL").text
    assert f"the compatibility of {subject} is FULL" in done
    row = table_rows(console.get("/schemas", q=subject).text)[subject]
    assert (row["Latest version"], row["Compatibility"]) == ("1", "FULL")
    # Apicurio Registry omits the type.
    assert row["Type"] in ("JSON", "AVRO")
    console.change("/schemas/compatibility", subject=subject, level="")
    row = table_rows(console.get("/schemas", q=subject).text)[subject]
    # Apicurio Registry reports NONE for such a subject, whatever the level of all others is.
    assert row["Compatibility"] == (registry.compatibility(subject) or registry.compatibility())
    assert "nothing matches" in console.get("/schemas", q="no-such-subject").text.lower()


def test_a_subject_is_deleted_softly_and_for_ever(
    console: ConsoleInProcess, topic: str, registry: SchemaRegistry
) -> None:
    subject = f"{topic}-gone"
    registry.register(subject, Schema('"string"'))
    fields = {"subject": subject, "confirm": subject}
    assert "type " in console.change("/schemas/delete", subject=subject, confirm="x").text
    assert "stay readable" in console.preview("/schemas/delete", **fields).text
    console.change("/schemas/delete", **fields, confirmed=1)
    assert subject not in registry.subjects()
    assert "never be read" in console.preview("/schemas/delete", **fields, permanent=1).text
    console.change("/schemas/delete", **fields, permanent=1, confirmed=1)
    assert subject not in registry.subjects(deleted=True)
    assert console.get("/schema", subject=subject).status == 404


def test_the_form_of_a_message_makes_an_example_and_checks_without_writing(
    console: ConsoleInProcess, broker: BrokerProcess, topic: str, registry: SchemaRegistry
) -> None:
    subject = f"{topic}-written"
    registry.register(subject, Schema(record("text", "place")))
    with Client(broker.bootstrap) as client:
        # The test with another registry may have written before.
        end = client.list_offsets({(topic, 0): "latest"})[topic, 0].offset
    console.forms_page = f"/produce?topic={topic}"
    form = {"topic": topic, "value_subject": subject, "value": "typed before", "key_kind": "auto"}

    def sent(**more: str) -> str:
        page = console.post(
            "/produce", csrf=console.token, here=console.forms_page, **{**form, **more}
        )
        assert page.status == 200, page.text
        return page.text

    example = sent(example="value")
    [text] = re.findall(r'<textarea name="value"[^>]*>\n(.*?)</textarea>', example, re.DOTALL)
    assert json.loads(html.unescape(text)) == {"text": "text", "place": "text"}
    assert '<option value="schema" selected>' in example
    fits = sent(check="1", value_kind="schema", value=html.unescape(text))
    assert re.search(r'id="check-value"[^>]*>valid, \d+ B</p>', fits), fits
    wrong = sent(check="1", value_kind="schema", value='{"text": 5}')
    assert re.search(r'<p class="bad" id="check-value"[^>]*>the value does not fit', wrong), wrong
    with Client(broker.bootstrap) as client:
        assert client.list_offsets({(topic, 0): "latest"})[topic, 0].offset == end
        done = console.change(
            "/produce",
            **form | {"value_kind": "schema", "value": json.dumps({"text": "a", "place": "b"})},
        )
        assert "wrote to" in done.text
        assert client.list_offsets({(topic, 0): "latest"})[topic, 0].offset == end + 1
