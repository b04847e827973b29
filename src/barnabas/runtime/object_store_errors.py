"""Errors of object stores: what a failed request means, by the exception and the store's answer.

obstore has few exceptions, and keeps the status and the code of an answer in its text only. The
table below reads them. The text may have a signature or a token in the query of a URL, which is
left out.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import Enum


class StoreProblem(Enum):
    """What a failed request means for its caller."""

    # Server errors, throttling, no answer: the same request may succeed later.
    UNAVAILABLE = "unavailable"
    # Credentials, rights, the clock, or the configuration: an operator must act.
    REFUSED = "refused"
    # No space is left, or a quota is used up.
    FULL = "full"
    # The object does not exist.
    MISSING = "missing"
    # The requested range begins at or after the end of the object.
    BEYOND_END = "beyond end"


class ObjectStoreError(Exception):
    """A request to an object store failed; the message names the object and the cause."""

    def __init__(self, problem: StoreProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


class StoreOptionsError(ValueError):
    """An option or a file of credentials cannot be used; the message never has its value."""


_CLOCK = "RequestTimeTooSkewed"
_UNAVAILABLE, _REFUSED, _FULL = (
    StoreProblem.UNAVAILABLE,
    StoreProblem.REFUSED,
    StoreProblem.FULL,
)

# Codes in answers of S3, Azure, GCS and of servers that speak as S3 does.
_BY_CODE = {
    _CLOCK: _REFUSED,
    "AuthorizationHeaderMalformed": _REFUSED,
    "ContainerNotFound": _REFUSED,
    "NoSuchBucket": _REFUSED,
    "PermanentRedirect": _REFUSED,
    "InsufficientStorage": _FULL,
    "QuotaExceeded": _FULL,
    "QuotaExceededException": _FULL,
    "TotalStorageQuotaExceeded": _FULL,
    "XMinioAdminBucketQuotaExceeded": _FULL,
    "XMinioStorageFull": _FULL,
    "BadDigest": _UNAVAILABLE,
    "IncompleteBody": _UNAVAILABLE,
    "NoSuchUpload": _UNAVAILABLE,
    "OperationTimedOut": _UNAVAILABLE,
    "RequestTimeout": _UNAVAILABLE,
    "ServerBusy": _UNAVAILABLE,
    "SlowDown": _UNAVAILABLE,
    "InvalidRange": StoreProblem.BEYOND_END,
}
# What an operator can do, by code or by problem.
_ADVICE: dict[str | StoreProblem, str] = {
    "ContainerNotFound": "create the container, or correct barnabas.remote.storage",
    "NoSuchBucket": "create the bucket, or correct barnabas.remote.storage",
    "PermanentRedirect": "set the option region, or endpoint, to those of the bucket",
    "AuthorizationHeaderMalformed": "set the option region to that of the bucket",
    _REFUSED: "check the credentials, and their rights to read, write, list and delete",
    _FULL: "raise the quota, add space, or delete data by retention",
}
# Addresses of the services that give credentials to programs on machines of a cloud.
_CREDENTIAL_SERVICES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
_NO_CREDENTIALS = (
    "no credentials are configured, and the service for credentials of this machine did not answer:"
    " set barnabas.remote.credentials.file, or the environment variables of the store"
)

_DEBUG = re.compile(r"\n+Debug source.*", re.DOTALL)
_QUERY = re.compile(r"\?[^\s)\"']*")
_STATUS = re.compile(r"status code: (\d{3})([\w -]*)")
_CODE = re.compile(r"<Code>([\w.]{1,80})</Code>|\"code\": ?\"([\w.]{1,80})\"")
_MESSAGE = re.compile(r"<Message>([^<]{1,400})")
_TIMES = re.compile(
    r"<RequestTime>([^<]{1,40})</RequestTime>.*<ServerTime>([^<]{1,40})</ServerTime>", re.DOTALL
)
_RANGE = re.compile(
    r"range start too large|wanted range starting at|start offset .* beyond|outside of object",
    re.IGNORECASE,
)
_SHOWN_MAX = 400


def store_error(error: Exception, place: str) -> ObjectStoreError:
    """Return the error for an exception of obstore."""
    text = _DEBUG.sub("", str(error))
    found = _CODE.search(text)
    code = (found[1] or found[2]) if found else ""
    answer = _STATUS.search(text)
    status = int(answer[1]) if answer else 0
    problem = _problem(error, code, status, text)
    if problem is _REFUSED and any(each in text for each in _CREDENTIAL_SERVICES):
        return ObjectStoreError(problem, f"{place}: {_NO_CREDENTIALS}")
    if code == _CLOCK:
        return ObjectStoreError(problem, f"{place}: {_clock_text(text)}")
    shown = _shown(text, code, f"{answer[1]}{answer[2]}".strip() if answer else "")
    advice = _ADVICE.get(code) or _ADVICE.get(problem)
    return ObjectStoreError(problem, f"{place}: {shown}" + (f": {advice}" if advice else ""))


def _problem(error: Exception, code: str, status: int, text: str) -> StoreProblem:
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status == 416 or _RANGE.search(text):
        return StoreProblem.BEYOND_END
    if any(each in text for each in _CREDENTIAL_SERVICES):
        return _REFUSED
    name = type(error).__name__
    if isinstance(error, FileNotFoundError) or name == "NotFoundError" or status == 404:
        return StoreProblem.MISSING
    if name in ("PermissionDeniedError", "UnauthenticatedError"):
        return _REFUSED
    if status == 507:
        return _FULL
    if status in (408, 429) or status >= 500:
        return _UNAVAILABLE
    return _REFUSED if status >= 300 else _UNAVAILABLE


def _shown(text: str, code: str, status: str) -> str:
    message = _MESSAGE.search(text)
    if code:
        return " ".join(filter(None, (status, code))) + (f": {message[1]}" if message else "")
    if status:
        return f"the store answered {status}"
    return " ".join(_QUERY.sub("", text).split())[:_SHOWN_MAX] or "the store did not answer"


def _clock_text(text: str) -> str:
    """Return the difference of the clocks that an answer of S3 names."""
    advice = "set the clock of this machine"
    times = _TIMES.search(text)
    if times is None:
        return f"the clock of this machine differs too much from that of the store: {advice}"
    try:
        ours = datetime.strptime(times[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        theirs = datetime.fromisoformat(times[2])
        seconds = round((ours - theirs).total_seconds())
    except (ValueError, TypeError):
        return f"this machine's time is {times[1]}, and the store's {times[2]}: {advice}"
    side = "ahead of" if seconds > 0 else "behind"
    return f"the clock of this machine is {abs(seconds)} s {side} that of the store: {advice}"
