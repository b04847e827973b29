"""pytest fixtures `kafka_broker`, `kafka_topic` and `kafka_cluster` (docs/testing.md).

pytest imports this module at every start, so it imports nothing but pytest. Each fixture imports
its own dependencies.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.testing.broker_process import BrokerProcess, ServerProcess
    from barnabas.testing.registry_process import RegistryProcess
    from barnabas.testing.relayed_cluster import RelayedCluster

_MARKER = "kafka_topic(partitions=1, configs=None): how the fixture `kafka_topic` creates its topic"
_SCOPES = ("session", "package", "module", "class", "function")
_LOG_CHARACTERS = 4000
_NAME_CHARACTERS = 150


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options for pytest.ini and pyproject.toml."""
    for name, what in (("kafka_broker", "the broker"), ("kafka_cluster", "the cluster")):
        parser.addini(f"{name}_scope", f"scope of {what}: {', '.join(_SCOPES)}", default="session")
    parser.addini("schema_registry_scope", "scope of the registry", default="as kafka_broker")
    parser.addini("kafka_settings", "broker keys, one KEY=VALUE per line", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker `kafka_topic`."""
    config.addinivalue_line("markers", _MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Keep pytest from rewriting the assertions of this package, which takes seconds.

    pytest rewrites all modules of an installed package that has a plugin, and has no public
    setting to limit this to the tests.
    """
    hook = getattr(early_config.pluginmanager, "rewrite_hook", None)
    marked = getattr(hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("barnabas")


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    scope = str(config.getini(f"{fixture_name}_scope")).strip()
    if scope == "as kafka_broker":
        return _scope("kafka_broker", config)
    if scope not in _SCOPES:
        raise pytest.UsageError(
            f"{fixture_name}_scope is {scope!r}, but must be one of {', '.join(_SCOPES)}"
        )
    return scope


class _Restorer:
    """Restores a broker or cluster after each test, and adds its log to the report of a failure.

    The fixture registers it as a plugin during its lifetime.
    """

    def __init__(self, name: str, server: ServerProcess | RelayedCluster) -> None:
        self._name = name
        self._server = server

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Any:
        """Undo faults before other fixtures of the test end: a client could wait forever."""
        failure: RuntimeError | None = None
        try:
            self._server.restore()
        except RuntimeError as error:
            failure = error
        result = yield
        if failure is not None:
            raise failure
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Any:
        """Add the log to the report of a failed test."""
        report = yield
        if report.failed and call.when == "call":
            log = self._server.log()[-_LOG_CHARACTERS:]
            if log:
                report.sections.append((f"Log of {self._name}", log))
        return report


@pytest.fixture(scope="session")
def kafka_settings(pytestconfig: pytest.Config) -> dict[str, str]:
    """Broker keys for `kafka_broker` and `kafka_cluster`; override this in a conftest.py."""
    settings: dict[str, str] = {}
    for line in pytestconfig.getini("kafka_settings"):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise pytest.UsageError(f"kafka_settings requires lines KEY=VALUE, not {line!r}")
        settings[key.strip()] = value.strip()
    return settings


@pytest.fixture(scope=_scope)
def kafka_broker(
    request: pytest.FixtureRequest, kafka_settings: dict[str, str]
) -> Iterator[BrokerProcess]:
    """A running broker as a separate process; `kafka_broker.bootstrap` is its address.

    Tests may `kill`, `pause` and `stop` it; it runs again for the next test. An indirect parameter
    is a dictionary of broker keys.
    """
    from barnabas.testing.broker_process import BROKER_SETTINGS, BrokerProcess

    settings = {**BROKER_SETTINGS, **kafka_settings, **getattr(request, "param", {})}
    with BrokerProcess(settings=settings) as broker:
        yield from _kept(request.config, "kafka_broker", broker)


@pytest.fixture(scope=_scope)
def kafka_cluster(
    request: pytest.FixtureRequest, kafka_settings: dict[str, str]
) -> Iterator[RelayedCluster]:
    """Three running brokers whose nodes and links can fail; the next test finds them restored.

    An indirect parameter is the number of brokers, or a dictionary with `brokers`, `controllers`
    and `settings`, all optional.
    """
    from barnabas.testing.broker_process import CLUSTER_SETTINGS
    from barnabas.testing.relayed_cluster import RelayedCluster

    given = getattr(request, "param", {})
    options: dict[str, Any] = {"brokers": given} if isinstance(given, int) else dict(given)
    own = options.pop("settings", {})
    settings = {**CLUSTER_SETTINGS, **kafka_settings, **own}
    with RelayedCluster(**options, settings=settings) as cluster:
        yield from _kept(request.config, "kafka_cluster", cluster)


@pytest.fixture(scope=_scope)
def schema_registry(
    request: pytest.FixtureRequest, kafka_broker: BrokerProcess
) -> Iterator[RegistryProcess]:
    """A running schema registry beside `kafka_broker`; `schema_registry.url` is its URL.

    Tests may `kill`, `pause` and `stop` it; it runs again for the next test.
    """
    from barnabas.testing.registry_process import RegistryProcess

    # The broker's directory goes with the broker, even if pytest is killed.
    directory = kafka_broker.directory / "registry"
    with RegistryProcess(kafka_broker.bootstrap, directory) as registry:
        yield from _kept(request.config, "schema_registry", registry)


def _kept(config: pytest.Config, name: str, server: Any) -> Iterator[Any]:
    keeper = _Restorer(name, server)
    config.pluginmanager.register(keeper)
    try:
        yield server
    finally:
        config.pluginmanager.unregister(keeper)


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_broker: BrokerProcess) -> str:
    """The name of a new, empty topic of `kafka_broker` with one partition.

    `@pytest.mark.kafka_topic(partitions=3, configs={"retention.ms": "1000"})` changes this.
    """
    marker = request.node.get_closest_marker("kafka_topic")
    options = {} if marker is None else marker.kwargs
    if marker is not None and (marker.args or not set(options) <= {"partitions", "configs"}):
        raise pytest.UsageError("the marker kafka_topic takes partitions=... and configs=...")
    words = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:_NAME_CHARACTERS].strip("-")
    name = f"{words}-{os.urandom(4).hex()}"
    kafka_broker.create_topic(name, options.get("partitions", 1), options.get("configs"))
    return name
