"""A model of Kafka's eight levels of client quotas."""

from __future__ import annotations

from barnabas.metadata.configs_image import QuotaEntity

# Whether the level names a user, and a client id: by the name, by default (None), or not at all.
NAMED, DEFAULT, ABSENT = "named", "default", "absent"
LEVELS = (
    (NAMED, NAMED),
    (NAMED, DEFAULT),
    (NAMED, ABSENT),
    (DEFAULT, NAMED),
    (DEFAULT, DEFAULT),
    (DEFAULT, ABSENT),
    (ABSENT, NAMED),
    (ABSENT, DEFAULT),
)
Quotas = dict[QuotaEntity, float]


def entity(user: str | None, client_id: str | None, kinds: tuple[str, str]) -> QuotaEntity:
    """The entity of a level for a client."""
    parts = (("client-id", client_id, kinds[1]), ("user", user, kinds[0]))
    return tuple(
        (kind, name if how == NAMED else None) for kind, name, how in parts if how != ABSENT
    )


def limit_by_model(quotas: Quotas, user: str, client_id: str) -> tuple[float, str, str] | None:
    """Return the limit of the first level with a quota, and the clients that share it."""
    for kinds in LEVELS:
        if client_id == "" and kinds[1] != ABSENT:
            continue
        value = quotas.get(entity(user, client_id, kinds))
        if value is not None:
            shared = zip(kinds, (user, client_id), strict=True)
            by_user, by_client = ("" if kind == ABSENT else name for kind, name in shared)
            return value, by_user, by_client
    return None
