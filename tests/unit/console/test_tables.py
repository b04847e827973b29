"""Tables: the address sorts, filters, pages and chooses columns."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import jinja2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from barnabas.client.topic_partition import TopicPartition
from barnabas.console.frame import Announcements, Frame, Shared
from barnabas.console.rendering import ROWS_MAX, Renderer, assets
from barnabas.console.settings import ConsoleSettings
from barnabas.console.tables import Column, Kind, Table, columns_of, tabulate


class Thing(NamedTuple):
    name: str
    size: int | None
    kind: str = "a kind"


THINGS = [Thing("beta", 20), Thing("Alpha", 3), Thing("gamma ray", None), Thing("delta", 100)]
COLUMNS: tuple[Column[Thing], ...] = (
    Column("name", "Name", lambda each: each.name, kind="name"),
    Column("size", "Size", lambda each: each.size, kind="size"),
    Column("kind", "Kind", lambda each: each.kind, is_shown=False),
    Column("link", "Link"),
)


def table(address: str = "/things", things: list[Thing] = THINGS, **options: Any) -> Table[Thing]:
    parts = urlsplit(address)
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": parts.path,
        "query_string": parts.query.encode(),
        "headers": [],
        "server": ("h", 1),
        "scheme": "http",
        "app": Starlette(),
    }
    settings = ConsoleSettings("127.0.0.1:1", {})
    shared = Shared(settings, Announcements(print))
    scope["app"].state.frame = Frame(shared, settings, options.pop("mounted", ""))
    columns = options.pop("columns", COLUMNS)
    chosen = {"text": lambda each: str(each[0]), "sort": "name", **options}
    return tabulate(Request(scope), columns, things, **chosen)


def names(shown: Table[Thing]) -> list[str]:
    return [each.name for each in shown.rows]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("", ["Alpha", "beta", "delta", "gamma ray"]),
        ("-name", ["gamma ray", "delta", "beta", "Alpha"]),
        ("size", ["Alpha", "beta", "delta", "gamma ray"]),
        ("-size", ["delta", "beta", "Alpha", "gamma ray"]),
        ("no-such-column", ["Alpha", "beta", "delta", "gamma ray"]),
        ("link", ["Alpha", "beta", "delta", "gamma ray"]),
    ],
)
def test_rows_are_sorted_and_those_without_a_value_come_last(
    sort: str, expected: list[str]
) -> None:
    assert names(table(f"/things?sort={sort}")) == expected


def test_the_filter_finds_all_words_in_any_case() -> None:
    assert names(table("/things?q=RAY+gam")) == ["gamma ray"]
    assert names(table("/things?q=ray+beta")) == []
    assert table("/things?q=ray").total_unfiltered == len(THINGS)


def test_a_table_without_a_text_ignores_the_filter() -> None:
    assert len(table("/things?q=zzz", text=None).rows) == len(THINGS)


@pytest.mark.parametrize(
    ("page", "number"), [("1", 1), ("2", 2), ("9", 3), ("x", 1), ("-1", 1), ("9" * 99, 1)]
)
def test_a_long_table_has_pages(page: str, number: int) -> None:
    many = [Thing(f"{index:04}", index) for index in range(2 * ROWS_MAX + 1)]
    shown = table(f"/things?page={page}", many)
    assert (shown.number, shown.last, shown.total) == (number, 3, 2 * ROWS_MAX + 1)
    assert len(shown.rows) == (1 if number == 3 else ROWS_MAX)


def test_the_address_chooses_columns_and_the_first_one_stays() -> None:
    def keys(address: str) -> list[str]:
        return [each.key for each in table(address).columns]

    assert keys("/things") == ["name", "size", "link"]
    assert keys("/things?cols=kind") == ["name", "kind"]
    assert keys("/things?cols=kind&cols=link") == keys("/things?cols=kind,link,none")


def test_links_of_headers_turn_the_order_and_keep_the_rest_of_the_address() -> None:
    shown = table("/things?q=a&internal=1&page=3&sort=name")
    name, size, *_ = COLUMNS
    assert shown.sorted_by(name) == {"q": "a", "internal": "1", "sort": "-name"}
    # The largest numbers are asked for more often than the smallest.
    assert shown.sorted_by(size)["sort"] == "-size"
    assert shown.on_page(2)["page"] == "2"
    assert shown.kept("q", "internal") == {"sort": "name"}
    assert (shown.order_of(name), shown.order_of(size)) == ("ascending", "")


def test_two_tables_of_a_page_do_not_share_their_fields() -> None:
    address = "/things?m.q=beta&q=delta"
    assert names(table(address)) == ["delta"]
    second = table(address, prefix="m.")
    assert names(second) == ["beta"]
    assert second.on_page(2) == {"m.q": "beta", "q": "delta", "m.page": "2"}


def test_links_have_no_prefix_of_a_mounted_cluster() -> None:
    assert table("/north/things", mounted="north").path == "/things"


def page_of(shown: Table[Thing]) -> str:
    environment = Renderer(assets()).environment
    text = """
        {% import "tables.html" as tables %}{{ tables.toolbar(table) }}
        {% call(row, column) tables.rows(table, "Things", "no things", "Make one.") %}
        <a href="{{ link('/thing', name=row.name) }}">{{ column.label }}</a>{% endcall %}
    """
    loader = jinja2.DictLoader({"page.html": text})
    assert environment.loader is not None
    overlay = environment.overlay(loader=jinja2.ChoiceLoader([loader, environment.loader]))
    return overlay.get_template("page.html").render(table=shown)


def test_the_macro_names_the_cells_and_marks_the_sorted_column() -> None:
    page = page_of(table())
    assert len(re.findall("<th[^>]*aria-sort", page)) == 1
    assert '<td data-label="Size" class="n">20 B</td>' in page
    assert page.count('<th scope="row"') == len(THINGS)
    assert '<a href="/thing?name=beta">Link</a>' in page
    header = re.search(r'<a href="([^"]*)">Size</a>', page)
    assert header is not None
    assert parse_qsl(urlsplit(header[1]).query) == [("sort", "-size")]


def test_hostile_cells_and_filters_are_escaped() -> None:
    hostile = "<script>x</script>"
    page = page_of(table(f"/things?q={hostile}", [Thing(hostile, 1)]))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_an_empty_table_says_why_it_is_empty() -> None:
    assert "Make one." in page_of(table(things=[]))
    page = page_of(table("/things?q=zzz"))
    assert "Nothing matches zzz" in page
    assert ">Show all</a>" in page
    assert "<table" not in page


def test_the_address_tells_whether_a_table_is_asked_for() -> None:
    assert not table("/things?sort=name", prefix="other.").is_asked
    assert table("/things?other.sort=name", prefix="other.").is_asked
    assert table("/things?other.q=a", prefix="other.").is_asked


@pytest.mark.parametrize(
    ("kind", "ascending", "texts"),
    [
        ("text", ["Alpha", "beta"], ["Alpha", "beta"]),
        ("text", [TopicPartition("t", 9), TopicPartition("t", 10)], ["t-9", "t-10"]),
        ("number", [9, 1000], ["9", "1\N{NARROW NO-BREAK SPACE}000"]),
        ("id", [9, 1000], ["9", "1000"]),
        ("ids", [(2, 11), (10, 1)], ["2, 11", "10, 1"]),
        ("change", [-2000, 3], ["-2\N{NARROW NO-BREAK SPACE}000", "+3"]),
        ("size", [900, 2048, 3 * 1024**3], ["900 B", "2.0 KiB", "3.0 GiB"]),
        ("speed", [900, 2048], ["900 B/s", "2.0 KiB/s"]),
        ("moment", [0, 86_400_000], ["1970-01-01 00:00:00.000Z", "1970-01-02 00:00:00.000Z"]),
        ("age", [59_000, 60_000, 7_200_000], ["59 s", "60 s", "2 h"]),
    ],
)
def test_a_column_sorts_values_and_shows_their_texts(
    kind: Kind, ascending: list[Any], texts: list[str]
) -> None:
    columns = columns_of(("Value", kind, "unknown"))
    things: Any = [*((value,) for value in reversed(ascending)), (None,)]
    address = {"": "/things?sort=0", "-": "/things?sort=-0"}
    shown = {
        order: [columns[0].shown(row) for row in table(each, things, columns=columns).rows]
        for order, each in address.items()
    }
    # Cells without a value come last in both orders.
    assert shown == {"": [*texts, "unknown"], "-": [*reversed(texts), "unknown"]}
