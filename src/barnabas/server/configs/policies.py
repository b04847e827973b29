"""Loads the policies of the controller by the names of their Python classes."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from barnabas.controller.config import ALTER_CONFIG_POLICY, CREATE_TOPIC_POLICY
from barnabas.policies import AlterConfigPolicy, CreateTopicPolicy, Policy
from barnabas.settings.definition import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.settings.definition import ParsedConfig

_log = logging.getLogger(__name__)

_QUOTA_CALLBACK = "client.quota.callback.class"


def check_policies(config: ParsedConfig, given: Mapping[str, str]) -> None:
    """Refuse class names that are not names of Python classes; does not load the classes.

    Raises:
        ConfigError: a policy has the name of a Java class, or quotas have a callback.
    """
    for key in (CREATE_TOPIC_POLICY, ALTER_CONFIG_POLICY):
        name = config.optional_string(key)
        if name:
            _parts(key, name)
    callback = given.get(_QUOTA_CALLBACK, "").strip()
    if callback:
        allowed = (
            "nothing: this broker cannot load Java classes, and would not enforce the quotas of the"
            " class. Remove the key, and set quotas by `barnabas configs set user` or"
            " kafka-configs.sh"
        )
        raise ConfigError(_QUOTA_CALLBACK, callback, allowed)


def has_policies(config: ParsedConfig) -> bool:
    """Return whether any policy is configured, which may have keys of its own."""
    return any(config.optional_string(key) for key in (CREATE_TOPIC_POLICY, ALTER_CONFIG_POLICY))


def load_create_topic_policy(
    config: ParsedConfig, given: Mapping[str, str]
) -> CreateTopicPolicy | None:
    """Import, create and configure the policy for topics; return None if its key is not set.

    Args:
        config: the configuration of the node.
        given: all given properties, for the policy.

    Raises:
        ConfigError: the class cannot be imported or is no such policy, or its constructor or
            `configure` failed.
    """
    policy = _load(config, CREATE_TOPIC_POLICY, CreateTopicPolicy, given)
    assert policy is None or isinstance(policy, CreateTopicPolicy), policy
    return policy


def load_alter_config_policy(
    config: ParsedConfig, given: Mapping[str, str]
) -> AlterConfigPolicy | None:
    """Import, create and configure the policy for configs, like the policy for topics."""
    policy = _load(config, ALTER_CONFIG_POLICY, AlterConfigPolicy, given)
    assert policy is None or isinstance(policy, AlterConfigPolicy), policy
    return policy


def close_policy(policy: Policy) -> None:
    """Close a policy; log its exception, so that the node stops nevertheless."""
    try:
        policy.close()
    except Exception:  # noqa: BLE001 - foreign code
        _log.exception("Policy cannot be closed: policy=%s", type(policy).__qualname__)


def _load(
    config: ParsedConfig, key: str, interface: type, given: Mapping[str, str]
) -> Policy | None:
    """Return the policy that a key names, as an instance of `interface`."""
    name = config.optional_string(key)
    if not name:
        return None
    module, attribute = _parts(key, name)
    try:
        found: object = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        allowed = (
            "a class that Python can import: install its package beside barnabas, or name its"
            f" folder in PYTHONPATH ({type(error).__name__}: {error})"
        )
        raise ConfigError(key, name, allowed) from error
    if not (isinstance(found, type) and issubclass(found, interface)):
        allowed = f"a class that extends barnabas.{interface.__name__}"
        raise ConfigError(key, name, allowed)
    try:
        policy: object = found()
        assert isinstance(policy, Policy), policy
        policy.configure(dict(given))
    except Exception as error:
        allowed = f"a class that can be configured ({type(error).__name__}: {error})"
        raise ConfigError(key, name, allowed) from error
    return policy


def _parts(key: str, name: str) -> tuple[str, str]:
    """Return module and class of `package.module:Class`.

    Raises:
        ConfigError: the name has another form, such as that of a Java class.
    """
    module, colon, attribute = name.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        allowed = (
            "package.module:Class, a Python class (this broker cannot load Java classes:"
            " docs/security.md shows how to write the policy in Python)"
        )
        raise ConfigError(key, name, allowed)
    return module, attribute
