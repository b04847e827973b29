"""Levels of a broker's loggers (KIP-412): changes, errors, and the resulting descriptions.

Kafka's loggers are named after classes, ours after modules. So a case uses the root logger and one
other logger of each broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from differential.case import case
from differential.cases.configs import (
    ALTER,
    APPEND,
    DELETE,
    DESCRIBE,
    INCREMENTAL,
    LIST,
    LOGGER,
    SET,
    SUBTRACT,
    TOPIC,
    changing,
    describing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from differential.request import Values
    from differential.response import Flat
    from differential.scene import Scene
    from differential.side import Side

    Change = tuple[str, int, str | None]

ROOT, SOME = "root", "some logger"
LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
NO_LEVELS = ("OFF", "ALL", "debug", " INFO ", "WARNING", "", "x", None)
FIELDS = ("value", "read_only", "is_default", "config_source", "is_sensitive", "synonyms")
FIELDS += ("config_type", "documentation")


def prepare_loggers(scene: Scene) -> None:
    """Choose a logger below the root on each broker, and set the level of the root loggers."""
    responses = scene.do(DESCRIBE, 4, describing(LOGGER, "1"))
    described = [{each.name for each in response.results[0].configs} for response in responses]
    scene.remember(SOME, *(min(names - {ROOT}) for names in described))
    scene.compare(levels((ROOT, SET, "INFO"), (SOME, DELETE, None)), INCREMENTAL, 1)


def logger(side: Side, name: str) -> str:
    return side.text(SOME) if name == SOME else name


def levels(*changes: Change, broker: str = "1", **more: Any) -> Callable[[Side], Values]:
    """Return a change of levels, with the names on each broker."""
    return lambda side: changing(
        LOGGER, broker, *((logger(side, name), *rest) for name, *rest in changes), **more
    )


def compare_loggers(scene: Scene, version: int = 4, **more: Any) -> None:
    """Compare the descriptions of both loggers."""
    flats: list[Flat] = []
    for side, response in zip(
        scene.pair.sides(),
        scene.do(
            DESCRIBE,
            version,
            lambda side: describing(LOGGER, "1", logger(side, SOME), ROOT, **more),
        ),
        strict=True,
    ):
        found = {each.name: each for each in response.results[0].configs}
        flats.append(
            {
                f"{name} {field}": repr(getattr(found[logger(side, name)], field))
                for name in (ROOT, SOME)
                for field in FIELDS
            }
        )
    scene.note(*flats)


def valid_and_invalid_changes() -> Iterator[tuple[Change, ...]]:
    """Yield valid and invalid changes, alone and combined."""
    for name in (SOME, ROOT, "no.such.logger", ""):
        for level in (*LEVELS, *NO_LEVELS):
            yield ((name, SET, level),)
        for operation in (DELETE, APPEND, SUBTRACT):
            yield ((name, operation, "INFO"),)
            yield ((name, operation, None),)
    yield ((SOME, SET, "DEBUG"), (SOME, SET, "WARN"))
    yield ((SOME, SET, "DEBUG"), (ROOT, SET, "x"))
    yield ((ROOT, SET, "ERROR"), ("no.such.logger", SET, "INFO"))
    yield ((SOME, SET, "DEBUG"), (ROOT, SET, "WARN"))
    yield ()


@case(INCREMENTAL)
def levels_of_loggers(scene: Scene) -> None:
    prepare_loggers(scene)
    for changes in valid_and_invalid_changes():
        for validate_only in (True, False):
            scene.compare(levels(*changes, validate_only=validate_only))
            compare_loggers(scene)
    scene.compare(levels((SOME, DELETE, None), (ROOT, SET, "INFO")))
    compare_loggers(scene)


@case(INCREMENTAL)
def loggers_of_another_broker(scene: Scene) -> None:
    prepare_loggers(scene)
    for broker in ("9", "", "x", "-1", "01", "+1", " 1"):
        for validate_only in (True, False):
            change = (SOME, SET, "DEBUG")
            scene.compare(levels(change, broker=broker, validate_only=validate_only))
            compare_loggers(scene)


@case(INCREMENTAL)
def loggers_beside_other_resources(scene: Scene) -> None:
    """Resources are independent; the controller handles those that are not loggers."""
    prepare_loggers(scene)
    topic = scene.topic()

    def several(side: Side) -> Values:
        made = [
            changing(TOPIC, topic, ("retention.ms", SET, "never")),
            levels((SOME, SET, "DEBUG"))(side),
            levels((ROOT, SET, "INFO"), broker="2")(side),
        ]
        return {"resources": [resource for each in made for resource in each["resources"]]}

    scene.compare(several)
    compare_loggers(scene)

    def twice(side: Side) -> Values:
        return {"resources": 2 * levels((SOME, SET, "WARN"))(side)["resources"]}

    scene.compare(twice)
    compare_loggers(scene)


@case(DESCRIBE)
def described_loggers(scene: Scene) -> None:
    prepare_loggers(scene)
    compare_loggers(scene, scene.version, include_synonyms=True, include_documentation=True)
    for name in ("9", "", "x", "-1", "01", "+1"):
        scene.compare(describing(LOGGER, name, "no.such.logger"))
    scene.compare(describing(LOGGER, "1", "no.such.logger"))


@case(ALTER)
def loggers_reject_alter_configs(scene: Scene) -> None:
    for name in ("1", "9", ""):
        resource = {"resource_type": LOGGER, "resource_name": name}
        configs = [{"name": ROOT, "value": "INFO"}]
        scene.compare({"resources": [{**resource, "configs": configs}]})


@case(LIST, [1])
def brokers_that_have_loggers(scene: Scene) -> None:
    for types in ([8], [8, 4], [4, 8, 8]):
        scene.compare({"resource_types": types})
