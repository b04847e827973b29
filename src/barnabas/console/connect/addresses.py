"""The Connect clusters of a console: --connect NAME=URL, and the log-ins of --connect-config."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from barnabas.console.connect.rest import ConnectSettings
from barnabas.runtime import web

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAME = re.compile(r"[\w.-]{1,60}")
_USER, _TOKEN = "basic.auth.user.info", "bearer.auth.token"
_CA, _CERTIFICATE, _KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
_KEYS = (_USER, _TOKEN, _CA, _CERTIFICATE, _KEY)


def connect_settings(
    given: Sequence[str], properties: Mapping[str, str]
) -> tuple[ConnectSettings, ...]:
    """Return the Connect clusters in the order of the command line.

    Args:
        given: Values NAME=URL.
        properties: Keys NAME.KEY, such as local.basic.auth.user.info, with their values.

    Raises:
        ValueError: A value is malformed, a name occurs twice, or a key is unknown.
        OSError: A file of TLS cannot be read.
    """
    urls = {}
    for each in given:
        name, _, url = each.partition("=")
        if not url or not _NAME.fullmatch(name):
            raise ValueError(f"{each}: write NAME=URL, such as local=http://127.0.0.1:8083")
        if name in urls:
            raise ValueError(f"two Connect clusters have the name {name}")
        urls[name] = _base(url)
    known = {f"{name}.{key}" for name in urls for key in _KEYS}
    for key in properties:
        if key not in known:
            raise ValueError(f"{key} is unknown: write NAME.KEY with one of {', '.join(_KEYS)}")
    return tuple(_settings(name, url, properties) for name, url in urls.items())


def connect_of_clusters(
    given: Sequence[str], properties: Mapping[str, str], clusters: Sequence[str]
) -> dict[str, tuple[ConnectSettings, ...]]:
    """Return the Connect clusters of each of several clusters.

    Args:
        given: Values CLUSTER/NAME=URL.
        properties: Keys CLUSTER/NAME.KEY with their values.
        clusters: The names of the clusters.

    Raises:
        ValueError: As `connect_settings`, or there is no such cluster.
        OSError: A file of TLS cannot be read.
    """
    addresses: dict[str, list[str]] = {name: [] for name in clusters}
    settings: dict[str, dict[str, str]] = {name: {} for name in clusters}
    for each in given:
        cluster, _, address = each.partition("/")
        if cluster not in addresses:
            raise ValueError(f"{each}: write CLUSTER/NAME=URL with a name of --cluster")
        addresses[cluster].append(address)
    for key, value in properties.items():
        cluster, _, rest = key.partition("/")
        if cluster not in settings:
            raise ValueError(f"{key}: write CLUSTER/NAME.KEY with a name of --cluster")
        settings[cluster][rest] = value
    return {name: connect_settings(addresses[name], settings[name]) for name in clusters}


def _base(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the URL of a Connect cluster is http://HOST:PORT or https://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "other users of this machine can read a password in a URL: write it into the file of "
            f"--connect-config as NAME.{_USER}=USER:PASSWORD"
        )
    return url.rstrip("/")


def _settings(name: str, url: str, properties: Mapping[str, str]) -> ConnectSettings:
    def setting(key: str) -> str:
        return properties.get(f"{name}.{key}", "")

    try:
        headers = web.authorization(setting(_USER), setting(_TOKEN))
    except ValueError as error:
        raise ValueError(f"Connect cluster {name}: {error}") from None
    files = (setting(key) or None for key in (_CA, _CERTIFICATE, _KEY))
    return ConnectSettings(name, url, headers, web.client_context(*files))
