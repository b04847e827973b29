"""Decides whether a sink writes in transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.api_keys import ApiKey
from barnabas.spark.clients import transactional_client
from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Container

    from barnabas.spark.options import SinkOptions

_NEEDED = (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT)


def is_transactional(options: SinkOptions, *, default: bool) -> bool:
    """Return whether to write in transactions.

    Args:
        options: the checked options.
        default: without the option exactlyOnce, whether to use transactions where brokers have
            them.

    Raises:
        OptionError: exactlyOnce=true, and the brokers have no transactions.
        ClientError: no broker responded.
    """
    if options.exactly_once is False or (options.exactly_once is None and not default):
        return False
    apis = transactional_client(options.client).admin.describe_versions().apis
    return has_transactions(options, apis)


def has_transactions(options: SinkOptions, apis: Container[int]) -> bool:
    """Return whether brokers that serve these APIs have transactions.

    Raises:
        OptionError: exactlyOnce=true, and the brokers do not have transactions.
    """
    missing = [key.name for key in _NEEDED if key not in apis]
    if missing and options.exactly_once:
        raise OptionError(
            f"exactlyOnce=true needs transactions, and the brokers at "
            f"{options.client['bootstrap.servers']} do not serve {', '.join(missing)}: use brokers "
            "with transactions. With exactlyOnce=false, tasks that Spark repeats write their rows "
            "twice"
        )
    return not missing
