"""First SCRAM users of a new cluster (`kafka-storage format --add-scram`, KIP-900)."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

from barnabas.protocol.records.security import UserScramCredentialRecord
from barnabas.sasl.scram_keys import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    credential_of,
    printable_salt,
    salted_password,
)
from barnabas.settings.key import whole_number

if TYPE_CHECKING:
    from barnabas.runtime.rng import Rng

_FORM = "SCRAM-SHA-512=[name=billing,password=SECRET]"
# A value is quoted, or ends before the next comma.
_ENTRY = re.compile(r'\s*(\w+)\s*=\s*(?:"([^"]*)"|([^",]*?))\s*(?:,|$)')
_KEYS = ("name", "password", "iterations", "salt", "saltedpassword")
_SALT_BYTES = 20


class FirstUserError(Exception):
    """The text is not a valid SCRAM user. The message has the reason, without the password."""


def parse_first_user(text: str, rng: Rng) -> UserScramCredentialRecord:
    """Return the record of a user that is given as in Kafka's `--add-scram`.

    Args:
        text: MECHANISM=[name=NAME,password=PASSWORD]. `iterations` and `salt` (base64) may follow;
            `saltedpassword` (base64) may replace the password.
        rng: randomness of the salt.

    Raises:
        FirstUserError: the text does not have the form, or a value is not allowed.
    """
    name, _, rest = text.partition("=")
    mechanism = SCRAM_MECHANISMS.get(name.strip())
    rest = rest.strip()
    if mechanism is None or not (rest.startswith("[") and rest.endswith("]")):
        raise FirstUserError(f"a SCRAM user has the form {_FORM}")
    values = _values(rest[1:-1])
    if not values.get("name"):
        raise FirstUserError(f"the SCRAM user has no name; the form is {_FORM}")
    if ("password" in values) == ("saltedpassword" in values):
        raise FirstUserError("a SCRAM user has either a password or a saltedpassword")
    iterations = whole_number(values.get("iterations", str(ITERATIONS_MIN)))
    if iterations is None or not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise FirstUserError(f"iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    if "salt" in values:
        salt = _bytes("salt", values["salt"])
    elif "saltedpassword" in values:
        raise FirstUserError("a saltedpassword needs its salt")
    else:
        salt = printable_salt(rng.token(_SALT_BYTES))
    if "saltedpassword" in values:
        salted = _bytes("saltedpassword", values["saltedpassword"])
    else:
        salted = salted_password(mechanism, values["password"], salt, iterations)
    made = credential_of(mechanism, salted, salt, iterations)
    return UserScramCredentialRecord(
        name=values["name"],
        mechanism=int(mechanism),
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _ENTRY.match(text, at)
        if match is None:
            raise FirstUserError(f"a SCRAM user has the form {_FORM}; quote values with commas")
        at = match.end()
        key = match[1]
        if key not in _KEYS or key in values:
            raise FirstUserError(f"{key} is not a key of SCRAM users, or is repeated")
        values[key] = match[2] if match[2] is not None else match[3]
        if not values[key]:
            raise FirstUserError(f"{key} is empty")
    return values


def _bytes(key: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise FirstUserError(f"{key} is not base64") from None
