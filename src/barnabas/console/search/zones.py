"""Time zones: pages show times in the zone that the reader chose, else in UTC."""

from __future__ import annotations

import zoneinfo
from datetime import UTC
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.common.units import duration_ms, moment_of, time_ms_of, utc_text
from barnabas.console.forms import FormError
from barnabas.runtime.clock import SystemClock

if TYPE_CHECKING:
    from datetime import tzinfo

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.console.forms import Fields

_COOKIE = "barnabas_zone"
_COOKIE_S = 365 * 86_400
_NAME_CHARACTERS_MAX = 64

# Offered by the form; any other name of the IANA database may be typed.
COMMON = (
    "UTC", "Africa/Cairo", "Africa/Johannesburg", "Africa/Lagos", "America/Chicago",
    "America/Denver", "America/Los_Angeles", "America/New_York", "America/Sao_Paulo",
    "America/Toronto", "Asia/Dubai", "Asia/Hong_Kong", "Asia/Jakarta", "Asia/Kolkata",
    "Asia/Seoul", "Asia/Shanghai", "Asia/Singapore", "Asia/Tokyo", "Australia/Sydney",
    "Europe/Berlin", "Europe/London", "Europe/Madrid", "Europe/Moscow", "Europe/Paris",
    "Europe/Vienna", "Europe/Zurich", "Pacific/Auckland",
)  # fmt: skip


class Zone(NamedTuple):
    """A time zone."""

    # Its name in the IANA database.
    name: str
    info: tzinfo

    def text(self, time_ms: int) -> str:
        """Return a time as ISO 8601 with its offset from UTC; the number if it is no date."""
        try:
            moment = moment_of(time_ms, self.info)
            return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        except (OverflowError, ValueError):
            return utc_text(time_ms)

    def shown(self, time_ms: int) -> str:
        """Return a time for a page; a dash for -1, which means unknown."""
        return "–" if time_ms < 0 else self.text(time_ms).replace("T", " ")

    def moment_ms(self, query: Fields, name: str) -> int:
        """Parse a time that a user typed: ISO 8601, milliseconds since 1970, or 15m ago as 15m.

        A time without a zone is in this zone.

        Raises:
            FormError: The field has none of these formats, or is empty.
        """
        text = query.required(name)
        if text.isascii() and text.isdigit():
            return int(text)
        ago = duration_ms(text)
        if ago is not None:
            return SystemClock().wall_ms() - ago
        try:
            return time_ms_of(text, self.info)
        except (ValueError, OverflowError):
            hint = "a time such as 2026-01-31T12:00, 15m for 15 minutes ago, or milliseconds"
            raise FormError(f"{query.label(name)} must be {hint}, not {text!r}", name) from None


UTC_ZONE = Zone("UTC", UTC)


def zone_of(request: Request, query: Fields) -> Zone:
    """Return the zone in the address, else that of the browser's cookie, else UTC.

    Raises:
        FormError: The address names an unknown zone.
    """
    name = query.stripped("zone")
    if name:
        found = _zone(name)
        if found is None:
            text = f"there is no time zone {name!r}: write a name such as Europe/Vienna"
            raise FormError(text, "zone")
        return found
    return _zone(request.cookies.get(_COOKIE, "")) or UTC_ZONE


def remember_zone(response: Response, zone: Zone) -> None:
    """Keep the zone in a cookie of the browser."""
    response.set_cookie(_COOKIE, zone.name, max_age=_COOKIE_S, httponly=True, samesite="lax")


def _zone(name: str) -> Zone | None:
    if name == UTC_ZONE.name:
        return UTC_ZONE
    if not 0 < len(name) <= _NAME_CHARACTERS_MAX:
        return None
    try:
        return Zone(name, zoneinfo.ZoneInfo(name))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None
