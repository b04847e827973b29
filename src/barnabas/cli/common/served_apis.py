"""A check whether the brokers serve an API, so a command fails at once instead of timing out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from barnabas.cli.common.output import EXIT_FAILED, problem

if TYPE_CHECKING:
    from barnabas.client.facade import Client
    from barnabas.protocol.api_keys import ApiKey

__all__ = ["require_api"]


def require_api(client: Client, api: ApiKey, name: str, purpose: str) -> None:
    """End the command with status 1 if the brokers do not serve the API.

    Args:
        client: The client of the command; any of its brokers receives the request.
        api: The key of the API.
        name: The name of the API in Kafka's protocol guide.
        purpose: The operation that needs the API, for the error message.
    """
    if api in client.admin.describe_versions().apis:
        return
    problem(
        f"{purpose} requires the API {name}, which these brokers do not serve; Apache "
        "Kafka serves it since version 3.0"
    )
    sys.exit(EXIT_FAILED)
