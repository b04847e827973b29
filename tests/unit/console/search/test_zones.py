"""Times in the zone that the reader chose."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from barnabas.console.forms import Fields, FormError
from barnabas.console.search.zones import COMMON, UTC_ZONE, Zone, zone_of

SUMMER_MS = 1_782_907_200_000  # 2026-07-01T12:00Z


def zone(name: str = "", cookie: str = "") -> Zone:
    headers = [(b"cookie", f"barnabas_zone={cookie}".encode())] if cookie else []
    return zone_of(Request({"type": "http", "headers": headers}), Fields([("zone", name)]))


def typed(zone: Zone, text: str) -> int:
    return zone.moment_ms(Fields([("time", text)]), "time")


def test_times_have_the_offset_of_the_zone_at_that_time() -> None:
    vienna = zone("Europe/Vienna")
    assert vienna.shown(SUMMER_MS) == "2026-07-01 14:00:00.000+02:00"
    assert vienna.text(SUMMER_MS - 180 * 86_400_000) == "2026-01-02T13:00:00.000+01:00"
    assert UTC_ZONE.text(SUMMER_MS) == "2026-07-01T12:00:00.000Z"


def test_times_that_are_no_dates_are_shown_as_numbers() -> None:
    assert zone("Asia/Tokyo").shown(10**18) == str(10**18)
    assert UTC_ZONE.shown(-1) == "–"


def test_a_typed_time_without_a_zone_is_in_the_zone() -> None:
    vienna = zone("Europe/Vienna")
    assert typed(vienna, "2026-07-01T14:00") == SUMMER_MS
    assert typed(vienna, "2026-07-01T12:00Z") == SUMMER_MS
    assert typed(vienna, str(SUMMER_MS)) == SUMMER_MS
    with pytest.raises(FormError, match="Time must be"):
        typed(vienna, "soon")


def test_the_address_counts_before_the_cookie_and_the_cookie_before_utc() -> None:
    assert zone("Asia/Tokyo", "Europe/Vienna").name == "Asia/Tokyo"
    assert zone(cookie="Europe/Vienna").name == "Europe/Vienna"
    assert zone().name == "UTC"


@pytest.mark.parametrize(
    "name", ["Nowhere/City", "../../etc/passwd", "/etc/hosts", "Europe", "x" * 99]
)
def test_an_unknown_zone_is_refused_in_the_address_and_ignored_in_the_cookie(name: str) -> None:
    with pytest.raises(FormError, match="no time zone"):
        zone(name)
    assert zone(cookie=name) == UTC_ZONE


def test_the_offered_zones_exist() -> None:
    assert [zone(name).name for name in COMMON] == list(COMMON)
