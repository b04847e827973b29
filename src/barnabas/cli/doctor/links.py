"""Diagnosis of links to other clusters: settings, stopped mirrors, silent sources."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.printable import counted
from barnabas.cli.common.units import duration_text
from barnabas.cli.links.mirrors import find_lags, read_table
from barnabas.replication.links.link_table import MirrorState

if TYPE_CHECKING:
    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.facade import Client
    from barnabas.replication.links.link_table import LinkTable

# A source that is idle responds twice a second.
_SILENCE_S = 60.0
# Mirrors whose lag is read.
_MIRRORS_MAX = 200
_MS_PER_S = 1000.0


def examine_links(client: Client, diagnosis: Diagnosis) -> None:
    """Report links that do not work, and mirrors that are stopped or far behind."""
    table = read_table(client)
    if not table.links:
        return
    for link in table.links.values():
        if link.problem:
            diagnosis.wrong(
                f"link {link.name} does nothing: {link.problem}",
                f"correct the setting: {Advice.DESCRIBE_LINK.text(link=link.name)}",
            )
    stopped = [each for each in table.mirrors.values() if each.state is MirrorState.STOPPED]
    for mirror in stopped:
        diagnosis.wrong(
            f"mirror {mirror.topic} of link {mirror.link} has stopped: {mirror.reason}",
            f"promote it, or delete the topic and resume it to mirror it from its start: "
            f"{Advice.DESCRIBE_LINK.text(link=mirror.link)}",
        )
    _examine_silence(client, table, diagnosis)
    diagnosis.ok(
        f"{counted(len(table.links), 'link')} with {counted(len(table.mirrors), 'mirror')}"
    )


def _examine_silence(client: Client, table: LinkTable, diagnosis: Diagnosis) -> None:
    paused = {name for name, link in table.links.items() if link.is_paused}
    active = [
        each
        for each in table.mirrors.values()
        if each.state is MirrorState.ACTIVE and each.link not in paused
    ]
    if len(active) > _MIRRORS_MAX:
        diagnosis.note(f"the lag of {len(active) - _MIRRORS_MAX} mirrors was not read")
    link_of = {each.topic: each.link for each in active}
    now_ms = time.time() * _MS_PER_S
    silent: dict[str, tuple[str, float]] = {}
    for lag in find_lags(client, active[:_MIRRORS_MAX]):
        if lag.responded_ms is None:
            continue
        silence_s = (now_ms - lag.responded_ms) / _MS_PER_S
        if silence_s > _SILENCE_S:
            silent[link_of[lag.topic]] = (f"{lag.topic}-{lag.partition}", silence_s)
    for link, (where, silence_s) in silent.items():
        diagnosis.wrong(
            f"the source of link {link} does not respond: the last response for {where} was "
            f"{duration_text(silence_s)} ago",
            "check that the source runs and that its brokers are reachable from these brokers; "
            f"their logs have the errors: {Advice.DESCRIBE_LINK.text(link=link)}",
        )
