"""Decodes the values of records into one Arrow array, record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from barnabas.serializers.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable


# Limit for the reasons of Arrow, which quote the value.
_REASON_CHARACTERS = 500
_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError)


class ColumnDecoder(Protocol):
    """Decodes the records of one column."""

    type: pa.DataType

    def decode(self, data: bytes) -> Any:
        """Return the value of a record, which fits `type`.

        Raises:
            SchemaError: The record cannot be decoded.
            RegistryError: The registry was not reached, or refused a request.
        """
        ...

    def array(self, values: list[Any]) -> pa.Array:
        """Return the array of decoded values; None is null.

        Raises:
            SchemaError: A value does not fit `type`.
        """
        try:
            return pa.array(values, type=self.type)
        except _UNFIT as error:
            raise SchemaError(
                f"the values do not fit the Arrow type: {error}"[:_REASON_CHARACTERS]
            ) from None


def decoded_array(
    decoder: ColumnDecoder,
    values: Iterable[bytes | None],
    failures: dict[int, SchemaError] | None = None,
) -> pa.Array:
    """Return the records as an array.

    Args:
        decoder: Decodes the records.
        values: The bytes of the records.
        failures: Receives the errors of records that cannot be decoded, by row; their values are
            null. None: the first error is raised.

    Raises:
        SchemaError: A record cannot be decoded, and `failures` is None.
        RegistryError: The registry was not reached, or refused a request.
    """
    decoded: list[Any] = []
    for row, data in enumerate(values):
        value = None
        if data is not None:
            try:
                value = decoder.decode(data)
            except SchemaError as error:
                if failures is None:
                    raise
                failures[row] = error
        decoded.append(value)
    try:
        return decoder.array(decoded)
    except SchemaError:
        if failures is None:
            raise
    # Arrow does not say which row does not fit.
    for row, value in enumerate(decoded):
        try:
            decoder.array([value])
        except SchemaError as error:
            failures[row] = error
            decoded[row] = None
    return decoder.array(decoded)
