"""Cases of topics that lose their tier, and get one again (KIP-950). They add to `CASES`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey
from differential.cases.configs import DELETE, SET, TOPIC, changing
from differential.tiered_cases import CASES, case, compare_log, local_topic
from differential.tiered_pair import (
    EARLIEST,
    EARLIEST_LOCAL,
    END_OFFSET,
    LATEST_TIERED,
    LOCAL_START,
    SMALL_LOCAL,
    await_offset,
    created,
    delete_records,
    fill,
    restart,
    segments_in_metadata,
    stored_logs,
)

if TYPE_CHECKING:
    from differential.scene import Scene

__all__ = ["CASES"]

ENABLE, DELETES = "remote.storage.enable", "remote.log.delete.on.disable"
INCREMENTAL, ALTER, FETCH = (
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.FETCH,
)


def switch_off(scene: Scene, topic: str) -> None:
    """Switch the tier of a topic off, and wait until nothing is left in both stores."""
    changes = ((ENABLE, SET, "false"), (DELETES, SET, "true"))
    scene.do(INCREMENTAL, 1, changing(TOPIC, topic, *changes))
    await_offset(scene, topic, EARLIEST, LOCAL_START)
    scene.until(lambda _: not any(stored_logs(scene, topic)))


@case(INCREMENTAL)
def a_tier_that_is_switched_off_with_its_data(scene: Scene) -> None:
    topic = created(scene, {ENABLE: "true"})
    for changes in (
        [(ENABLE, SET, "false")],
        [(ENABLE, DELETE, None)],
        [(ENABLE, SET, "false"), (DELETES, SET, "false")],
        [(DELETES, SET, "true")],
        [(ENABLE, SET, "false"), (DELETES, DELETE, None)],
        [(ENABLE, DELETE, None)],
        [(DELETES, DELETE, None)],
        [(ENABLE, SET, "TRUE")],
        [(ENABLE, SET, "false"), ("cleanup.policy", SET, "compact"), (DELETES, SET, "true")],
    ):
        for validate in (True, False):
            scene.label = f"{changes} {validate}"
            scene.compare(changing(TOPIC, topic, *changes, validate_only=validate))


@case(ALTER)
def a_tier_that_the_configs_leave_out(scene: Scene) -> None:
    topic = created(scene, {ENABLE: "true", DELETES: "true"})
    # The configs after the change have to allow it.
    for given in ({}, {ENABLE: "false"}, {DELETES: "true"}, {}, {ENABLE: "true"}):
        configs = [{"name": name, "value": value} for name, value in given.items()]
        resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
        scene.label = str(given)
        scene.compare({"resources": [resource], "validate_only": False})


@case(FETCH, {17})
def log_whose_tier_is_switched_off(scene: Scene) -> None:
    topic = local_topic(scene)
    switch_off(scene, topic)
    compare_log(scene, topic)
    fill(scene, topic)
    compare_log(scene, topic)


@case(FETCH, {17}, is_nightly=True)
def log_whose_tier_is_switched_off_and_on(scene: Scene) -> None:
    topic = local_topic(scene)
    delete_records(scene, topic, 7)
    switch_off(scene, topic)
    for side in scene.pair.sides():
        scene.until(
            lambda _, side=side: all(
                line.endswith("3]") for line in segments_in_metadata(side, topic)
            )
        )
    scene.do(INCREMENTAL, 1, changing(TOPIC, topic, (ENABLE, SET, "true")))
    fill(scene, topic)
    await_offset(scene, topic, LATEST_TIERED, END_OFFSET + LOCAL_START - 1)
    await_offset(scene, topic, EARLIEST_LOCAL, END_OFFSET + LOCAL_START)
    restart(scene, topic)
    await_offset(scene, topic, EARLIEST, LOCAL_START)


@case(FETCH, {17}, is_nightly=True)
def log_without_a_tier_after_a_restart(scene: Scene) -> None:
    topic = created(scene, SMALL_LOCAL)
    fill(scene, topic)
    await_offset(scene, topic, EARLIEST_LOCAL, LOCAL_START)
    switch_off(scene, topic)
    restart(scene, topic)
    compare_log(scene, topic)
