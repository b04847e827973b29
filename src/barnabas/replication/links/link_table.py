"""Links and mirror topics, as the metadata has them.

All state of links is in the dynamic configs of all brokers, whose names Kafka does not restrict:

    barnabas.link.NAME.KEY             a setting of the link, or a key of the client's config
    barnabas.link.NAME.topic.TOPIC     a mirror topic: state, id and origins of its source, a reason
    barnabas.link.NAME.report.BROKER   the group offsets that a broker has copied, for a promotion
    barnabas.link.NAME.acl.HASH        an access control entry that the link has added

So Kafka's tools show and change links like other configs, and snapshots and replays need nothing
new. A mirror topic is written here before it is created: no client can produce to it in between.
"""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from barnabas.metadata.acls import Acl
from barnabas.settings.pattern import Pattern, PatternError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LINK_PREFIX = "barnabas.link."
_TOPIC_KEY = "topic."
_REPORT_KEY = "report."
_ACL_KEY = "acl."
_HASH_CHARACTERS = 24
LINK_NAME = re.compile(r"[a-zA-Z0-9_-]{1,100}")

# The settings of a link that are not keys of the client's config.
TOPICS = "topics"
GROUPS = "groups"
STATE = "state"
SOURCE_CLUSTER_ID = "source.cluster.id"
BYTES_PER_SECOND = "bytes.per.second"
GROUP_SYNC_MS = "group.sync.ms"
# "true": access control entries are copied.
ACLS = "acls"
# What mirrors do if the source has lost records, see `TruncationPolicy`.
ON_TRUNCATION = "on.truncation"
# Set while `links reverse --discard` lets mirrors remove records: the policy that follows.
NEXT_ON_TRUNCATION = "on.truncation.next"
# A promotion that waits for group offsets, see `PromotionRequest`.
PROMOTION = "promotion"
LINK_SETTINGS = frozenset(
    {
        TOPICS,
        GROUPS,
        STATE,
        SOURCE_CLUSTER_ID,
        ACLS,
        BYTES_PER_SECOND,
        GROUP_SYNC_MS,
        NEXT_ON_TRUNCATION,
        ON_TRUNCATION,
        PROMOTION,
    }
)
# The value of STATE of a link whose topics the source mirrors now. The link does nothing.
REVERSED = "reversed"

# Settings with few values, and those with numbers, which may be empty for no limit.
_CHOICES = {
    STATE: ("active", "paused", REVERSED),
    ACLS: ("true", "false"),
    ON_TRUNCATION: ("stop", "follow"),
    NEXT_ON_TRUNCATION: ("stop", "follow"),
}
_NUMBERS = (BYTES_PER_SECOND, GROUP_SYNC_MS)

# Types of groups whose offsets are copied: those in `__consumer_offsets`. Clusters before Kafka 3.8
# report no types.
COPIED_TYPES = ("", "classic", "consumer")
_GROUP_SYNC_DEFAULT_MS = 5_000
_GROUP_SYNC_LEAST_MS = 100
# Limits of the texts in the metadata.
REASON_CHARACTERS_MAX = 300
NO_TOPIC_ID = bytes(16)
# Limits of the origins of a mirror topic, which the source reports.
_ORIGINS_MAX = 16
_CLUSTER_ID = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


class TruncationPolicy(StrEnum):
    """What the mirrors of a link do if the source has lost records that they have."""

    # They stop with a reason.
    STOP = "stop"
    # They remove the records too.
    FOLLOW = "follow"


class MirrorState(StrEnum):
    """The state of a mirror topic.

    active ⇄ paused, active → stopped (its source has changed), each of them → promoting → promoted.
    conflict → active (the topic of this cluster was deleted).
    promoted → paused → active (the link takes its old direction again).
    """

    # Records are fetched from the source.
    ACTIVE = "active"
    # Nothing is fetched until the operator resumes it.
    PAUSED = "paused"
    # Nothing is fetched: the source is not the log that was mirrored. The reason is stored.
    STOPPED = "stopped"
    # Nothing is fetched: the brokers abort the open transactions of the source.
    PROMOTING = "promoting"
    # An ordinary topic, to which clients produce.
    PROMOTED = "promoted"
    # Not mirrored: this cluster had a topic of this name before. Clients produce to it.
    CONFLICT = "conflict"


