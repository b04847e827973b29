"""Random changes of single fields in the responses that a client receives, by a seed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from barnabas.protocol import schema
from barnabas.protocol.schema import Array, Field, Kind, Struct

if TYPE_CHECKING:
    import random
    from collections.abc import Collection

    from barnabas.client.connections.cluster import Cluster
    from barnabas.protocol.api_keys import ApiKey

_BITS = {schema.INT8: 8, schema.INT16: 16, schema.INT32: 32, schema.INT64: 64}
# A leader epoch that is too high makes all later ones look old, also for Kafka's clients.
_UNCHANGED = {"leader_epoch", "current_leader"}


class HostileAnswers:
    """Changes responses between the connections of a client and their callers.

    Args:
        cluster: the client's connections.
        rng: chooses the changed fields.
        chance: probability that a response is changed.
        apis: APIs whose responses are changed; all if None.
    """

    def __init__(
        self,
        cluster: Cluster,
        rng: random.Random,
        chance: float,
        apis: Collection[ApiKey] | None = None,
    ) -> None:
        self._rng = rng
        self._apis = apis
        self.chance = chance
        # Requests and changed answers, by API.
        self.asked: Counter[ApiKey] = Counter()
        self.changed: Counter[ApiKey] = Counter()
        self._call = cluster._connections.call
        cluster._connections.call = self._call_and_change  # type: ignore[method-assign]

    def _call_and_change(self, info: Any, call: Any) -> None:
        self.asked[call.api_key] += 1
        versions: list[int] = []

        def build(version: int) -> Any:
            versions.append(version)
            return call.build(version)

        def on_done(response: Any, error: Any) -> None:
            is_ours = self._apis is None or call.api_key in self._apis
            if response is not None and is_ours and self._rng.random() < self.chance:
                self.changed[call.api_key] += 1
                for _ in range(self._rng.randint(1, 3)):
                    self._change(response, versions[-1])
            call.on_done(response, error)

        self._call(info, call._replace(build=build, on_done=on_done))

    def _change(self, struct: Struct, version: int) -> None:
        """Change one field of a struct or of a nested struct."""
        if not struct.__fields__ or type(struct).__default_instance__ is struct:
            # A default instance that all messages share was not in the response.
            return
        fields = [each for each in struct.__fields__ if each.name not in _UNCHANGED]
        each = self._rng.choice(fields)
        value = getattr(struct, each.name)
        inner = value if isinstance(value, list) else [value]
        structs = [item for item in inner if isinstance(item, Struct)]
        if structs and self._rng.random() < 0.8:
            self._change(self._rng.choice(structs), version)
        elif each.is_nullable(version) and self._rng.random() < 0.2:
            setattr(struct, each.name, None)
        else:
            setattr(struct, each.name, self._other(each, value))

    def _other(self, each: Field, value: Any) -> Any:
        rng, kind = self._rng, each.kind
        if isinstance(kind, Array):
            items = list(value or [])
            return rng.choice([[], items * 2, items[:1], items[::-1]])
        if not isinstance(kind, Kind) or value is None:
            return value
        if kind in _BITS:
            top = 2 ** (_BITS[kind] - 1)
            return rng.choice([-1, -2, 0, 1, 9_999, top - 1, -top, min(value + 1, top - 1)])
        if kind is schema.BOOL:
            return not value
        if kind is schema.STRING:
            return rng.choice(["", "other", value[:1]])
        if kind is schema.UUID:
            return rng.choice([bytes(16), rng.randbytes(16)])
        return rng.choice([b"", bytes(value)[: len(value) // 2], rng.randbytes(30)])
