"""The client's keys of a query, which hide secrets when they are shown.

Spark pickles them for its workers, and may show them in errors and logs.
"""

from __future__ import annotations

from barnabas.client.config import is_secret

# Spark's replacement for secrets.
HIDDEN = "*********(redacted)"


class ClientOptions(dict[str, str]):
    """Values by key of the client; the text form has no passwords, private keys or tokens."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the text form of a dictionary with all secrets replaced."""
        return repr({key: HIDDEN if is_secret(key) else value for key, value in self.items()})

    __str__ = __repr__
