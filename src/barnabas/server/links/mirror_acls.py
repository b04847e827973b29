"""Copies access control entries of mirrored topics and groups from the source of a link.

Only literal entries are copied: a prefix or `*` would also give rights to topics of this cluster
that are no mirrors. The broker that manages topics does this.

The entries that a link has added are in its configs. Each is written there before it is created, so
that no entry of the operator is ever taken for one of the link. A round compares the source, the
configs and the entries of this cluster, and makes the next change of each entry:

    source  config  here
    yes     no      no      write the config
    yes     yes     no      create the entry
    yes     no      yes     none: it is the operator's
    no      yes     yes     delete the entry
    no      yes     no      delete the config

If the topic is not mirrored any more, only the config is deleted: the entry is the operator's then.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.admin.acls import AclFilter, describe_acls
from barnabas.metadata.acls import Acl
from barnabas.protocol.messages.security import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
)
from barnabas.protocol.resources import AclResourceType, PatternType
from barnabas.replication.links.link_table import acl_name, acl_value
from barnabas.server.links.link_configs import alter_configs, log_refusals
from barnabas.server.links.name_filter import NameFilter
from barnabas.server.links.plan_runner import start_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.admin.sender import Plan
    from barnabas.client.errors import ClientError
    from barnabas.replication.links.link_table import LinkDefinition, LinkTable
    from barnabas.server.links.link_dependencies import LinkDependencies
    from barnabas.server.links.source_cluster import SourceCluster

_log = logging.getLogger(__name__)

# Entries that a link copies, and changes of one round.
ENTRIES_MAX = 1_000
_CHANGES_AT_ONCE = 100
_TOPIC, _GROUP = int(AclResourceType.TOPIC), int(AclResourceType.GROUP)


class MirrorAcls:
    """The rounds of one link."""

    def __init__(self, source: SourceCluster, dependencies: LinkDependencies) -> None:
        self._admin = source.admin
        self._cluster = dependencies.cluster
        self._forwarding = dependencies.forwarding
        self._timer = dependencies.runtime.timer
        self._filter = NameFilter()
        self._is_busy = False
        # Whether the log has a warning about too many entries.
        self._has_warned = False

    def start_round(self, link: LinkDefinition, table: LinkTable) -> None:
        """Begin a round, unless one is in progress."""
        if self._is_busy:
            return
        self._is_busy = True
        topics = {each.topic for each in table.mirrors_of(link.name) if each.is_mirrored}
        start_plan(self._round(link, topics), self._timer, partial(self._on_done, link))

    def _on_done(self, link: LinkDefinition, _none: None, error: ClientError | None) -> None:
        self._is_busy = False
        if error is not None:
            _log.info("ACLs of a source are not known: link=%s error=%s", link.name, error)

    def _round(self, link: LinkDefinition, topics: set[str]) -> Plan[None]:
        found: list[Acl] = []
        for kind in (AclResourceType.TOPIC, AclResourceType.GROUP):
            wanted = AclFilter(resource_type=kind, pattern_type=PatternType.LITERAL)
            described = yield from describe_acls(self._admin, wanted)
            found += [
                Acl(
                    int(each.resource_type),
                    each.resource_name,
                    int(each.pattern_type),
                    each.principal,
                    each.host,
                    int(each.operation),
                    int(each.permission),
                )
                for each in described
            ]
        names = {
            each.resource_name
            for each in (*found, *link.acls.values())
            if each.resource_type == _GROUP
        }
        groups: set[str] = set()
        if link.groups is not None:
            groups.update((yield from self._filter.select(link.groups, sorted(names))))
        covered = {_TOPIC: topics, _GROUP: groups}
        theirs = [each for each in found if each.resource_name in covered[each.resource_type]]
        if len(theirs) > ENTRIES_MAX and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "A link copies only some ACLs of its source: link=%s entries=%d limit=%d",
                *(link.name, len(theirs), ENTRIES_MAX),
            )
        self._change(link, theirs[:ENTRIES_MAX], covered)

    def _change(
        self, link: LinkDefinition, theirs: list[Acl], covered: Mapping[int, set[str]]
    ) -> None:
        """Make the next change of each entry, see the table above."""
        existing = self._cluster.image.acls
        wanted = {acl_name(link.name, each): each for each in theirs}
        configs: dict[str, str | None] = {
            name: acl_value(each)
            for name, each in wanted.items()
            if name not in link.acls and each not in existing
        }
        deleted: list[Acl] = []
        for name, each in link.acls.items():
            if name in wanted:
                continue
            if each in existing and each.resource_name in covered.get(each.resource_type, ()):
                deleted.append(each)
            else:
                configs[name] = None
        created = [
            each for name, each in wanted.items() if name in link.acls and each not in existing
        ]
        alter_configs(self._forwarding, dict(list(configs.items())[:_CHANGES_AT_ONCE]))
        self._create(created[:_CHANGES_AT_ONCE])
        self._delete(deleted[:_CHANGES_AT_ONCE])

    def _create(self, entries: Iterable[Acl]) -> None:
        creations = [
            AclCreation(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                resource_pattern_type=each.pattern_type,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in entries
        ]
        if creations:
            request = CreateAclsRequest(creations=creations)
            self._forwarding.send(request, lambda response: log_refusals(response.results))

    def _delete(self, entries: Iterable[Acl]) -> None:
        filters = [
            DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.resource_name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in entries
        ]
        if filters:
            request = DeleteAclsRequest(filters=filters)
            self._forwarding.send(request, lambda response: log_refusals(response.filter_results))
