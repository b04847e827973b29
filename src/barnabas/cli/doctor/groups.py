"""Consumer groups without progress: without members, or in a rebalance that does not end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.groups.group_lag import group_progress
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.facade import Client

__all__ = ["examine_groups"]

_GROUPS_MAX = 50
_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
_IDLE = ("Empty", "Dead")
_CONFIRM_DELAY_S = 1.0


def examine_groups(client: Client, diagnosis: Diagnosis) -> None:
    """Report groups without progress.

    A rebalance is only reported if a second check confirms it.
    """
    listed = client.admin.list_groups()
    # Brokers before 2.6 list no states.
    waiting = [group.group_id for group in listed if group.state in _REBALANCING]
    others = [group.group_id for group in listed if group.state in ("", *_IDLE)]
    if len(others) > _GROUPS_MAX:
        # A group without members is no problem, so the examination is complete without them.
        diagnosis.note(f"the lag of {len(others) - _GROUPS_MAX} groups was not read")
    read = others[:_GROUPS_MAX]
    for name, progress in (group_progress(client, read) if read else {}).items():
        if isinstance(progress, ClientError):
            diagnosis.unexamined(f"group {name}: {progress}")
        elif progress.description.state in _REBALANCING:
            waiting.append(name)
        elif not progress.description.members and progress.lag:
            diagnosis.note(
                f"group {name} has no members, and a lag of {progress.lag} records",
                "start its consumers; or, if it is not needed: "
                f"{Advice.DELETE_GROUP.text(group=name)}",
            )
    if waiting:
        time.sleep(_CONFIRM_DELAY_S)
        _confirm_rebalances(client, waiting, diagnosis)


def _confirm_rebalances(client: Client, names: Iterable[str], diagnosis: Diagnosis) -> None:
    for name, progress in group_progress(client, list(names)).items():
        if isinstance(progress, ClientError) or progress.description.state not in _REBALANCING:
            continue
        members = progress.description.members
        diagnosis.wrong(
            f"group {name} is stuck in a rebalance ({progress.description.state}) with "
            f"{len(members)} member{'' if len(members) == 1 else 's'}: its consumers read nothing",
            f"{Advice.WHY_GROUP.text(group=name)} shows the member for which it waits: restart "
            "that consumer",
        )
