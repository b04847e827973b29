"""The schemas that a schema refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.registry.errors import invalid_schema
from barnabas.registry.schemas import Reference, ResolvedReference
from barnabas.registry.state import ALL
from barnabas.registry.subjects import in_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.registry.state import RegistryState

# Levels of references of references.
_DEPTH_MAX = 50


class Resolver:
    """Finds the schemas of references; each one once."""

    def __init__(self, state: RegistryState, context: str) -> None:
        self._state = state
        self._context = context
        self._found: dict[Reference, ResolvedReference] = {}

    def resolve(
        self, references: Sequence[Reference], depth: int = 0
    ) -> tuple[ResolvedReference, ...]:
        """Return references with their schemas.

        Raises:
            RegistryError: A schema is missing, or the references are too deep.
        """
        if depth > _DEPTH_MAX:
            raise invalid_schema(f"the references have more than {_DEPTH_MAX} levels")
        return tuple(self._one(each, depth) for each in references)

    def _one(self, reference: Reference, depth: int) -> ResolvedReference:
        found = self._found.get(reference)
        if found is None:
            subject = in_context(self._context, reference.subject)
            schema = self._state.get(subject, reference.version, ALL)
            if schema is None:
                raise invalid_schema(
                    f'No schema reference found for subject "{reference.subject}" and version '
                    f"{reference.version}"
                )
            inner = self.resolve(schema.content.references, depth + 1)
            found = ResolvedReference(
                Reference(reference.name, reference.subject, schema.version),
                schema.content.text,
                inner,
            )
            self._found[reference] = found
        return found
