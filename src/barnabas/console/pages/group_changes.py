"""Changes of groups: their offsets, members and configs, and their deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from barnabas.cli.admin.group_lag import group_positions
from barnabas.cli.admin.groups import set_offsets
from barnabas.cli.common.printable import counted
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.admin.groups import MemberToRemove
from barnabas.client.errors import ClientError
from barnabas.console.access.users import Role
from barnabas.console.console import console_of
from barnabas.console.forms import FormError, query_fields
from barnabas.console.pages.change import Done, Preview, change
from barnabas.console.pages.configs import change_config, preview_config
from barnabas.console.plans.offset_plans import offsets_csv, planned_offsets
from barnabas.console.rendering import attachment, link
from barnabas.console.tables import columns_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from barnabas.client.admin.group_descriptions import GroupDescription, GroupMember
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.console.forms import Fields


def _described(client: Client, name: str) -> GroupDescription:
    found = client.admin.describe_groups([name])[name]
    if isinstance(found, ClientError):
        raise found
    return found


def _page(name: str) -> str:
    return link("/group", id=name)


def _idle(client: Client, name: str) -> GroupDescription:
    """Return a group without members.

    Raises:
        FormError: The group has members.
    """
    found = _described(client, name)
    if found.members:
        members = counted(len(found.members), "member")
        raise FormError(
            f"{name} has {members} that would overwrite the offsets: stop the consumers first"
        )
    return found


async def export_offsets(request: Request) -> Response:
    """Send the offsets of a group as a file, which the form and Kafka's tool read."""
    console, name = console_of(request), query_fields(request).required("id")
    group, offsets = await console.cluster.call(lambda client: _positions(client, name))
    if group.state == "Dead" and not offsets:
        raise HTTPException(404, f"This cluster has no group {name}.")
    text = offsets_csv(offsets)
    return Response(text, media_type="text/csv", headers=attachment("offsets.csv"))


def _positions(client: Client, name: str) -> tuple[GroupDescription, dict[TopicPartition, int]]:
    group = _described(client, name)
    return group, group_positions(client, group)


def reset_offsets(client: Client, form: Fields) -> Done:
    """Move the offsets of a group without members."""
    name = form.required("id")
    group = _idle(client, name)
    moves = planned_offsets(client, group, form)
    set_offsets(client, group, {each.partition: each.after for each in moves})
    topics = sorted({each.partition.topic for each in moves})
    text = topics[0] if len(topics) == 1 else f"{len(topics)} topics"
    return Done(f"moved {name} in {len(moves)} partitions of {text}", _page(name))


def preview_reset(client: Client, form: Fields) -> Preview:
    """Return where the offsets are, and where they will be."""
    name = form.required("id")
    moves = planned_offsets(client, _idle(client, name), form)
    rows: list[tuple[object, ...]] = [
        (
            each.partition,
            each.before,
            each.after,
            None if each.before is None else each.after - each.before,
            "the nearest offset of the log" if each.clipped else "",
        )
        for each in moves
    ]
    clipped = sum(each.clipped for each in moves)
    return Preview(
        f"Move the offsets of {name} in {len(moves)} partitions?",
        "Move them",
        columns_of(
            "Partition",
            ("Now", "number"),
            ("After", "number"),
            ("By", "change"),
            ("Note", "text", ""),
        ),
        rows,
        f"{clipped} of the offsets are outside of the logs." if clipped else "",
        # Records that arrive meanwhile do not change what was shown.
        [
            ("to", "file"),
            ("file", ""),
            ("csv", offsets_csv({each.partition: each.after for each in moves})),
        ],
    )


def _chosen_offsets(client: Client, form: Fields) -> list[tuple[TopicPartition, int]]:
    """Return the partitions of a topic whose offsets are deleted, with the offsets."""
    name, topic = form.required("id"), form.required("topic")
    numbers = set(form.integers("partitions")) if form.stripped("partitions") else None
    positions = group_positions(client, _described(client, name))
    found = [
        (tp, offset)
        for tp, offset in sorted(positions.items())
        if tp.topic == topic and (numbers is None or tp.partition in numbers)
    ]
    if not found:
        raise FormError(f"{name} has no such offsets of {topic}", "topic")
    return found


