"""Ask before use whether the brokers serve an API: a refusal says so, instead of a time-out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from barnabas.cli.output import EXIT_FAILED, problem

if TYPE_CHECKING:
    from barnabas.client.facade import Client
    from barnabas.protocol.api_keys import ApiKey

__all__ = ["need_api"]


def need_api(client: Client, api: ApiKey, name: str, purpose: str) -> None:
    """End the command with status 1 unless the brokers serve the API.

    Args:
        client: of the command; any of its brokers is asked.
        api: which API.
        name: of the API, as Kafka's protocol guide writes it.
        purpose: what cannot be done without it.
    """
    if api in client.admin.describe_versions().apis:
        return
    problem(
        f"{purpose} needs the API {name}, which these brokers do not serve. Apache Kafka has it "
        f"since 3.0; Barnabas does not coordinate transactions yet"
    )
    sys.exit(EXIT_FAILED)
