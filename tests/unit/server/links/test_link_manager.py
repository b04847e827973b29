"""The links of a broker follow the metadata: links that cannot be used are logged once each."""

from __future__ import annotations

import logging

import pytest

from barnabas.metadata.configs_image import ALL_BROKERS, BROKER
from barnabas.protocol.records.topics import ConfigRecord
from barnabas.replication.config import ReplicationConfig
from barnabas.replication.links.link_table import setting_name
from barnabas.server.links.link_dependencies import LinkDependencies
from barnabas.server.links.link_manager import LinkManager
from unit.replication.replica_set import ReplicaSet

LINK = "prod"
# The links of a broker are created again after ten seconds.
_LATER_MS = 25_000.0


class Broker:
    """A broker whose links cannot be created, because the client has no such key."""

    def __init__(self) -> None:
        self.set = ReplicaSet()
        # A link uses the others only after it has been created.
        self.links = LinkManager(
            LinkDependencies(
                node_id=1,
                cluster_id="here",
                config=ReplicationConfig(),
                runtime=self.set.runtime,
                wheel=self.set.wheel,
                cluster=None,
                replicas=self.set.manager,
                groups=None,
                latest=None,
                remains=None,
                auto_topics=None,
                forwarding=None,
            )
        )

    def set_link(self, key: str | None) -> None:
        """Give the link a key of a client; delete the link if it is None."""
        before = self.set.image.configs.get(BROKER, ALL_BROKERS)
        wanted = {} if key is None else {setting_name(LINK, key): "1"}
        changes = {**dict.fromkeys(before), **wanted}
        self.set.replay(
            *(
                ConfigRecord(
                    resource_type=BROKER, resource_name=ALL_BROKERS, name=name, value=value
                )
                for name, value in changes.items()
            )
        )
        self.links.on_image(self.set.image)
        self.set.world.run_for(_LATER_MS)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]


def test_the_error_of_a_link_is_logged_once_until_it_changes_or_the_link_is_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    broker.set_link("nonsense")
    (first,) = errors(caplog)
    assert f"link={LINK} error=unknown configuration key nonsense" in first

    broker.set_link("gibberish")
    assert len(errors(caplog)) == 2
    broker.set_link(None)
    broker.set_link("gibberish")
    assert len(errors(caplog)) == 3
    broker.links.close()