def delete_offsets(client: Client, form: Fields) -> Done:
    """Delete the offsets of a topic in a group whose members do not read the topic."""
    name, topic = form.required("id"), form.required("topic")
    chosen = _chosen_offsets(client, form)
    if _described(client, name).type == "share":
        if form.stripped("partitions"):
            raise FormError("share groups keep or lose the offsets of a whole topic", "partitions")
        client.admin.delete_share_group_offsets(name, [topic])
    else:
        client.admin.delete_offsets(name, [tp for tp, _ in chosen])
    return Done(f"deleted {len(chosen)} offsets of {topic} in {name}", _page(name))


def preview_deleted_offsets(client: Client, form: Fields) -> Preview:
    """Return the offsets that are deleted."""
    name, topic = form.required("id"), form.required("topic")
    chosen = _chosen_offsets(client, form)
    rows: list[tuple[object, ...]] = [(tp, offset) for tp, offset in chosen]
    warning = "Members that read the topic again begin where auto.offset.reset says."
    columns = columns_of("Partition", ("Offset that is deleted", "number"))
    question = f"Delete the offsets of {topic} in {name}?"
    return Preview(question, "Delete them", columns, rows, warning)


def delete_group(client: Client, form: Fields) -> Done:
    """Delete a group without members, with its offsets."""
    name = form.required("id")
    form.confirm(name)
    client.admin.delete_groups([name])
    return Done(f"deleted group {name}", "/groups")


def preview_deleted_group(client: Client, form: Fields) -> Preview:
    """Return the offsets that are lost with a group."""
    name = form.required("id")
    form.confirm(name)
    positions = group_positions(client, _idle(client, name))
    rows: list[tuple[object, ...]] = [(tp, offset) for tp, offset in sorted(positions.items())]
    columns = columns_of("Partition", ("Offset that is deleted", "number"))
    return Preview(f"Delete the group {name}?", "Delete it", columns, rows)


def _chosen_member(client: Client, form: Fields) -> GroupMember:
    name, member_id = form.required("id"), form.required("member")
    group = _described(client, name)
    if group.type != "classic":
        raise FormError(f"the protocol of {group.type} groups cannot remove members: stop them")
    found = next((each for each in group.members if each.member_id == member_id), None)
    if found is None:
        raise FormError(f"{name} has no member {member_id} any more")
    return found


def remove_member(client: Client, form: Fields) -> Done:
    """Remove a member of a classic group, static or dynamic."""
    name, member = form.required("id"), _chosen_member(client, form)
    client.admin.remove_members(name, [MemberToRemove(member.member_id, member.instance_id)])
    return Done(f"removed {member.instance_id or member.member_id} from {name}", _page(name))


def preview_removal(client: Client, form: Fields) -> Preview:
    """Return the member, and the partitions that other members get."""
    name, member = form.required("id"), _chosen_member(client, form)
    reads = ", ".join(f"{tp.topic}:{tp.partition}" for tp in member.assignment[:50])
    row = (member.instance_id, member.member_id, member.client_id, member.host, reads)
    columns = columns_of("Instance", "Member", "Client", "Host", "Reads")
    warning = (
        "The group rebalances. A program that still runs joins again; a static member that was "
        "removed is fenced."
    )
    return Preview(f"Remove a member of {name}?", "Remove it", columns, [row], warning)


def _resource(form: Fields) -> ConfigResource:
    return ConfigResource(ResourceType.GROUP, form.required("id"))


def set_group_config(client: Client, form: Fields) -> Done:
    """Set a config of a group, or reset it."""
    text = change_config(client, _resource(form), form)
    return Done(f"group {form.required('id')}: {text}", _page(form.required("id")))


ROUTES = [
    Route("/group/offsets.csv", export_offsets),
    change("/group/reset", reset_offsets, preview_reset),
    change("/group/offsets/delete", delete_offsets, preview_deleted_offsets, role=Role.ADMIN),
    change("/group/members/remove", remove_member, preview_removal),
    change(
        "/group/config",
        set_group_config,
        lambda client, form: preview_config(client, _resource(form), form),
    ),
    change("/group/delete", delete_group, preview_deleted_group, role=Role.ADMIN),
]
