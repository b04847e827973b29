"""Promotes mirrors: waits for records and group offsets, or shows which are missing."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.common.printable import counted, echo
from barnabas.cli.links.mirrors import change, find_lags, read_table, set_states
from barnabas.cli.links.status import OFFSETS_TOPIC
from barnabas.client.errors import ClientError, UnknownTopicError
from barnabas.replication.links.link_table import (
    PROMOTION,
    GroupReport,
    MirrorState,
    PromotionRequest,
    promotion_value,
    setting_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.cli.links.mirrors import PartitionLag
    from barnabas.client.facade import Client
    from barnabas.replication.links.link_table import LinkDefinition, MirrorTopic

_POLL_S = 0.2
# A source without a response for this time is not reachable.
_SILENCE_S = 30.0
# A broker reports the group offsets that it knows to be missing within this time.
_FIRST_REPORT_S = 10.0
# Group offsets are missing for longer than this only if something is wrong.
_GROUPS_S = 60.0
# Brokers abort transactions within this time, if all partitions have leaders.
_END_S = 120.0


class PromotionError(ClientError):
    """Mirrors cannot be promoted now. The message says why, and what to do."""


class PromotionOptions(NamedTuple):
    """The choices of the operator, and the limits of a page or of a command."""

    # The topics that the operator has named; empty for all mirrors of the link.
    names: Sequence[str] = ()
    # Whether to promote what is here, and to report only what is missing.
    force: bool = False
    # Receives what the promotion waits for, and what is missing.
    report: Callable[[str], object] = partial(echo, err=True)
    # Limit of each wait in seconds; None for the limits of commands.
    limit_s: float | None = None
    # How the operator sets `force`, for messages.
    forcing: str = "promote with --force"


def await_no_lag(
    client: Client,
    link: LinkDefinition,
    mirrors: Sequence[MirrorTopic],
    options: PromotionOptions,
) -> None:
    """Wait until each partition has all records, by a response of the source from now on.

    Raises:
        PromotionError: the source does not respond, or the limit has passed.
    """
    began = time.monotonic()
    first: dict[tuple[str, int], int] = {}
    heard: dict[tuple[str, int], float] = {}
    reported = ""
    while True:
        lags = find_lags(client, mirrors, with_times=False)
        now = time.monotonic()
        open_ones = [each for each in lags if not _is_done(each, first, heard, now)]
        known = {each.topic for each in lags}
        missing = [each.topic for each in mirrors if each.topic not in known]
        if not open_ones and not missing:
            return
        silent = [
            each for each in open_ones if now - heard[each.topic, each.partition] > _SILENCE_S
        ]
        if silent or (missing and not lags):
            where = missing[0] if not silent else f"{silent[0].topic}-{silent[0].partition}"
            raise PromotionError(
                f"the source does not respond for {where}: find the reason by "
                f"`barnabas links describe {link.name}`, or {options.forcing} what is here"
            )
        text = f"waiting for {counted(len(open_ones) or len(missing), 'partition')}"
        if options.limit_s is not None and now - began > options.limit_s:
            raise PromotionError(
                f"{text}: the mirrors do not have all records yet, or the source does not respond. "
                f"Repeat it in some seconds, or {options.forcing} what is here"
            )
        if text != reported:
            reported = text
            options.report(text)
        time.sleep(_POLL_S)


def _is_done(
    lag: PartitionLag,
    first: dict[tuple[str, int], int],
    heard: dict[tuple[str, int], float],
    now: float,
) -> bool:
    """Whether a response after the first look shows that no record is missing."""
    key = lag.topic, lag.partition
    responded_ms = -1 if lag.responded_ms is None else lag.responded_ms
    if key not in first:
        first[key] = responded_ms
        heard[key] = now
        return False
    if responded_ms <= first[key]:
        return False
    if lag.lag == 0:
        return True
    heard[key] = now
    return False


def _report_missing(
    client: Client, mirrors: Sequence[MirrorTopic], report: Callable[[str], object]
) -> None:
    """Report how many records of each partition are known to be missing."""
    for each in find_lags(client, mirrors, with_times=False):
        where = f"{each.topic}-{each.partition}"
        if each.lag is None:
            report(f"{where}: the source's end is not known")
        elif each.lag:
            report(f"{where}: {each.lag} records are missing")


class GroupOffsetsCheck:
    """Asks all brokers for reports about the group offsets of a link, and reads them."""

    def __init__(self, client: Client, link: LinkDefinition, topics: Iterable[str]) -> None:
        self._client = client
        self._link = link
        # The clock makes the token: two promotions of one link do not begin in one nanosecond.
        self._request = PromotionRequest(f"{time.time_ns():x}", frozenset(topics))

    def await_copied(self, options: PromotionOptions) -> None:
        """Wait until all brokers show that no offset is missing.

        Raises:
            PromotionError: offsets stay missing.
        """
        self._ask()
        deadline = time.monotonic() + (_GROUPS_S if options.limit_s is None else options.limit_s)
        while not self._is_complete():
            if time.monotonic() > deadline:
                self._withdraw()
                raise PromotionError(
                    f"group offsets are not copied: {self._summary()}. A group with members in "
                    "this cluster gets no offsets: stop its consumers here. Otherwise see the logs "
                    f"of the brokers, or {options.forcing} what is here"
                )
            time.sleep(_POLL_S)
        self._withdraw()

    def report_missing(self, options: PromotionOptions) -> None:
        """Report which offsets are missing as of the last copies."""
        self._ask()
        limit_s = _FIRST_REPORT_S if options.limit_s is None else options.limit_s
        deadline = time.monotonic() + limit_s
        brokers = len(self._client.describe_cluster().brokers)
        while len(self._reports()) < brokers and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if not self._is_complete():
            options.report(f"group offsets: {self._summary()}")
        self._withdraw()

    def _ask(self) -> None:
        name = setting_name(self._link.name, PROMOTION)
        change(self._client, {name: promotion_value(self._request)})

    def _withdraw(self) -> None:
        change(self._client, {setting_name(self._link.name, PROMOTION): None})

    def _reports(self) -> list[GroupReport]:
        link = read_table(self._client).links.get(self._link.name)
        reports = [] if link is None else link.reports.values()
        return [each for each in reports if each.token == self._request.token]

    def _is_complete(self) -> bool:
        """Whether the reports together cover all groups."""
        covered: set[int] = set()
        for report in self._reports():
            if report.is_complete:
                covered.update(report.partitions)
            elif report.missing > 0:
                return False
        try:
            topic = self._client.admin.describe_topic_partitions([OFFSETS_TOPIC])[OFFSETS_TOPIC]
        except UnknownTopicError:
            # The brokers create it for the first copy.
            return False
        return not isinstance(topic, Exception) and covered >= set(topic.partitions)

    def _summary(self) -> str:
        reports = self._reports()
        names = [name for each in reports for name in each.groups]
        count = sum(max(0, each.missing) for each in reports)
        parts: list[str] = []
        if count:
            shown = ", ".join(names) + (" and others" if count > len(names) else "")
            parts.append(f"those of {counted(count, 'group')} are missing: {shown}")
        if not reports or any(each.missing < 0 for each in reports):
            parts.append("not all brokers have read the groups of the source")
        return "; ".join(parts) or "the source did not confirm that the last copies are current"


def prepare_promotion(
    client: Client,
    link: LinkDefinition,
    mirrors: Sequence[MirrorTopic],
    options: PromotionOptions,
) -> None:
    """Wait until mirrors have all records and group offsets; with `force`, report what is missing.

    Those whose promotion has begun are left out: nothing is fetched any more.

    Raises:
        PromotionError: records or offsets are missing.
    """
    mirrored = [each for each in mirrors if each.state is not MirrorState.PROMOTING]
    if not mirrored:
        return
    groups = None
    if link.groups is not None and not link.is_paused:
        groups = GroupOffsetsCheck(client, link, options.names)
    if options.force:
        _report_missing(client, mirrored, options.report)
        if groups is not None:
            groups.report_missing(options)
    else:
        await_no_lag(client, link, mirrored, options)
        if groups is not None:
            groups.await_copied(options)


def begin_promotion(client: Client, mirrors: Sequence[MirrorTopic]) -> None:
    """Make mirrors ordinary topics, as soon as the brokers have aborted open transactions.

    Those whose promotion has begun may be ordinary topics by now, to which clients write.
    """
    begun = MirrorState.PROMOTING
    set_states(client, [each for each in mirrors if each.state is not begun], begun)


def promote_mirrors(client: Client, link: LinkDefinition, mirrors: Sequence[MirrorTopic]) -> None:
    """Make mirrors ordinary topics. Wait until the brokers have aborted open transactions.

    Raises:
        PromotionError: that takes too long.
    """
    begin_promotion(client, mirrors)
    deadline = time.monotonic() + _END_S
    names = {each.topic for each in mirrors}
    while True:
        table = read_table(client)
        left = [each for each in table.mirrors_of(link.name) if each.is_read_only]
        open_ones = [each.topic for each in left if each.topic in names]
        if not open_ones:
            return
        if time.monotonic() > deadline:
            raise PromotionError(
                f"{counted(len(open_ones), 'topic')} cannot be written to yet, for example "
                f"{open_ones[0]}. The brokers go on aborting transactions of the source: check by "
                f"`barnabas partitions --unwell` whether all partitions have leaders, and by "
                f"`barnabas links describe {link.name}` when the topics are promoted"
            )
        time.sleep(_POLL_S)
