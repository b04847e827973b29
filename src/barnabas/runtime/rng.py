"""The interface to random numbers: jitter, ids and tokens."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_UUID_SIZE = 16
# Kafka prints ids in URL-safe base64, and avoids ids that begin with a dash, because command line
# tools would read them as options. An id whose first sextet is 62 is drawn again.
_DASH_SEXTET = 62


class Rng(Protocol):
    """A source of random numbers."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...

    def randint(self, low: int, high: int) -> int:
        """Return an integer in [low, high], including both ends."""
        ...

    def uuid(self) -> bytes:
        """Return a version 4 UUID of 16 bytes, whose base64 form does not begin with a dash."""
        ...

    def token(self, size: int) -> bytes:
        """Return `size` random bytes for salts, nonces and secrets."""
        ...


class _RandomNumbers:
    """Numbers from a generator, and bytes from a source of bytes."""

    def __init__(self, generator: random.Random, draw_bytes: Callable[[int], bytes]) -> None:
        self._random = generator
        self._draw_bytes = draw_bytes

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return self._random.random()

    def randint(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return self._random.randint(low, high)

    def uuid(self) -> bytes:
        """Return a version 4 UUID."""
        while True:
            value = _version_4(self._draw_bytes(_UUID_SIZE))
            if value is not None:
                return value

    def token(self, size: int) -> bytes:
        """Return random bytes."""
        return self._draw_bytes(size)


class SystemRng(_RandomNumbers):
    """Uses the system's entropy for ids and tokens, and a generator seeded from it otherwise."""

    def __init__(self) -> None:
        super().__init__(random.Random(), os.urandom)  # noqa: S311 - jitter only


class SeededRng(_RandomNumbers):
    """Returns the same numbers for the same seed on every machine, for simulations and tests."""

    def __init__(self, seed: int) -> None:
        generator = random.Random(seed)  # noqa: S311 - repeatable on purpose
        super().__init__(generator, generator.randbytes)


def _version_4(raw: bytes) -> bytes | None:
    if raw[0] >> 2 == _DASH_SEXTET:
        return None
    marked = bytearray(raw)
    marked[6] = (marked[6] & 0x0F) | 0x40
    marked[8] = (marked[8] & 0x3F) | 0x80
    return bytes(marked)
