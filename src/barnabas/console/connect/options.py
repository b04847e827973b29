"""The options --connect and --connect-config of `barnabas console`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.common.output import option_record
from barnabas.cli.common.profiles import file_settings
from barnabas.console.connect.addresses import connect_of_clusters, connect_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.console.connect.rest import ConnectSettings


class ConnectOptions(NamedTuple):
    """The values of the options."""

    connect_clusters: Sequence[str]
    connect_config: str | None

    def settings(
        self, clusters: Sequence[str], further: Sequence[str] = ()
    ) -> dict[str, tuple[ConnectSettings, ...]]:
        """Return the Connect clusters by cluster; those of the only cluster have the name "".

        Args:
            clusters: The names of several clusters; empty if there is one only.
            further: Values as those of --connect, from profiles and properties files.

        Raises:
            click.UsageError: A value is malformed, or a file cannot be read.
        """
        given, file = (*self.connect_clusters, *further), self.connect_config
        properties = file_settings(file) if file else {}
        try:
            if not clusters:
                return {"": connect_settings(given, properties)}
            return connect_of_clusters(given, properties, clusters)
        except ValueError as error:
            raise click.UsageError(f"Kafka Connect: {error}") from None
        except OSError as error:
            raise click.UsageError(f"Kafka Connect: a file cannot be read: {error}") from None


connect_options = option_record(
    "connect",
    ConnectOptions,
    click.option(
        "--connect",
        "connect_clusters",
        multiple=True,
        metavar="NAME=URL",
        help="Show this cluster of Kafka Connect too; may be repeated. Write CLUSTER/NAME=URL with "
        "--cluster.",
    ),
    click.option(
        "--connect-config",
        "connect_config",
        metavar="FILE",
        help="A properties file with log-ins to Connect: NAME.basic.auth.user.info=USER:PASSWORD, "
        "NAME.bearer.auth.token, NAME.ssl.ca.location, NAME.ssl.certificate.location, "
        "NAME.ssl.key.location.",
    ),
)
