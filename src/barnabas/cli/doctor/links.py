"""Diagnosis of links to other clusters: settings, stopped mirrors, silent sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.printable import counted
from barnabas.cli.links.status import load_settled_links
from barnabas.cli.why.link_reasons import link_reasons, mirror_reasons

if TYPE_CHECKING:
    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.facade import Client


def examine_links(client: Client, diagnosis: Diagnosis) -> None:
    """Report links that do not work, and mirrors that have stopped."""
    links = load_settled_links(client)
    if not links:
        return
    for status in links:
        for reason in link_reasons(status):
            if reason.verdict == "wrong":
                diagnosis.wrong(reason.what, reason.remedy)
            elif reason.verdict == "note":
                diagnosis.note(reason.what, reason.remedy)
        for mirror in status.mirrors:
            for reason in mirror_reasons(status, mirror):
                if reason.kind == "mirror-stopped":
                    diagnosis.wrong(f"topic {mirror.mirror.topic}: {reason.what}", reason.remedy)
    mirrors = sum(len(each.fetched) for each in links)
    diagnosis.ok(f"{counted(len(links), 'link')} with {counted(mirrors, 'active mirror')}")
