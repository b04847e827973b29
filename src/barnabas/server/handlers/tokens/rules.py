"""Checks of every request for delegation tokens, on brokers and controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.server.dispatch.request import RequestContext


def may_use_tokens(context: RequestContext) -> bool:
    """Return whether the client has authenticated, and not by a token.

    A token can thus not be used to get another one, which would outlive it.
    """
    return context.is_authenticated and not context.principal.is_token
