"""Random regular expressions: usual ones, malformed ones, and ones that are costly to compile."""

from __future__ import annotations

import random

_ATOMS = [
    "a", "b", ".", "é", "[ab]", "[^a]", "[]a]", "[[:alpha:]]", r"\pL", r"\p{Greek}", r"[^\pN]",
    r"\d", r"\W", "(a|b)", "(a|ab|abc)", "()", "(?:)", "(?i)k", r"\x{ff}", r"\Q([\E", r"\b", "^",
    "$", "(?P<n>a)", "[\u0100-\U0010ffff]",
]  # fmt: skip
_REPETITIONS = [
    "", "", "", "*", "+", "?", "*?", "{2}", "{3,10}", "{0,50}", "{100}", "{1000}", "{0,1000}",
    "{1,}", "{1001}", "{",
]  # fmt: skip
_DEPTH = 6
# A string of the protocol has fewer bytes than 32 KiB.
_BYTES_MAX = 32_000


def random_pattern(rng: random.Random) -> str:
    """Return a pattern, which is valid or not, of any size up to a string of the protocol."""
    return _random(rng).encode()[:_BYTES_MAX].decode(errors="ignore")


def _random(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.1:
        return "".join(chr(rng.choice([rng.randrange(32, 127), 0, 0xE9])) for _ in range(20))
    if kind < 0.2:
        depth = rng.choice([10, 100, 101, 4_000, 16_000])
        return "(" * depth + rng.choice(["", "a", ".*"]) + rng.choice([")", ")*", "){2}"]) * depth
    if kind < 0.3:
        atom = rng.choice(_ATOMS)
        return atom * rng.choice([10, 1_000, _BYTES_MAX // len(atom.encode())])
    return _nested(rng, rng.randrange(_DEPTH))


def _nested(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if not depth or kind < 0.25:
        return rng.choice(_ATOMS) + rng.choice(_REPETITIONS)
    inner = _nested(rng, depth - 1)
    if kind < 0.55:
        return f"({inner}){rng.choice(_REPETITIONS)}"
    if kind < 0.75:
        return f"{inner}|{_nested(rng, depth - 1)}"
    return inner * rng.choice([1, 2, 5, 20])
