"""What goes wrong in a store for tests: rules for requests, in the order in which they were made.

A rule names HTTP methods and a pattern for paths. Stores without HTTP use the same words: a write
is a PUT, a read a GET, a question for the size a HEAD, and a deletion a DELETE.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self


class Kind(StrEnum):
    """What happens to a request. After a kind that ends with "-after", the store has done it."""

    DELAY = "delay"
    # The connection ends without a response.
    CUT = "cut"
    CUT_AFTER = "cut-after"
    # An error of S3, by its code.
    ANSWER = "answer"
    # Success is reported, and nothing is done.
    LIE = "lie"
    # A read gives fewer bytes than it announces.
    TRUNCATE = "truncate"
    # One bit of what is read, or of what is stored, is another.
    FLIP = "flip"
    FLIP_UPLOAD = "flip-upload"
    # Nothing happens until the faults are healed.
    HOLD = "hold"
    HOLD_AFTER = "hold-after"


# Status codes of the errors of S3.
STATUSES = {
    "AccessDenied": 403,
    "InvalidAccessKeyId": 403,
    "SignatureDoesNotMatch": 403,
    "RequestTimeTooSkewed": 403,
    "ExpiredToken": 400,
    "NoSuchKey": 404,
    "NoSuchBucket": 404,
    "InternalError": 500,
    "SlowDown": 503,
    "ServiceUnavailable": 503,
    "InsufficientStorage": 507,
    "XMinioStorageFull": 507,
}


@dataclass(eq=False)
class Fault:
    """A rule. Tests read `hits`; the store counts them."""

    kind: Kind
    # "PUT|POST"; empty: all methods.
    methods: str = ""
    # A regular expression, searched in the decoded path with its query.
    path: str = ""
    # How many requests it applies to; None: all until it is healed.
    times: int | None = None
    # How many matching requests pass first.
    skip: int = 0
    # The error of `Kind.ANSWER`.
    code: str = ""
    # Of `Kind.DELAY`.
    seconds: float = 0.0
    # Bytes that `Kind.TRUNCATE` leaves.
    size: int = 0
    # Requests that it has met.
    hits: int = 0
    _seen: int = 0
    healed: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def slow(cls, seconds: float, **where: Any) -> Self:
        """Delay requests."""
        return cls(Kind.DELAY, seconds=seconds, **where)

    @classmethod
    def cut(cls, **where: Any) -> Self:
        """End the connection before the store gets the request."""
        return cls(Kind.CUT, **where)

    @classmethod
    def cut_after(cls, **where: Any) -> Self:
        """End the connection after the store has handled the request."""
        return cls(Kind.CUT_AFTER, **where)

    @classmethod
    def answer(cls, code: str, **where: Any) -> Self:
        """Answer with an error of S3."""
        assert code in STATUSES, code
        return cls(Kind.ANSWER, code=code, **where)

    @classmethod
    def lie(cls, **where: Any) -> Self:
        """Report that an object was stored or deleted, and do nothing."""
        return cls(Kind.LIE, **({"methods": "PUT|POST|DELETE"} | where))

    @classmethod
    def truncate(cls, size: int, **where: Any) -> Self:
        """Send only the first bytes of what is read, then end the connection."""
        return cls(Kind.TRUNCATE, size=size, **({"methods": "GET"} | where))

    @classmethod
    def flip(cls, **where: Any) -> Self:
        """Flip a bit of what is read."""
        return cls(Kind.FLIP, **({"methods": "GET"} | where))

    @classmethod
    def flip_upload(cls, **where: Any) -> Self:
        """Flip a bit of what is stored."""
        return cls(Kind.FLIP_UPLOAD, **({"methods": "PUT"} | where))

    @classmethod
    def hold(cls, **where: Any) -> Self:
        """Hold requests until the faults are healed, and drop them then."""
        return cls(Kind.HOLD, **where)

    @classmethod
    def hold_after(cls, **where: Any) -> Self:
        """Let the store handle requests, and hold their responses until the faults are healed."""
        return cls(Kind.HOLD_AFTER, **where)

    def takes(self, method: str, path: str) -> bool:
        """Return whether the rule applies to a request, and count it then."""
        if self.methods and method not in self.methods.split("|"):
            return False
        if re.search(self.path, path) is None:
            return False
        self._seen += 1
        if self._seen <= self.skip or (self.times is not None and self.hits >= self.times):
            return False
        self.hits += 1
        return True

    def fields(self) -> dict[str, Any]:
        """Return the rule without its counts, for another process."""
        names = ("kind", "methods", "path", "times", "skip", "code", "seconds", "size")
        return {name: getattr(self, name) for name in names}


class Faults:
    """The rules that are in force. The first one that takes a request decides."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Put a rule in force; return it."""
        with self._lock:
            self._rules.append(fault)
        return fault

    def heal(self) -> None:
        """Remove all rules."""
        with self._lock:
            rules, self._rules = self._rules, []
        for each in rules:
            each.healed.set()

    def of(self, method: str, path: str) -> Fault | None:
        """Return the rule that a request meets; None if it passes."""
        with self._lock:
            return next((each for each in self._rules if each.takes(method, path)), None)


def flipped(content: bytes) -> bytes:
    """Return the bytes with one other bit, in the middle."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
