"""The output of `links list` and `links describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.output import echo_json
from barnabas.cli.common.tables import bad, dim, echo_line, echo_table, good, warn
from barnabas.cli.common.units import duration_text
from barnabas.replication.links.link_table import REVERSED, MirrorState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.cli.links.mirrors import PartitionLag
    from barnabas.cli.links.status import GroupCopy, LinkStatus, MirrorStatus

_MIRROR_STYLES: dict[MirrorState, Callable[[object], object]] = {
    MirrorState.ACTIVE: good,
    MirrorState.PAUSED: warn,
    MirrorState.STOPPED: bad,
    MirrorState.PROMOTING: warn,
    MirrorState.PROMOTED: str,
    MirrorState.CONFLICT: warn,
}
_LINK_STYLES: dict[str, Callable[[object], object]] = {
    "active": good,
    "paused": warn,
    REVERSED: warn,
    "invalid": bad,
    "unreachable": bad,
}
_UNKNOWN = "?"
_MS_PER_S = 1000.0


def echo_links(links: Sequence[LinkStatus], *, as_json: bool) -> None:
    """Print one line for each link."""
    states = [str(state) for state in MirrorState]
    if as_json:
        echo_json(
            [
                {
                    "link": each.link.name,
                    "state": each.state,
                    "source": each.source,
                    **{str(state): each.count(state) for state in MirrorState},
                    "lag": each.lag,
                    "behind_s": each.behind_s,
                }
                for each in links
            ]
        )
        return
    rows = [
        (
            each.link.name,
            _LINK_STYLES[each.state](each.state),
            each.source,
            *(each.count(state) for state in MirrorState),
            _known(each.lag),
            _seconds(each.behind_s),
        )
        for each in links
    ]
    echo_table(("link", "state", "source", *states, "lag", "behind"), rows)


def echo_link(status: LinkStatus, *, as_json: bool) -> None:
    """Print a link with its mirrors, its conflicts and its groups."""
    if as_json:
        echo_json(_as_json(status))
        return
    link = status.link
    echo_line(f"link {link.name}: {status.state}, source {status.source}")
    if link.problem:
        echo_line(bad("problem:"), f" {link.problem}")
    if status.silent:
        silence_s = max(status.now_ms - (each.responded_ms or 0) for each in status.silent)
        echo_line(
            bad("unreachable:"),
            f" the source has not responded for {duration_text(silence_s / _MS_PER_S)}",
        )
    columns = ("topic", "partition", "state", "mirror end", "lag", "behind", "last record")
    echo_table(columns, [row for each in status.mirrors for row in _rows(each, status.now_ms)])
    for each in status.mirrors:
        style = _MIRROR_STYLES[each.mirror.state]
        if each.mirror.reason:
            echo_line(style(f"{each.mirror.topic}:"), f" {each.mirror.reason}")
        elif each.is_missing:
            echo_line(warn(f"{each.mirror.topic}:"), " the topic is not created here yet")
    if status.groups:
        echo_line("")
        echo_table(
            ("group", "state", "last copy"),
            [_group_row(each, status.now_ms) for each in status.groups],
        )
    elif link.groups is not None:
        echo_line(dim("no offsets of groups are copied yet"))


def _rows(status: MirrorStatus, now_ms: float) -> Iterator[tuple[object, ...]]:
    mirror = status.mirror
    state = _MIRROR_STYLES[mirror.state](str(mirror.state))
    if not status.partitions:
        yield mirror.topic, "", state, "", "", "", ""
    for each in status.partitions:
        behind, last = _seconds(each.lag_s(int(now_ms))), _ago(each.last_record_ms, now_ms)
        yield mirror.topic, each.partition, state, _known(each.end), _known(each.lag), behind, last


def _group_row(copy: GroupCopy, now_ms: float) -> tuple[object, ...]:
    if copy.has_members:
        return copy.group, copy.state, warn("not copied: it has members here")
    return copy.group, copy.state, _ago(copy.copied_ms, now_ms)


def _known(value: int | None) -> object:
    return _UNKNOWN if value is None else value


def _seconds(value: float | None) -> str:
    return _UNKNOWN if value is None else duration_text(value)


def _ago(time_ms: int | None, now_ms: float) -> str:
    if time_ms is None:
        return "-"
    return f"{duration_text(max(0.0, (now_ms - time_ms) / _MS_PER_S))} ago"


def _as_json(status: LinkStatus) -> dict[str, object]:
    return {
        "link": status.link.name,
        "state": status.state,
        "source": status.source,
        "problem": status.link.problem,
        "lag": status.lag,
        "behind_s": status.behind_s,
        "topics": [
            {
                "topic": each.mirror.topic,
                "state": str(each.mirror.state),
                "reason": each.mirror.reason,
                "lag": each.lag,
                "behind_s": each.behind_s(status.now_ms),
                "partitions": [_partition_json(lag) for lag in each.partitions],
            }
            for each in status.mirrors
        ],
        "groups": [each._asdict() for each in status.groups],
    }


def _partition_json(lag: PartitionLag) -> dict[str, object]:
    return {
        "partition": lag.partition,
        "mirror_end": lag.end,
        "source_end": lag.source_end,
        "lag": lag.lag,
        "responded_ms": lag.responded_ms,
        "caught_up_ms": lag.caught_up_ms,
        "last_record_ms": lag.last_record_ms,
        "error": lag.error,
    }
