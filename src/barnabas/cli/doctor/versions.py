"""Diagnosis of versions: APIs that this client needs, brokers that differ, levels of features.

A broker does not tell its software version. It tells the versions of its APIs and the levels of the
features that it supports (ApiVersions, KIP-584), which differ between releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.named_brokers import named_brokers
from barnabas.client.connections.versions import CLIENT_VERSIONS
from barnabas.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.admin.cluster import Versions
    from barnabas.client.connections.metadata_cache import NodeInfo
    from barnabas.client.facade import Client

# The APIs that a client needs.
_NEEDED = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.LIST_OFFSETS)
_METADATA = "metadata.version"
# Features that clients notice -> the effect of level 0.
_FEATURES = {
    "group.version": "consumers with group.protocol=consumer cannot join groups",
    "share.version": "share consumers cannot join groups",
    "transaction.version": "transactions use the older protocol, without the protection of KIP-890",
}


def examine_versions(client: Client, nodes: Iterable[NodeInfo], diagnosis: Diagnosis) -> None:
    """Report what the versions of the brokers prevent.

    Args:
        client: The client of the command.
        nodes: The brokers that answer.

    Raises:
        ClientError: A broker does not answer any more.
    """
    found = {node.id: client.admin.describe_versions(node.id) for node in nodes}
    for node, versions in found.items():
        _examine_apis(node, versions, diagnosis)
    if not found:
        return
    if _examine_differences(found, diagnosis):
        # A newer level waits until all brokers have the newer version.
        return
    _examine_features(list(found.values()), diagnosis)


def _examine_apis(node: int, versions: Versions, diagnosis: Diagnosis) -> None:
    unusable = []
    for api in _NEEDED:
        low, high = CLIENT_VERSIONS[api]
        served = versions.apis.get(api, (1, 0))
        if max(low, served[0]) > min(high, served[1]):
            unusable.append(f"{api.name} {served[0]}-{served[1]}")
    level = versions.finalized_features.get(_METADATA)
    metadata = "" if level is None else f", metadata.version {level}"
    if unusable:
        diagnosis.wrong(
            f"broker {node} and this client have no version in common for {', '.join(unusable)}",
            "use a broker of Apache Kafka 2.1 or later",
        )
    else:
        diagnosis.ok(f"broker {node} serves {len(versions.apis)} APIs{metadata}")


def _examine_differences(found: Mapping[int, Versions], diagnosis: Diagnosis) -> bool:
    """Report brokers of different software versions. Return whether there are some."""
    by_version: dict[object, list[int]] = {}
    for node, versions in found.items():
        features = sorted(versions.supported_features.items())
        # The configuration of a broker may add APIs, so only the versions of common ones count.
        apis = [versions.apis[api] for api in _common_apis(found.values())]
        by_version.setdefault(str((features, apis)), []).append(node)
    if len(by_version) == 1:
        return False
    kinds = []
    for nodes in by_version.values():
        _, level = found[nodes[0]].supported_features.get(_METADATA, (0, 0))
        supports = f" (metadata.version up to {level})" if level else ""
        kinds.append(f"{named_brokers(nodes)}{supports}")
    diagnosis.note(
        f"the brokers run {len(kinds)} different versions: {'; '.join(kinds)}",
        "complete the upgrade: restart the older brokers with the newer version, one after the "
        "other",
    )
    return True


def _common_apis(found: Iterable[Versions]) -> list[int]:
    return sorted(set.intersection(*(set(each.apis) for each in found)))


def _examine_features(versions: list[Versions], diagnosis: Diagnosis) -> None:
    """Report features that all brokers support, and that are off or at an older level."""
    for name, disables in _FEATURES.items():
        supported = _supported(name, versions)
        if supported > 0 and not any(each.finalized_features.get(name) for each in versions):
            diagnosis.note(
                f"the feature {name} has level 0: {disables}",
                f"to enable it: {Advice.ENABLE_FEATURE.text(feature=name, level=supported)}",
            )
    newest = _supported(_METADATA, versions)
    # A broker that has just started may not know the present level yet.
    level = max(each.finalized_features.get(_METADATA, 0) for each in versions)
    if 0 < level < newest:
        diagnosis.note(
            f"metadata.version is {level}, and all brokers support {newest}: an upgrade is not "
            "complete",
            f"if no broker has to go back to its old version: "
            f"{Advice.ENABLE_FEATURE.text(feature=_METADATA, level=newest)}",
        )


def _supported(name: str, versions: Iterable[Versions]) -> int:
    """Return the highest level that all brokers support; 0 if one lacks the feature."""
    return min((each.supported_features.get(name, (0, 0))[1] for each in versions), default=0)
