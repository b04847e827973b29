"""Errors of serializers that use a schema registry.

A `SchemaError` is about one value or its schema: the next record may be fine. A `RegistryError` is
about the registry: no record can be read until it is fixed, so tools must not skip records for it.
"""

from __future__ import annotations

# Status of a registry that refuses a schema, because it breaks the compatibility of its subject.
CONFLICT = 409


class SchemaError(ValueError):
    """A value, its bytes or its schema is not usable; base of the errors about one record."""


class WireFormatError(SchemaError):
    """Bytes do not have the format that their schema announces."""


class SchemaMismatchError(SchemaError):
    """A value does not fit its schema, or two schemas do not fit each other.

    Attributes:
        field: The path of the field, such as "customer.address.zip"; "" for the whole value.
    """

    def __init__(self, message: str, field: str = "") -> None:
        self.field = field
        super().__init__(message)


class UnknownSchemaError(SchemaError):
    """The registry has no schema with the id that a record contains.

    Attributes:
        schema_id: The id.
    """

    def __init__(self, schema_id: int, url: str) -> None:
        self.schema_id = schema_id
        super().__init__(
            f"the registry at {url} has no schema with id {schema_id}: check that the record was "
            f"written with this registry"
        )


class RegistryError(Exception):
    """The registry was not reached, or refused a request.

    Attributes:
        status: The HTTP status; 0 if no registry responded.
        code: The error code of the registry, such as 40401; 0 if there is none.
    """

    def __init__(self, message: str, status: int = 0, code: int = 0) -> None:
        self.status = status
        self.code = code
        super().__init__(message)

    @property
    def retriable(self) -> bool:
        """Return whether the same request may succeed later."""
        return self.status in (0, 408, 429) or self.status >= 500
