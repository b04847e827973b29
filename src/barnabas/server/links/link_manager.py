"""The links of a broker, kept in step with the metadata.

The leader of each mirror partition fetches it, so the work of a link is spread over the brokers,
and the election of another leader moves it. Group offsets are copied by their coordinators. Topics
are created by one broker (`mirror_topics`).

Most brokers have no links, so the first link imports the client, which takes 150 ms. A thread does
it: between its steps, it passes the interpreter lock to the event loop after at most 5 ms.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.metadata.configs_image import ALL_BROKERS, BROKER
from barnabas.replication.links.link_table import (
    LINK_PREFIX,
    LinkTable,
    MirrorState,
    read_links,
)
from barnabas.replication.links.mirror_gauges import link_families

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.metadata.image import ClusterImage
    from barnabas.metrics.registry import MetricFamily
    from barnabas.replication.partition.partition_registry import LeadershipChanges
    from barnabas.server.links.link import Link
    from barnabas.server.links.link_dependencies import LinkDependencies
    from barnabas.server.links.promotions import Promotions
    from barnabas.waiting.timing_wheel import WheelEntry

_log = logging.getLogger(__name__)

# Interval of the checks for errors, for moved leaders and for stopped mirrors.
_CHECK_MS = 500.0
# Delay after a failed import, for example without a free file descriptor, and after a link could
# not be created, for example without the file of its key store.
_RETRY_MS = 10_000.0


class LinkManager:
    """All links of this broker."""

    def __init__(self, dependencies: LinkDependencies) -> None:
        self._dependencies = dependencies
        self.table = LinkTable({}, {})
        # Topics that only their links write to.
        self._read_only: set[str] = set()
        # Those of them that become ordinary topics.
        self._promoting: frozenset[str] = frozenset()
        # Created with the first promotion.
        self._promotions: Promotions | None = None
        # The configs that the table was read from.
        self._configs: Mapping[str, str] = {}
        # Links without a problem, by name.
        self.links: dict[str, Link] = {}
        # The class of links; None until it is imported. A thread imports it for the first link.
        self._link_class: type[Link] | None = None
        self._is_importing = False
        # The error of each link that could not be created, as it was logged.
        self._logged: dict[str, str] = {}
        # Timer of the next attempt to create links; None if none is missing.
        self._retry: WheelEntry | None = None
        self._entry: WheelEntry | None = None
        self._is_closed = False

    def on_image(self, image: ClusterImage) -> None:
        """Read changed links. Called before the leaders of new partitions can be written to."""
        configs = image.configs.get(BROKER, ALL_BROKERS)
        if configs is self._configs:
            return
        self._configs = configs
        if not self.table.links and not any(each.startswith(LINK_PREFIX) for each in configs):
            return
        before = self._read_only
        self.table = read_links(configs)
        mirrors = self.table.mirrors.items()
        self._read_only = {name for name, each in mirrors if each.is_read_only}
        self._promoting = frozenset(
            name for name, each in mirrors if each.state is MirrorState.PROMOTING
        )
        ended = before - self._read_only
        if self._promoting or ended:
            # A leader may report that nothing of the source is left only when it has stopped.
            for link in self.links.values():
                link.stop_mirrors(self._promoting | ended)
        self._dependencies.replicas.set_read_only_topics(self._read_only, self._promoting)
        self._update_links()
        if ended:
            self._find_promotions().end_at_once(image, ended)
        self._check_soon()

    def on_changes(self, changes: LeadershipChanges) -> None:
        """Fetch the mirrors that this broker leads now."""
        if self.links and (changes.leaders or changes.followers or changes.deleted):
            self._check_soon()

    def families(self) -> Iterator[MetricFamily]:
        """Yield the metrics of the links."""
        fetchers = {name: link.fetchers for name, link in self.links.items()}
        return link_families(self.table, fetchers, self._dependencies.runtime.clock.wall_ms())

    def close(self) -> None:
        """Stop all links."""
        self._is_closed = True
        for entry in (self._entry, self._retry):
            if entry is not None:
                entry.cancel()
        for link in self.links.values():
            link.close()
        self.links.clear()

    def _find_promotions(self) -> Promotions:
        if self._promotions is None:
            # Imported only on brokers with links.
            from barnabas.server.links.promotions import Promotions

            self._promotions = Promotions(self._dependencies)
        return self._promotions

    def _update_links(self) -> None:
        defined = self.table.links
        for name in self._logged.keys() - defined.keys():
            del self._logged[name]
        for name, link in list(self.links.items()):
            if name not in defined or defined[name].client != link.definition.client:
                del self.links[name]
                link.close()
        for name, definition in defined.items():
            if name in self.links:
                self.links[name].definition = definition
                self.links[name].has_new_table = True
                continue
            if definition.problem:
                _log.error("Link cannot be used: link=%s error=%s", name, definition.problem)
        self._make_links()

    def _make_links(self) -> None:
        """Create the links that are missing, unless they have problems. The first follow later."""
        missing = [
            each
            for name, each in self.table.links.items()
            if name not in self.links and not each.problem
        ]
        if not missing:
            return
        if self._link_class is None:
            self._import_link()
            return
        from barnabas.client.errors import ClientConfigError

        for definition in missing:
            name = definition.name
            try:
                self.links[name] = self._link_class(definition, self._dependencies)
                self._logged.pop(name, None)
            except AssertionError:
                raise
            except Exception as error:  # noqa: BLE001 - a faulty link must not stop others
                self._retry_later()
                if self._logged.get(name) != str(error):
                    self._logged[name] = str(error)
                    cause = None if isinstance(error, ClientConfigError) else error
                    text = "Link cannot be used, retrying: link=%s error=%s"
                    _log.error(text, name, error, exc_info=cause)
        self._check_soon()

    def _retry_later(self) -> None:
        if self._retry is None:
            self._retry = self._dependencies.wheel.add(_RETRY_MS, self._make_again)

    def _make_again(self) -> None:
        self._retry = None
        if not self._is_closed:
            self._make_links()

    def _import_link(self) -> None:
        if not (self._is_importing or self._is_closed):
            self._is_importing = True
            self._dependencies.runtime.executor.submit(_load_link_class, self._on_imported)

    def _on_imported(self, link_class: type[Link] | None, error: BaseException | None) -> None:
        """Create the links that wait for the import, or repeat it later."""
        self._is_importing = False
        if self._is_closed:
            return
        if link_class is None:
            _log.error("Modules of links cannot be imported, retrying: error=%s", error)
            self._retry_later()
            return
        self._link_class = link_class
        self._make_links()

    def _check_soon(self) -> None:
        """Check the links, whose mirrors or their leaders may have changed."""
        for link in self.links.values():
            link.has_new_leaders = True
        if self._entry is not None:
            self._entry.cancel()
        if not self._is_closed:
            self._entry = self._dependencies.wheel.add(0, self._check)

    def _check(self) -> None:
        self._entry = None
        if self._is_closed or not (self.links or self._promoting):
            return
        self._entry = self._dependencies.wheel.add(_CHECK_MS, self._check)
        manages_topics = self._manages_topics
        if self._promoting:
            self._find_promotions().check(self.table, manages_topics=manages_topics)
        for link in self.links.values():
            try:
                link.check(self.table, manages_topics=manages_topics)
            except AssertionError:
                raise
            except Exception:  # noqa: BLE001 - a faulty link must not stop others
                _log.exception("Unexpected error in a link: link=%s", link.definition.name)

    @property
    def _manages_topics(self) -> bool:
        """Whether this broker is the one that creates topics for links."""
        brokers = self._dependencies.cluster.image.brokers
        live = [each.id for each in brokers.values() if not each.fenced]
        return bool(live) and min(live) == self._dependencies.node_id


def _load_link_class() -> type[Link]:
    from barnabas.server.links.link import Link

    return Link