_WRITABLE = frozenset({MirrorState.PROMOTED, MirrorState.CONFLICT})


class MirrorTopic(msgspec.Struct, frozen=True):
    """A topic that mirrors the topic of the same name in the source cluster."""

    link: str
    topic: str
    state: MirrorState
    # Id of the source topic. `NO_TOPIC_ID` if the source cluster has no topic ids.
    source_id: bytes = NO_TOPIC_ID
    # Why the mirror has stopped, or is in conflict, for the operator.
    reason: str = ""
    # Ids of the clusters that the source topic is a mirror of, the nearest first. Empty for most.
    origins: tuple[str, ...] = ()

    @property
    def is_read_only(self) -> bool:
        """Whether only the link may append."""
        return self.state not in _WRITABLE

    @property
    def is_mirrored(self) -> bool:
        """Whether the topic follows its source, or would if it were resumed."""
        return self.is_read_only and self.state is not MirrorState.PROMOTING

    def is_conflict_of(self, link: str) -> bool:
        """Whether a topic of this cluster keeps the link from mirroring it."""
        return self.state is MirrorState.CONFLICT and self.link == link

    def may_copy(self, topic_id: bytes) -> bool:
        """Return whether the source topic with this id may be the topic that was mirrored.

        It is not if it was deleted and created again. Without topic ids, this is not known.
        """
        return topic_id == self.source_id or NO_TOPIC_ID in (topic_id, self.source_id)

    @property
    def config_name(self) -> str:
        """The name of the config that stores the topic."""
        return f"{link_prefix(self.link)}{_TOPIC_KEY}{self.topic}"

    @property
    def config_value(self) -> str:
        """The value of that config."""
        reason = " ".join(self.reason.split())[:REASON_CHARACTERS_MAX]
        source = ":".join((self.source_id.hex(), *_known_origins(self.origins)))
        return f"{self.state} {source} {reason}".rstrip()


class PromotionRequest(msgspec.Struct, frozen=True):
    """The request of a promotion to all brokers: copy the group offsets once more and report."""

    # Differs between promotions.
    token: str
    # The topics whose offsets the promotion waits for.
    topics: frozenset[str]


class GroupReport(msgspec.Struct, frozen=True):
    """The answer of one broker to a `PromotionRequest`.

    A complete report shows that the broker has read the offsets of all its groups from the source
    after it had seen the request, and that it has committed all of them.
    """

    token: str
    is_complete: bool
    # Partitions of `__consumer_offsets` whose groups the broker has copied.
    partitions: list[int]
    # Number of groups with offsets at the source that are not committed here; -1 if not known.
    missing: int
    # The names of some of these groups.
    groups: list[str]


class LinkDefinition(msgspec.Struct, frozen=True):
    """One link: where the source cluster is, and what is mirrored."""

    name: str
    # Keys of the client's config, for connections to the source.
    client: Mapping[str, str]
    topics: Pattern | None = None
    groups: Pattern | None = None
    # Whether the link does nothing.
    is_paused: bool = False
    # Id of the source cluster, as it was when the link was created.
    source_cluster_id: str = ""
    # Limit of each broker; None: no limit.
    bytes_per_second: int | None = None
    group_sync_ms: int = _GROUP_SYNC_DEFAULT_MS
    promotion: PromotionRequest | None = None
    # The reports of brokers, by broker id, for the promotion or an earlier one.
    reports: Mapping[str, GroupReport] = {}
    # Why a setting cannot be used; empty if all are valid.
    problem: str = ""
    # Whether the link is paused because the source mirrors its topics now.
    is_reversed: bool = False
    on_truncation: TruncationPolicy = TruncationPolicy.STOP
    # The policy that a command sets when the mirrors have removed records; None without one.
    next_on_truncation: TruncationPolicy | None = None
    copies_acls: bool = False
    # The access control entries that the link has added, or is about to add, by their config.
    acls: Mapping[str, Acl] = {}


