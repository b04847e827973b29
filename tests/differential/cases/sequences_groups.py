"""The lifecycle of a classic group: each request in each state, and the resulting state.

A state is a function that brings a new group into this state; a request is one of `ROWS`. Each
combination is a case. It compares the response, the description of the group, and each member's
heartbeat. Then the other members leave, and it compares the responses to pending requests.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.api_table import ApiKey
from differential.case import CASES, Case, is_left_out
from differential.cases.groups import (
    assigning,
    heartbeat_of,
    id_of,
    join_first_member,
    joining,
    leaving,
    listing,
    subscribed,
    syncing,
)
from differential.cases.offsets import all_of, commit, fetched
from differential.scene import Scene, exchange

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.request import Values
    from differential.side import Side

    Build = Values | Callable[[Side], Values]

JOIN, SYNC = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP
HEARTBEAT, LEAVE = ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP
COMMIT, FETCH, FORGET = ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE
DESCRIBE, LIST, DELETE = ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS

# In states with members, "member" is the leader, "second" a follower, and "static" a follower with
# an instance id. In states without members, these members have left or are unknown.
MEMBERS = ("member", "second", "static")
STATIC = {"group_instance_id": "one"}
GENERATION = 2
# Metadata that differs from that of other members, so that confused metadata is detected.
OTHER = [{"name": "range", "metadata": b"other topics"}]


class Group(NamedTuple):
    """The group of a case, and the topic that its members read."""

    id: str
    topic: str

    def joins(self, member: str = "", **more: Any) -> Callable[[Side], Values]:
        """Return a JoinGroup with the usual metadata."""
        protocols = [{"name": "range", "metadata": subscribed(self.topic)}]
        return joining(self.id, member, **{"protocols": protocols, **more})


# States.


def absent(scene: Scene, group: Group) -> None:
    """The group does not exist."""


def given_an_id(scene: Scene, group: Group) -> None:
    """The first member has received its id, and has not joined yet."""
    responses = scene.do(JOIN, 9, group.joins())
    scene.remember("member", *(response.member_id for response in responses))
    scene.await_agreement(lambda side: described(side, group).group_state)


def only_offsets(scene: Scene, group: Group) -> None:
    """The group has committed offsets and no members."""
    scene.do(COMMIT, 8, commit(group.id, group.topic))


def awaiting_the_leader(scene: Scene, group: Group) -> None:
    """CompletingRebalance: all three members have joined."""
    protocols = group.joins()(scene.pair.kafka)["protocols"]
    join_first_member(scene, group.id, protocols=protocols)
    scene.do(SYNC, 5, assigning(group.id, "member"))
    responses = scene.do(JOIN, 9, group.joins())
    scene.remember("second", *(response.member_id for response in responses))
    scene.send(group.joins("second"), JOIN, 9, on="second")
    scene.send(group.joins(**STATIC), JOIN, 9, on="static")
    scene.until(lambda side: len(described(side, group).members) == len(MEMBERS))
    scene.do(JOIN, 9, group.joins("member"))
    for name in ("second", "static"):
        responses = scene.compare_response(JOIN, 9, on=name)
        scene.remember(name, *(response.member_id for response in responses))


def a_follower_syncs(scene: Scene, group: Group) -> None:
    """CompletingRebalance, with a pending SyncGroup of a follower."""
    awaiting_the_leader(scene, group)
    scene.send(syncing(group.id, "second", GENERATION), SYNC, 5, on="second")
    scene.await_arrival()


def stable(scene: Scene, group: Group) -> None:
    """All members have their assignments."""
    awaiting_the_leader(scene, group)
    scene.do(SYNC, 5, assigning(group.id, "member", GENERATION))
    for name in ("second", "static"):
        scene.do(SYNC, 5, syncing(group.id, name, GENERATION))


def the_leader_joins_again(scene: Scene, group: Group) -> None:
    """PreparingRebalance: the followers have not joined again yet."""
    stable(scene, group)
    scene.send(group.joins("member"), JOIN, 9, on="member")
    scene.until(lambda side: described(side, group).group_state == "PreparingRebalance")


def empty(scene: Scene, group: Group) -> None:
    """All members have left; their committed offsets exist."""
    stable(scene, group)
    scene.do(COMMIT, 8, committing(group, "second", GENERATION))
    leave(scene, group)


def deleted(scene: Scene, group: Group) -> None:
    """The group was deleted."""
    empty(scene, group)
    scene.do(DELETE, 2, {"groups_names": [group.id]})


STATES = (
    absent,
    given_an_id,
    only_offsets,
    awaiting_the_leader,
    a_follower_syncs,
    stable,
    the_leader_joins_again,
    empty,
    deleted,
)


# Requests.


class Row(NamedTuple):
    """A request to a group."""

    api: ApiKey
    name: str
    build: Callable[[Group], Build]
    versions: tuple[int, ...]
    # The member that sends the request. It leaves last, so that its response is compared.
    sender: str = ""


def committing(group: Group, member: str, generation: int, **more: Any) -> Callable[[Side], Values]:
    def values(side: Side) -> Values:
        fields = {"member_id": id_of(side, member), "generation_id_or_member_epoch": generation}
        return commit(group.id, group.topic, **fields, **more)(side)

    return values


def several(group: Group, *members: tuple[str, str | None]) -> Callable[[Side], Values]:
    """Return a LeaveGroup of members by id and instance."""
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
        Row(JOIN, "a-new-member", lambda group: group.joins(), plain),
        Row(JOIN, "an-unknown-id", lambda group: group.joins("somebody"), plain),
        Row(
            JOIN,
            "a-new-member-of-another-protocol-type",
            lambda group: group.joins(protocol_type="connect"),
            plain,
        ),
        Row(
            JOIN,
            "a-new-member-with-other-protocols",
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
    for member, more in (("member", {}), ("second", {}), ("static", STATIC)):
        versions = newest if more else plain
        rows += [
            Row(JOIN, f"{member}", lambda g, m=more, w=member: g.joins(w, **m), versions, member),
            Row(
                JOIN,
                f"{member}-with-other-metadata",
                lambda g, m=more, w=member: g.joins(w, **m, protocols=OTHER),
                versions,
                member,
            ),
            Row(
                JOIN,
                f"{member}-with-more-protocols",
                lambda g, m=more, w=member: g.joins(
                    w, **m, protocols=[{"name": "sticky", "metadata": b""}, *OTHER]
                ),
                versions,
                member,
            ),
            Row(
                JOIN,
                f"{member}-with-other-protocols",
                lambda g, m=more, w=member: g.joins(
                    w, **m, protocols=[{"name": "sticky", "metadata": b""}]
                ),
                versions,
                member,
            ),
        ]
    return rows


def syncs() -> list[Row]:
    both, newest = (0, 5), (5,)
    rows = [
        Row(SYNC, "leader", lambda g: assigning(g.id, "member", GENERATION), both, "member"),
        Row(SYNC, "an-unknown-member", lambda g: syncing(g.id, "somebody", GENERATION), both),
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


def heartbeats() -> list[Row]:
    both, newest = (0, 4), (4,)
    rows = [
        Row(HEARTBEAT, f"of-{member}", lambda g, w=member: heartbeat_of(g.id, w, GENERATION), both)
        for member in (*MEMBERS, "somebody", "")
    ]
    rows += [
        Row(
            HEARTBEAT,
            f"of-generation-{number}",
            lambda g, n=number: heartbeat_of(g.id, "second", n),
            both,
        )
        for number in (-1, GENERATION - 1, GENERATION + 1)
    ]
    rows += [
        Row(
            HEARTBEAT,
            f"of-the-instance-as-{member}",
            lambda g, w=member: heartbeat_of(g.id, w, GENERATION, **STATIC),
            newest,
        )
        for member in ("static", "second", "somebody", "")
    ]
    return rows


def leaves() -> list[Row]:
    both, newest = (2, 5), (5,)
    rows = [
        Row(LEAVE, f"of-{member}", lambda g, w=member: leaving(g.id, w), both)
        for member in (*MEMBERS, "somebody", "")
    ]
    for name, members in (
        ("of-the-instance", [("", "one")]),
        ("of-the-instance-by-its-id", [("static", "one")]),
        ("of-the-instance-by-another-id", [("second", "one")]),
        ("of-an-unknown-instance", [("", "two")]),
        ("of-all", [(member, None) for member in MEMBERS]),
        ("of-the-leader-and-others", [("somebody", None), ("member", None), ("", "one")]),
        ("of-one-twice", [("second", None), ("second", None)]),
        ("of-no-members", []),
    ):
        rows.append(Row(LEAVE, name, lambda g, m=members: several(g, *m), newest))
    return rows


def offsets() -> list[Row]:
    rows = [
        Row(
            COMMIT,
            f"of-{member or 'no-member'}-in-generation-{number}",
            lambda g, w=member, n=number: committing(g, w, n),
            (2, 10),
        )
        for member, number in (
            *((member, GENERATION) for member in MEMBERS),
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
            f"of-the-instance-as-{member}",
            lambda g, w=member: committing(g, w, GENERATION, **STATIC),
            (10,),
        )
        for member in ("static", "second", "")
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
            f"by-{member}-in-epoch-{number}",
            lambda g, w=member, n=number: (
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
        for member, number in (("second", GENERATION), ("second", 0), ("somebody", GENERATION))
    ]
    return rows


def administration() -> list[Row]:
    return [
        Row(DESCRIBE, "of-the-group", lambda g: {"groups": [g.id]}, (0, 3, 5, 6)),
        Row(DELETE, "of-the-group", lambda g: {"groups_names": [g.id]}, (0, 2)),
        Row(DELETE, "of-the-group-twice", lambda g: {"groups_names": [g.id, g.id]}, (2,)),
    ]


ROWS = [*joins(), *syncs(), *heartbeats(), *leaves(), *offsets(), *administration()]


# Cases.

# States with a pending request: its member, API and version.
PENDING = {the_leader_joins_again: ("member", JOIN, 9), a_follower_syncs: ("second", SYNC, 5)}


def described(side: Side, group: Group) -> Any:
    return exchange(side, DESCRIBE, 5, {"groups": [group.id]}).groups[0]


def is_about_to_be_empty(found: Any) -> bool:
    return found.group_state == "PreparingRebalance" and not found.members


def leave(scene: Scene, group: Group, *staying: str) -> None:
    """Remove all members except some."""
    gone = [(member, None) for member in MEMBERS if member not in staying]
    scene.do(LEAVE, 5, several(group, *gone))


def play(scene: Scene, state: Callable[[Scene, Group], None], row: Row) -> None:
    """Send a request in a state, and compare its effects."""
    group = Group(scene.name("group"), scene.shared_topic())
    state(scene, group)
    waiting = PENDING.get(state)

    def ping() -> None:
        scene.do(DESCRIBE, 5, {"groups": [group.id]})

    scene.send(row.build(group), on="request")
    has_response = scene.compare_response_if_any(ping, on="request")
    scene.await_agreement(lambda side: described(side, group).group_state)
    scene.compare({"groups": [group.id]}, DESCRIBE, 6)
    for member in MEMBERS:
        scene.compare(heartbeat_of(group.id, member, GENERATION), HEARTBEAT, 4)
    leave(scene, group, row.sender, *((waiting[0],) if waiting else ()))
    if not has_response:
        scene.compare_response_if_any(ping, on="request")
    if waiting:
        name, api, version = waiting
        scene.compare_response_if_any(ping, api, version, on=name)
    # A rebalance without members ends at once, but not before the next request.
    scene.until(lambda side: not is_about_to_be_empty(described(side, group)))
    scene.compare({"groups": [group.id]}, DESCRIBE, 6)


def listed(scene: Scene, state: Callable[[Scene, Group], None]) -> None:
    """Compare the lists of groups with each filter in a state."""
    group = Group(scene.name("group"), scene.shared_topic())
    state(scene, group)
    for states in (
        [],
        ["Empty"],
        ["Stable", "Dead"],
        ["preparingrebalance", "CompletingRebalance"],
    ):
        for types in ([], ["classic"], ["Consumer"]):
            requested = {"states_filter": states, "types_filter": types}
            responses = scene.do(LIST, scene.version, requested)
            scene.note(*(listing(response, group.id) for response in responses))


# Older versions differ only in their fields. They are tested in these states.
IN_ALL_VERSIONS = (absent, stable)

for _place, _state in enumerate(STATES):
    for _number, _row in enumerate(ROWS):
        CASES.append(
            Case(
                _row.api,
                f"{_row.name}-when-{_state.__name__.replace('_', '-')}",
                partial(play, state=_state, row=_row),
                frozenset(_row.versions if _state in IN_ALL_VERSIONS else _row.versions[-1:]),
                is_left_out(_place, _number),
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
