"""The APIs that begin a connection: ApiVersions, and SASL requests outside of a login.

ApiVersions (key 18, v0-5) describes the served API versions and the cluster's features. v3 adds the
client's software (KIP-511) and features (KIP-584). v4 includes features whose minimum level is 0.
v5 lets a client name the node and cluster that it expects (KIP-1242).

SaslHandshake (key 17, v0-1) and SaslAuthenticate (key 36, v0-2) are served by
`server/security/sasl` during a login. Here they arrive on a listener without SASL, or from a client
that is authenticated already. Both are ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from barnabas.metadata.metadata_version import KRAFT_VERSION
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
    SupportedFeatureKey,
)
from barnabas.server.dispatch.client_software import ClientSoftware
from barnabas.server.startup.features import SUPPORTED_FEATURES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.metadata.image import ClusterImage
    from barnabas.protocol.schema import Message
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.dispatch.served_apis import ServedApi


_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    """Builds responses from the table of served APIs and the features of the image."""

    __slots__ = ("_cluster", "_cluster_id", "_node_id", "_quorum", "_served")

    def __init__(
        self,
        cluster: ClusterView,
        cluster_id: str,
        node_id: int,
        quorum: RaftDriver,
        served: Mapping[int, ServedApi],
    ) -> None:
        self._cluster = cluster
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._quorum = quorum
        self._served = served

    def handle_api_versions(
        self, context: RequestContext, request: ApiVersionsRequest
    ) -> ApiVersionsResponse:
        """Describe the served APIs and features. An invalid software name is an INVALID_REQUEST."""
        error = self._check(context.version, request)
        if error is not ErrorCode.NONE:
            return ApiVersionsResponse(error_code=error, api_keys=[])
        if context.version >= 3:
            context.connection.session = ClientSoftware.of(
                request.client_software_name, request.client_software_version
            )
        image = self._cluster.image
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=[
                ApiVersion(api_key=key, min_version=api.first_version, max_version=api.last_version)
                for key, api in self._served.items()
            ],
            supported_features=[
                SupportedFeatureKey(
                    name=name, min_version=levels.min_level, max_version=levels.max_level
                )
                for name, levels in SUPPORTED_FEATURES.items()
                if context.version >= 4 or levels.min_level > 0
            ],
            finalized_features_epoch=image.provenance.offset,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in self._finalized(image).items()
            ],
        )

    def _finalized(self, image: ClusterImage) -> dict[str, int]:
        """Return the image's finalized levels, and kraft.version of dynamic voters (KIP-853)."""
        level = self._quorum.kraft_version
        return {**image.features.finalized, **({KRAFT_VERSION: level} if level else {})}

    def _check(self, version: int, request: ApiVersionsRequest) -> ErrorCode:
        if version < 3:
            return ErrorCode.NONE
        if not (
            _SOFTWARE.fullmatch(request.client_software_name)
            and _SOFTWARE.fullmatch(request.client_software_version)
        ):
            return ErrorCode.INVALID_REQUEST
        names_cluster, names_node = request.cluster_id is not None, request.node_id != -1
        if names_cluster != names_node:
            return ErrorCode.INVALID_REQUEST
        expected = (request.cluster_id, request.node_id)
        if names_cluster and expected != (self._cluster_id, self._node_id):
            return ErrorCode.REBOOTSTRAP_REQUIRED
        return ErrorCode.NONE


def sasl_handshake() -> Handle:
    """Return the handler that refuses a handshake."""
    return _refuse_handshake


def sasl_authenticate() -> Handle:
    """Return the handler that refuses a message of a mechanism."""
    return _refuse_message


def _refuse_handshake(_: RequestContext, __: Message) -> Message:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


def _refuse_message(_: RequestContext, __: Message) -> Message:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
