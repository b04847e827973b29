"""The roles of the console's users."""

from __future__ import annotations

import enum


class Role(enum.IntEnum):
    """What a user may do; a greater role may do all that a smaller one may."""

    # Read all pages.
    VIEWER = 1
    # Change topics, groups and configs, and write messages.
    OPERATOR = 2
    # Delete, and change ACLs, users and other parts of security.
    ADMIN = 3

    @property
    def title(self) -> str:
        """The name that users read and write."""
        return self.name.lower()