class LinkTable(msgspec.Struct, frozen=True):
    """All links and mirror topics of the cluster."""

    links: Mapping[str, LinkDefinition]
    # By topic. If several links name a topic, the first of them by name has it, and those whose
    # state is not a conflict come first.
    mirrors: Mapping[str, MirrorTopic]

    def mirrors_of(self, link: str) -> Iterable[MirrorTopic]:
        """Return the mirror topics of one link."""
        return [each for each in self.mirrors.values() if each.link == link]


def link_prefix(name: str) -> str:
    """Return the beginning of the names of a link's configs."""
    return f"{LINK_PREFIX}{name}."


def setting_name(link: str, key: str) -> str:
    """Return the name of the config that stores a setting of a link."""
    return link_prefix(link) + key


def report_name(link: str, broker_id: int | str) -> str:
    """Return the name of the config that stores the report of a broker."""
    return f"{link_prefix(link)}{_REPORT_KEY}{broker_id}"


def report_value(report: GroupReport) -> str:
    """Return the value of that config."""
    return msgspec.json.encode(report).decode()


def acl_name(link: str, acl: Acl) -> str:
    """Return the name of the config that stores an access control entry of a link."""
    digest = sha256(msgspec.json.encode(acl)).hexdigest()
    return f"{link_prefix(link)}{_ACL_KEY}{digest[:_HASH_CHARACTERS]}"


def acl_value(acl: Acl) -> str:
    """Return the value of that config."""
    return msgspec.json.encode(acl).decode()


def promotion_value(request: PromotionRequest) -> str:
    """Return the value of the config that stores a promotion."""
    return " ".join((request.token, *sorted(request.topics)))


def client_key_of(config_name: str) -> str | None:
    """Return the key of the client's config that a link's config stores; None for other names."""
    if not config_name.startswith(LINK_PREFIX):
        return None
    _, _, key = config_name.removeprefix(LINK_PREFIX).partition(".")
    return key if _is_client_key(key) else None


def is_setting(config_name: str) -> bool:
    """Return whether a config stores a setting of a link, or a key of its client."""
    if not config_name.startswith(LINK_PREFIX):
        return False
    name, _, key = config_name.removeprefix(LINK_PREFIX).partition(".")
    is_named = bool(key) and LINK_NAME.fullmatch(name) is not None
    return is_named and (key in LINK_SETTINGS or _is_client_key(key))


def link_of(config_name: str) -> str:
    """Return the name of the link that a config belongs to."""
    return config_name.removeprefix(LINK_PREFIX).partition(".")[0]


def problem_of(config_name: str, value: str) -> str:
    """Return why a config of a link cannot have a value; empty if it can.

    Keys of the client, and their values, are not checked.
    """
    link, _, key = config_name.removeprefix(LINK_PREFIX).partition(".")
    if not LINK_NAME.fullmatch(link) or not key:
        return "links have no config of this name"
    if key.startswith(_TOPIC_KEY):
        known = [str(state) for state in MirrorState]
        mirror = _mirror(link, key.removeprefix(_TOPIC_KEY), value)
        return "" if value.split()[:1] == [mirror.state] else f"mirrors have a state of {known}"
    choices = _CHOICES.get(key)
    if choices is not None and value not in choices:
        return f"{value!r} is not one of {', '.join(choices)}"
    if key in _NUMBERS and value and not (value.isascii() and value.isdigit()):
        return f"{value!r} is not a whole number"
    return _link(link, {key: value}).problem


def _is_client_key(key: str) -> bool:
    return key not in LINK_SETTINGS and not key.startswith((_TOPIC_KEY, _REPORT_KEY, _ACL_KEY))


