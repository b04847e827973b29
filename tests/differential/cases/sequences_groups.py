"""The life of a classic group: each request in each state, and the state of the group after it.

A state is a function that brings a new group there, a request is one of `ROWS`. The two make a
case: the response, the description of the group after it, each member's heartbeat, and, when all
others have left, the responses to the requests that waited.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.api_table import ApiKey
from differential.case import CASES, Case
from differential.cases.groups import (
    assigning,
    beating,
    id_of,
    joined,
    joining,
    leaving,
    listing,
    subscribed,
    syncing,
)
from differential.cases.offsets import all_of, commit, fetched
from differential.scene import Scene, ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.request import Values
    from differential.side import Side

    Build = Values | Callable[[Side], Values]

JOIN, SYNC = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP
HEARTBEAT, LEAVE = ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP
COMMIT, FETCH, FORGET = ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE
DESCRIBE, LIST, DELETE = ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS

# In each state that has members, "member" leads, "second" follows, and "static" follows with an
# instance id. In states without members, these members have left or are unknown.
MEMBERS = ("member", "second", "static")
STATIC = {"group_instance_id": "one"}
GENERATION = 2
# Subscriptions of members: they differ, so that a mix-up of metadata is noticed.
OTHER = [{"name": "range", "metadata": b"other topics"}]


class Group(NamedTuple):
    """The group of a case, and the topic that its members read."""

    id: str
    topic: str

    def joins(self, member: str = "", **more: Any) -> Callable[[Side], Values]:
        """A JoinGroup that says what the members say."""
        protocols = [{"name": "range", "metadata": subscribed(self.topic)}]
        return joining(self.id, member, **{"protocols": protocols, **more})


# States.


def absent(scene: Scene, group: Group) -> None:
    """The group does not exist."""


def given_an_id(scene: Scene, group: Group) -> None:
    """Its first member was told its id, and has not joined yet."""
    answers = scene.do(JOIN, 9, group.joins())
    scene.remember("member", *(answer.member_id for answer in answers))
    scene.await_agreement(lambda side: described(side, group).group_state)


def only_offsets(scene: Scene, group: Group) -> None:
    """It has no members, as they assign themselves; only what they committed."""
    scene.do(COMMIT, 8, commit(group.id, group.topic))


def awaiting_the_leader(scene: Scene, group: Group) -> None:
    """CompletingRebalance: all three joined."""
    protocols = group.joins()(scene.pair.kafka)["protocols"]
    joined(scene, group.id, protocols=protocols)
    scene.do(SYNC, 5, assigning(group.id, "member"))
    answers = scene.do(JOIN, 9, group.joins())
    scene.remember("second", *(answer.member_id for answer in answers))
    scene.send(group.joins("second"), JOIN, 9, on="second")
    scene.send(group.joins(**STATIC), JOIN, 9, on="static")
    scene.until(lambda side: len(described(side, group).members) == len(MEMBERS))
    scene.do(JOIN, 9, group.joins("member"))
    for name in ("second", "static"):
        answers = scene.answer(JOIN, 9, on=name)
        scene.remember(name, *(answer.member_id for answer in answers))


def a_follower_asks(scene: Scene, group: Group) -> None:
    """CompletingRebalance, and one member waits for its assignment."""
    awaiting_the_leader(scene, group)
    scene.send(syncing(group.id, "second", GENERATION), SYNC, 5, on="second")
    scene.await_arrival()


def stable(scene: Scene, group: Group) -> None:
    """All have their partitions."""
    awaiting_the_leader(scene, group)
    scene.do(SYNC, 5, assigning(group.id, "member", GENERATION))
    for name in ("second", "static"):
        scene.do(SYNC, 5, syncing(group.id, name, GENERATION))


def the_leader_joins_again(scene: Scene, group: Group) -> None:
    """PreparingRebalance: the others have not joined again yet."""
    stable(scene, group)
    scene.send(group.joins("member"), JOIN, 9, on="member")
    scene.until(lambda side: described(side, group).group_state == "PreparingRebalance")


def empty(scene: Scene, group: Group) -> None:
    """All have left; their committed offsets are there."""
    stable(scene, group)
    scene.do(COMMIT, 8, committing(group, "second", GENERATION))
    leave(scene, group)


def deleted(scene: Scene, group: Group) -> None:
    """It is gone."""
    empty(scene, group)
    scene.do(DELETE, 2, {"groups_names": [group.id]})


STATES = (
    absent,
    given_an_id,
    only_offsets,
    awaiting_the_leader,
    a_follower_asks,
    stable,
    the_leader_joins_again,
    empty,
    deleted,
)


# Requests.


class Row(NamedTuple):
    """A request, as it is made for a group."""

    api: ApiKey
    name: str
    build: Callable[[Group], Build]
    versions: tuple[int, ...]
    # The member that speaks: the last one to leave, so that it is seen what it gets.
    speaker: str = ""


def committing(group: Group, member: str, generation: int, **more: Any) -> Callable[[Side], Values]:
    def values(side: Side) -> Values:
        fields = {"member_id": id_of(side, member), "generation_id_or_member_epoch": generation}
        return commit(group.id, group.topic, **fields, **more)(side)

    return values


def several(group: Group, *members: tuple[str, str | None]) -> Callable[[Side], Values]:
    """A LeaveGroup of members by id and instance."""
    return lambda side: {
        "group_id": group.id,
        "members": [
            {"member_id": id_of(side, member), "group_instance_id": instance}
            for member, instance in members
        ],
    }


def joins() -> list[Row]:
    plain, newest = (3, 9), (9,)
    rows = [
        Row(JOIN, "somebody-new", lambda group: group.joins(), plain),
        Row(JOIN, "an-unknown-id", lambda group: group.joins("somebody"), plain),
        Row(
            JOIN,
            "somebody-new-of-another-kind",
            lambda group: group.joins(protocol_type="connect"),
            plain,
        ),
        Row(
            JOIN,
            "somebody-new-with-other-protocols",
            lambda group: group.joins(protocols=[{"name": "sticky", "metadata": b""}]),
            plain,
        ),
        Row(JOIN, "a-new-instance", lambda group: group.joins(group_instance_id="two"), newest),
        Row(JOIN, "the-instance", lambda group: group.joins(**STATIC), newest),
        Row(
            JOIN,
            "the-instance-with-other-metadata",
            lambda group: group.joins(**STATIC, protocols=OTHER),
            newest,
        ),
        Row(JOIN, "the-instance-of-another-id", lambda g: g.joins("second", **STATIC), newest),
        Row(JOIN, "an-instance-of-no-id", lambda g: g.joins("somebody", **STATIC), newest),
    ]
    for who, more in (("member", {}), ("second", {}), ("static", STATIC)):
        versions = newest if more else plain
        rows += [
            Row(JOIN, f"{who}", lambda g, m=more, w=who: g.joins(w, **m), versions, who),
            Row(
                JOIN,
                f"{who}-with-other-metadata",
                lambda g, m=more, w=who: g.joins(w, **m, protocols=OTHER),
                versions,
                who,
            ),
            Row(
                JOIN,
                f"{who}-with-more-protocols",
                lambda g, m=more, w=who: g.joins(
                    w, **m, protocols=[{"name": "sticky", "metadata": b""}, *OTHER]
                ),
                versions,
                who,
            ),
            Row(
                JOIN,
                f"{who}-with-other-protocols",
                lambda g, m=more, w=who: g.joins(
                    w, **m, protocols=[{"name": "sticky", "metadata": b""}]
                ),
                versions,
                who,
            ),
        ]
    return rows


def syncs() -> list[Row]:
    both, newest = (0, 5), (5,)
    rows = [
        Row(SYNC, "leader", lambda g: assigning(g.id, "member", GENERATION), both, "member"),
        Row(SYNC, "nobody", lambda g: syncing(g.id, "somebody", GENERATION), both),
        Row(SYNC, "follower", lambda g: syncing(g.id, "second", GENERATION), both, "second"),
        Row(
            SYNC,
            "follower-that-assigns",
            lambda g: assigning(g.id, "second", GENERATION),
            both,
            "second",
        ),
        Row(
            SYNC,
            "instance",
            lambda g: syncing(g.id, "static", GENERATION, **STATIC),
            newest,
            "static",
        ),
        Row(
            SYNC,
            "instance-of-another-id",
            lambda g: syncing(g.id, "second", GENERATION, **STATIC),
            newest,
        ),
    ]
    rows += [
        Row(
            SYNC,
            f"leader-of-generation-{generation}",
            lambda g, n=generation: assigning(g.id, "member", n),
            both,
        )
        for generation in (-1, GENERATION - 1, GENERATION + 1)
    ]
    for key, value in (("protocol_type", "connect"), ("protocol_name", "sticky")):
        rows.append(
            Row(
                SYNC,
                f"leader-with-another-{key.replace('_', '-')}",
                lambda g, k=key, v=value: (
                    lambda side: {
                        **assigning(g.id, "member", GENERATION)(side),
                        k: v,
                    }
                ),
                newest,
            )
        )
    return rows


def beats() -> list[Row]:
    both, newest = (0, 4), (4,)
    rows = [
        Row(HEARTBEAT, f"of-{who}", lambda g, w=who: beating(g.id, w, GENERATION), both)
        for who in (*MEMBERS, "somebody", "")
    ]
    rows += [
        Row(
            HEARTBEAT,
            f"of-generation-{number}",
            lambda g, n=number: beating(g.id, "second", n),
            both,
        )
        for number in (-1, GENERATION - 1, GENERATION + 1)
    ]
    rows += [
        Row(
            HEARTBEAT,
            f"of-the-instance-as-{who}",
            lambda g, w=who: beating(g.id, w, GENERATION, **STATIC),
            newest,
        )
        for who in ("static", "second", "somebody", "")
    ]
    return rows


def leaves() -> list[Row]:
    both, newest = (2, 5), (5,)
    rows = [
        Row(LEAVE, f"of-{who}", lambda g, w=who: leaving(g.id, w), both)
        for who in (*MEMBERS, "somebody", "")
    ]
    for name, members in (
        ("of-the-instance", [("", "one")]),
        ("of-the-instance-by-its-id", [("static", "one")]),
        ("of-the-instance-by-another-id", [("second", "one")]),
        ("of-an-unknown-instance", [("", "two")]),
        ("of-all", [(who, None) for who in MEMBERS]),
        ("of-the-leader-and-others", [("somebody", None), ("member", None), ("", "one")]),
        ("of-one-twice", [("second", None), ("second", None)]),
        ("of-nobody", []),
    ):
        rows.append(Row(LEAVE, name, lambda g, m=members: several(g, *m), newest))
    return rows


def offsets() -> list[Row]:
    rows = [
        Row(
            COMMIT,
            f"of-{who or 'nobody'}-in-generation-{number}",
            lambda g, w=who, n=number: committing(g, w, n),
            (2, 10),
        )
        for who, number in (
            *((who, GENERATION) for who in MEMBERS),
            ("somebody", GENERATION),
            ("", GENERATION),
            ("", -1),
            ("second", -1),
            ("second", GENERATION - 1),
            ("second", GENERATION + 1),
            ("somebody", -1),
        )
    ]
    rows += [
        Row(
            COMMIT,
            f"of-the-instance-as-{who}",
            lambda g, w=who: committing(g, w, GENERATION, **STATIC),
            (10,),
        )
        for who in ("static", "second", "")
    ]
    rows += [
        Row(FETCH, "of-the-topic", lambda g: fetched(g.id, g.topic, 0), (1, 7, 10)),
        Row(FETCH, "of-all", lambda g: all_of(g.id), (7, 10)),
        Row(
            FORGET,
            "of-the-topic",
            lambda g: {
                "group_id": g.id,
                "topics": [{"name": g.topic, "partitions": [{"partition_index": 0}]}],
            },
            (0,),
        ),
    ]
    rows += [
        Row(
            FETCH,
            f"by-{who}-in-epoch-{number}",
            lambda g, w=who, n=number: (
                lambda side: {
                    "groups": [
                        {
                            "group_id": g.id,
                            "topics": None,
                            "member_id": id_of(side, w),
                            "member_epoch": n,
                        }
                    ]
                }
            ),
            (9,),
        )
        for who, number in (("second", GENERATION), ("second", 0), ("somebody", GENERATION))
    ]
    return rows


def administration() -> list[Row]:
    return [
        Row(DESCRIBE, "of-it", lambda g: {"groups": [g.id]}, (0, 3, 5, 6)),
        Row(DELETE, "of-it", lambda g: {"groups_names": [g.id]}, (0, 2)),
        Row(DELETE, "of-it-twice", lambda g: {"groups_names": [g.id, g.id]}, (2,)),
    ]


ROWS = [*joins(), *syncs(), *beats(), *leaves(), *offsets(), *administration()]


# Playing.

# Whose answer is still to come when a state is reached.
WAITING = {the_leader_joins_again: ("member", JOIN, 9), a_follower_asks: ("second", SYNC, 5)}


def described(side: Side, group: Group) -> Any:
    return ask(side, DESCRIBE, 5, {"groups": [group.id]}).groups[0]


def is_about_to_be_empty(found: Any) -> bool:
    return found.group_state == "PreparingRebalance" and not found.members


def leave(scene: Scene, group: Group, *staying: str) -> None:
    """All members leave but some."""
    gone = [(who, None) for who in MEMBERS if who not in staying]
    scene.do(LEAVE, 5, several(group, *gone))


def play(scene: Scene, state: Callable[[Scene, Group], None], row: Row) -> None:
    """One request in one state."""
    group = Group(scene.name("group"), scene.shared_topic())
    state(scene, group)
    waiting = WAITING.get(state)

    def ping() -> None:
        scene.do(DESCRIBE, 5, {"groups": [group.id]})

    scene.send(row.build(group), on="asked")
    is_answered = scene.answer_if_any(ping, on="asked")
    scene.await_agreement(lambda side: described(side, group).group_state)
    scene.compare({"groups": [group.id]}, DESCRIBE, 6)
    for who in MEMBERS:
        scene.compare(beating(group.id, who, GENERATION), HEARTBEAT, 4)
    leave(scene, group, row.speaker, *((waiting[0],) if waiting else ()))
    if not is_answered:
        scene.answer_if_any(ping, on="asked")
    if waiting:
        name, api, version = waiting
        scene.answer_if_any(ping, api, version, on=name)
    # Without members a rebalance ends at once, but not before the next request.
    scene.until(lambda side: not is_about_to_be_empty(described(side, group)))
    scene.compare({"groups": [group.id]}, DESCRIBE, 6)


def listed(scene: Scene, state: Callable[[Scene, Group], None]) -> None:
    """How the group is listed in one state, by each filter."""
    group = Group(scene.name("group"), scene.shared_topic())
    state(scene, group)
    for states in (
        [],
        ["Empty"],
        ["Stable", "Dead"],
        ["preparingrebalance", "CompletingRebalance"],
    ):
        for types in ([], ["classic"], ["Consumer"]):
            asked = {"states_filter": states, "types_filter": types}
            answers = scene.do(LIST, scene.version, asked)
            scene.note(*(listing(answer, group.id) for answer in answers))


# Older versions differ in their fields, not in the meaning of states: two states show that.
IN_ALL_VERSIONS = (absent, stable)

for _state in STATES:
    for _row in ROWS:
        CASES.append(
            Case(
                _row.api,
                f"{_row.name}-when-{_state.__name__.replace('_', '-')}",
                partial(play, state=_state, row=_row),
                frozenset(_row.versions if _state in IN_ALL_VERSIONS else _row.versions[-1:]),
            )
        )

    CASES.append(
        Case(
            LIST,
            f"filters-when-{_state.__name__.replace('_', '-')}",
            partial(listed, state=_state),
            frozenset({3, 5}),
        )
    )
