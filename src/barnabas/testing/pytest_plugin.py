"""pytest fixtures for brokers, topics, users and clusters (docs/testing.md).

pytest imports this module at every start, so it imports nothing but pytest. Each fixture imports
its own dependencies.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .broker_process import BrokerProcess, ServerProcess
    from .registry_process import RegistryProcess
    from .relayed_cluster import RelayedCluster
    from .secured import SecuredBroker

_MARKER = "kafka_topic(partitions=1, configs=None): how the fixture `kafka_topic` creates its topic"
_USERS_HELP = "users of secured fixtures, one NAME: produce TOPIC, consume TOPIC per line"
_SCOPES = ("session", "package", "module", "class", "function")
# Broker keys that the fixtures set themselves.
_OWN_KEYS = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "cluster.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
        "security.inter.broker.protocol",
    }
)
_LOG_CHARACTERS = 4000
_NAME_CHARACTERS = 150


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options for pytest.ini and pyproject.toml."""
    for name in ("kafka_broker", "kafka_cluster", "secured_kafka"):
        help_text = f"scope of the fixture {name}: {', '.join(_SCOPES)}"
        parser.addini(f"{name}_scope", help_text, default="session")
    parser.addini("schema_registry_scope", "scope of the registry", default="as kafka_broker")
    parser.addini("kafka_settings", "broker keys, one KEY=VALUE per line", type="linelist")
    parser.addini("kafka_users", _USERS_HELP, type="linelist")
    parser.addini("kafka_cluster_secured", "whether kafka_cluster has TLS and users", type="bool")
    parser.addini("kafka_barnabas", "command of a Barnabas in another environment", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker `kafka_topic`, and name the command of Barnabas for all fixtures."""
    config.addinivalue_line("markers", _MARKER)
    words = shlex.split(str(config.getini("kafka_barnabas")))
    if words:
        if "/" in words[0]:
            words[0] = str(config.rootpath / Path(words[0]).expanduser())
        # A variable that is already set names the command on this machine.
        os.environ.setdefault("KAFKA_BARNABAS", shlex.join(words))


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Keep pytest from rewriting the assertions of this package, which takes seconds.

    pytest rewrites all modules of an installed package that has a plugin, and has no public
    setting to limit this to the tests.
    """
    hook = getattr(early_config.pluginmanager, "rewrite_hook", None)
    marked = getattr(hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard(__name__.partition(".")[0])


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


def _checked(settings: dict[str, str]) -> dict[str, str]:
    """Refuse keys with which the fixtures would not work."""
    for key in _OWN_KEYS & settings.keys():
        raise pytest.UsageError(
            f"kafka_settings has {key}, which the fixtures choose themselves: each broker has free "
            "ports and its own directory, so that test runs can go on side by side. Use "
            "secured_kafka for TLS and users, and `barnabas start --temporary --port 9092` for a "
            "fixed port"
        )
    return settings


@pytest.fixture(scope="session")
def kafka_users(pytestconfig: pytest.Config) -> dict[str, dict[str, Any]]:
    """Users of secured brokers: arguments of `add_user` by name; override it in a conftest.py."""
    from .secured import parse_user

    users: dict[str, dict[str, Any]] = {}
    for line in pytestconfig.getini("kafka_users"):
        try:
            name, options = parse_user(line)
        except ValueError as error:
            raise pytest.UsageError(f"kafka_users has {line!r}: {error}") from None
        users[name] = options
    return users


@pytest.fixture(scope=_scope)
def kafka_broker(
    request: pytest.FixtureRequest, kafka_settings: dict[str, str]
) -> Iterator[BrokerProcess]:
    """A running broker as a separate process; `kafka_broker.bootstrap` is its address.

    Tests may `kill`, `pause` and `stop` it; it runs again for the next test. An indirect parameter
    is a dictionary of broker keys.
    """
    from .broker_process import BROKER_SETTINGS, BrokerProcess

    own = _checked({**kafka_settings, **getattr(request, "param", {})})
    with BrokerProcess(settings={**BROKER_SETTINGS, **own}) as broker:
        yield from _kept(request.config, "kafka_broker", broker)


@pytest.fixture(scope=_scope)
def secured_kafka(
    request: pytest.FixtureRequest,
    kafka_settings: dict[str, str],
    kafka_users: dict[str, dict[str, Any]],
) -> Iterator[SecuredBroker]:
    """A running broker with TLS, users and rights.

    The users of the option `kafka_users` are in `secured_kafka.users`. `secured_kafka.add_user`
    adds more. An indirect parameter is a dictionary of broker keys.
    """
    from .broker_process import BROKER_SETTINGS
    from .secured import SecuredBroker

    own = _checked({**kafka_settings, **getattr(request, "param", {})})
    with SecuredBroker(settings={**BROKER_SETTINGS, **own}) as broker:
        for name, options in kafka_users.items():
            broker.add_user(name, **options)
        yield from _kept(request.config, "secured_kafka", broker)


@pytest.fixture(scope=_scope)
def kafka_cluster(
    request: pytest.FixtureRequest,
    kafka_settings: dict[str, str],
    kafka_users: dict[str, dict[str, Any]],
) -> Iterator[RelayedCluster]:
    """Three running brokers whose nodes and links can fail; the next test finds them restored.

    An indirect parameter is the number of brokers, or a dictionary with `brokers`, `controllers`,
    `settings` and `secured`, all optional. With `secured`, it is a `SecuredCluster`.
    """
    from .broker_process import CLUSTER_SETTINGS
    from .relayed_cluster import RelayedCluster
    from .secured import SecuredCluster

    given = getattr(request, "param", {})
    options: dict[str, Any] = {"brokers": given} if isinstance(given, int) else dict(given)
    own = _checked({**kafka_settings, **options.pop("settings", {})})
    is_secured = options.pop("secured", request.config.getini("kafka_cluster_secured"))
    kind = SecuredCluster if is_secured else RelayedCluster
    with kind(**options, settings={**CLUSTER_SETTINGS, **own}) as cluster:
        if isinstance(cluster, SecuredCluster):
            for name, rights in kafka_users.items():
                cluster.add_user(name, **rights)
        yield from _kept(request.config, "kafka_cluster", cluster)


@pytest.fixture(scope=_scope)
def schema_registry(
    request: pytest.FixtureRequest, kafka_broker: BrokerProcess
) -> Iterator[RegistryProcess]:
    """A running schema registry beside `kafka_broker`; `schema_registry.url` is its URL.

    Tests may `kill`, `pause` and `stop` it; it runs again for the next test.
    """
    from .registry_process import RegistryProcess

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