def read_links(configs: Mapping[str, str]) -> LinkTable:
    """Return the links in the dynamic configs of all brokers. Configs of other kinds are skipped.

    A value that cannot be used becomes the `problem` of its link, which then does nothing. Its
    mirror topics stay read-only.
    """
    settings: dict[str, dict[str, str]] = {}
    mirrors: dict[str, MirrorTopic] = {}
    for config, value in sorted(configs.items()):
        if not config.startswith(LINK_PREFIX):
            continue
        name, _, key = config.removeprefix(LINK_PREFIX).partition(".")
        if not LINK_NAME.fullmatch(name) or not key:
            continue
        if key.startswith(_TOPIC_KEY):
            mirror = _mirror(name, key.removeprefix(_TOPIC_KEY), value)
            known = mirrors.get(mirror.topic)
            if known is None or known.state is MirrorState.CONFLICT is not mirror.state:
                mirrors[mirror.topic] = mirror
        else:
            settings.setdefault(name, {})[key] = value
    return LinkTable({name: _link(name, each) for name, each in settings.items()}, mirrors)


def _mirror(link: str, topic: str, value: str) -> MirrorTopic:
    words = value.split(maxsplit=2)
    try:
        state = MirrorState(words[0])
        topic_id, *origins = words[1].split(":") if len(words) > 1 else [NO_TOPIC_ID.hex()]
        source_id = bytes.fromhex(topic_id)
    except (IndexError, ValueError):
        reason = f"the config has a value that is not a state of a mirror: {value!r}"
        return MirrorTopic(link, topic, MirrorState.STOPPED, NO_TOPIC_ID, reason)
    reason = words[2] if len(words) > 2 else ""
    return MirrorTopic(link, topic, state, source_id, reason, _known_origins(origins))


def _known_origins(ids: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of clusters that a mirror topic can store."""
    return tuple(each for each in ids if _CLUSTER_ID.fullmatch(each))[:_ORIGINS_MAX]


def _link(name: str, settings: Mapping[str, str]) -> LinkDefinition:
    client = {key: value for key, value in settings.items() if _is_client_key(key)}
    try:
        return LinkDefinition(
            name,
            client,
            _pattern(settings.get(TOPICS, "")),
            _pattern(settings.get(GROUPS, "")),
            settings.get(STATE, "active") != "active",
            settings.get(SOURCE_CLUSTER_ID, ""),
            int(settings[BYTES_PER_SECOND]) if settings.get(BYTES_PER_SECOND) else None,
            max(_GROUP_SYNC_LEAST_MS, int(settings.get(GROUP_SYNC_MS, _GROUP_SYNC_DEFAULT_MS))),
            _promotion(settings.get(PROMOTION, "")),
            _reports(settings),
            is_reversed=settings.get(STATE) == REVERSED,
            on_truncation=TruncationPolicy(settings.get(ON_TRUNCATION, TruncationPolicy.STOP)),
            next_on_truncation=_policy(settings.get(NEXT_ON_TRUNCATION)),
            copies_acls=settings.get(ACLS) == "true",
            acls=_acls(name, settings),
        )
    except (PatternError, ValueError) as error:
        return LinkDefinition(name, client, problem=str(error))


def _pattern(text: str) -> Pattern | None:
    return Pattern(text) if text else None


def _policy(text: str | None) -> TruncationPolicy | None:
    return TruncationPolicy(text) if text else None


def _promotion(text: str) -> PromotionRequest | None:
    words = text.split()
    return PromotionRequest(words[0], frozenset(words[1:])) if words else None


def _reports(settings: Mapping[str, str]) -> dict[str, GroupReport]:
    """Return the reports that can be read, by broker id."""
    found: dict[str, GroupReport] = {}
    for key, value in settings.items():
        if not key.startswith(_REPORT_KEY):
            continue
        try:
            report = msgspec.json.decode(value, type=GroupReport)
        except msgspec.MsgspecError:
            continue
        found[key.removeprefix(_REPORT_KEY)] = report
    return found


def _acls(link: str, settings: Mapping[str, str]) -> dict[str, Acl]:
    """Return the access control entries that can be read, by the name of their config."""
    found: dict[str, Acl] = {}
    for key, value in settings.items():
        if not key.startswith(_ACL_KEY):
            continue
        try:
            found[setting_name(link, key)] = msgspec.json.decode(value, type=Acl)
        except msgspec.MsgspecError:
            continue
    return found
