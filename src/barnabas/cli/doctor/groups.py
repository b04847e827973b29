"""Diagnosis of groups: members without progress, stuck rebalances, and groups without members."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from barnabas.cli.admin.group_lag import group_progress
from barnabas.cli.common.advice import Advice
from barnabas.cli.common.printable import counted
from barnabas.cli.why.gather_group import gather_groups
from barnabas.cli.why.group_reasons import group_reasons
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.cli.admin.group_lag import GroupProgress
    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.facade import Client

# Groups whose lag is read, and lagging groups that are observed.
_GROUPS_MAX = 50
_OBSERVED_MAX = 10
# Time between two looks at a group whose members commit (s).
_PAUSE_S = 0.5
_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
_CONFIRM_DELAY_S = 1.0


def examine_groups(client: Client, diagnosis: Diagnosis) -> None:
    """Report groups without progress.

    A rebalance is only reported if a second check confirms it. Members that commit nothing are
    observed for longer than the default commit interval.
    """
    listed = client.admin.list_groups()
    # Brokers before 2.6 list no states.
    waiting = [group.group_id for group in listed if group.state in _REBALANCING]
    others = [group.group_id for group in listed if group.state not in _REBALANCING]
    if len(others) > _GROUPS_MAX:
        # Most groups have no problem, so the examination is complete without them.
        diagnosis.note(f"the lag of {len(others) - _GROUPS_MAX} groups was not read")
    read = others[:_GROUPS_MAX]
    lagging = []
    for name, progress in (group_progress(client, read) if read else {}).items():
        if isinstance(progress, ClientError):
            diagnosis.unexamined(f"group {name}: {progress}")
        elif progress.description.state in _REBALANCING:
            waiting.append(name)
        elif progress.lag:
            lagging.append(name)
            _report_without_members(progress, diagnosis)
    if waiting:
        time.sleep(_CONFIRM_DELAY_S)
        _confirm_rebalances(client, waiting, diagnosis)
    if lagging:
        _observe(client, lagging, diagnosis)


def _report_without_members(progress: GroupProgress, diagnosis: Diagnosis) -> None:
    group = progress.description
    if not group.members:
        diagnosis.note(
            f"group {group.group_id} has no members, and a lag of "
            f"{counted(progress.lag, 'record')}",
            "start its consumers; or, if it is not needed: "
            f"{Advice.DELETE_GROUP.text(group=group.group_id)}",
        )


def _observe(client: Client, names: Sequence[str], diagnosis: Diagnosis) -> None:
    """Report the reasons for which groups with a lag do not advance."""
    for facts in gather_groups(client, names[:_OBSERVED_MAX], _PAUSE_S):
        for reason in group_reasons(facts):
            # A group without members has a note already.
            if reason.verdict == "wrong" and reason.kind != "no-members":
                diagnosis.wrong(f"group {facts.name}: {reason.what}", reason.remedy)
    if len(names) > _OBSERVED_MAX:
        diagnosis.note(
            f"{len(names) - _OBSERVED_MAX} more groups have a lag, and were not observed",
            f"to observe them: {Advice.WHY.text()}",
        )


def _confirm_rebalances(client: Client, names: Iterable[str], diagnosis: Diagnosis) -> None:
    for name, progress in group_progress(client, list(names)).items():
        if isinstance(progress, ClientError) or progress.description.state not in _REBALANCING:
            continue
        diagnosis.wrong(
            f"group {name} is stuck in a rebalance ({progress.description.state}) with "
            f"{counted(len(progress.description.members), 'member')}: its consumers read nothing",
            f"{Advice.WHY_GROUP.text(group=name)} shows the member for which it waits: restart "
            "that consumer",
        )
