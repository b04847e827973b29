"""DescribeConfigs (key 32, v0-4) and ListConfigResources (key 74, v0-1): read configurations.

DescribeConfigs lists the keys of resources. v0 returns only whether a value is the default, v1
source and synonyms (KIP-226), v3 types and documentation (KIP-569).

ListConfigResources lists the resources that have configurations (KIP-714, KIP-1142). v0 lists only
client metrics subscriptions. v1 takes resource types, and an empty list means all types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.config_rules import ConfigSource
from barnabas.controller.topic_names import problem_of
from barnabas.metadata.configs_image import (
    ALL_BROKERS,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas.server.configs.config_admin import names_broker
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.configs.described_configs import DescribedConfig, DescribedConfigs
    from barnabas.server.dispatch.request import Handle, RequestContext


Refusal = tuple[ErrorCode, str]

# Resource types that have configurations.
_KINDS = {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP}


class DescribeConfigsHandler:
    """Builds responses from key declarations, the static configuration and the metadata image."""

    __slots__ = ("_cluster", "_configs", "_node_id")

    def __init__(
        self, cluster: ClusterView, described_configs: DescribedConfigs, node_id: int
    ) -> None:
        self._cluster = cluster
        self._configs = described_configs
        self._node_id = node_id

    def handle_describe_configs(
        self,
        context: RequestContext,
        request: DescribeConfigsRequest,
    ) -> DescribeConfigsResponse | None:
        """Describe each resource, with an error of its own."""
        return context.in_slices(self._build_response(context.version, request))

    def _build_response(
        self, version: int, request: DescribeConfigsRequest
    ) -> Generator[None, None, DescribeConfigsResponse]:
        unknown = {each.resource_type for each in request.resources} - _KINDS
        if unknown:
            # Kafka rejects the whole request before it describes any resource.
            message = f"resources of type {min(unknown)} have no configs"
            results = yield from gradually(
                _refused(each, (ErrorCode.INVALID_REQUEST, message)) for each in request.resources
            )
        else:
            results = yield from self._describe_all(request)
        if version == 0:
            for result in results:
                for config in result.configs:
                    config.is_default = config.config_source == ConfigSource.DEFAULT
                yield
        return DescribeConfigsResponse(results=results)

    def _describe_all(
        self, request: DescribeConfigsRequest
    ) -> Generator[None, None, list[DescribeConfigsResult]]:
        """Return one result per resource. A repeated resource gets the same result again."""
        described: dict[tuple[int, str, tuple[str, ...]], DescribeConfigsResult] = {}
        results: list[DescribeConfigsResult] = []
        for resource in request.resources:
            keys = tuple(resource.configuration_keys or ())
            requested = (resource.resource_type, resource.resource_name, keys)
            result = described.get(requested)
            if result is None:
                result = described[requested] = self._describe(resource, request)
            results.append(result)
            yield
        return results

    def _describe(
        self, resource: DescribeConfigsResource, request: DescribeConfigsRequest
    ) -> DescribeConfigsResult:
        listed = self._find(resource.resource_type, resource.resource_name)
        if isinstance(listed, tuple):
            return _refused(resource, listed)
        keys = frozenset(resource.configuration_keys or ())
        return DescribeConfigsResult(
            error_code=ErrorCode.NONE,
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[_shown(each, request) for each in listed if not keys or each.name in keys],
        )

    def _find(self, resource_type: int, name: str) -> Iterable[DescribedConfig] | Refusal:
        if resource_type == TOPIC:
            if problem_of(name) is not None:
                return ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a valid topic name."
            if self._cluster.topic_id(name) is None:
                # Kafka sends no error message in this case.
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""
            return self._configs.topic(name)
        refusal = self._problem_of(resource_type, name)
        if refusal is not None:
            return refusal
        if resource_type == BROKER:
            own = name != ALL_BROKERS
            return self._configs.broker() if own else self._configs.default_broker()
        if resource_type == BROKER_LOGGER:
            return self._configs.loggers()
        if resource_type == CLIENT_METRICS:
            return self._configs.client_metrics(name)
        return self._configs.group(name)

    def _problem_of(self, resource_type: int, name: str) -> Refusal | None:
        """Return why the resource cannot be described. A broker describes only itself."""
        invalid = ErrorCode.INVALID_REQUEST
        if not name and resource_type != BROKER:
            return invalid, "the name of the resource is empty"
        if resource_type in (BROKER, BROKER_LOGGER) and not (
            name == ALL_BROKERS or names_broker(name, self._node_id)
        ):
            return invalid, f"this is broker {self._node_id}, which cannot describe broker {name!r}"
        return None


def _refused(resource: DescribeConfigsResource, refusal: Refusal) -> DescribeConfigsResult:
    error, message = refusal
    return DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _shown(
    config: DescribedConfig, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    synonyms = []
    if request.include_synonyms:
        synonyms = [
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in config.values
        ]
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_sensitive=config.sensitive,
        synonyms=synonyms,
        config_type=config.type,
        # Loggers have an empty documentation, regardless of the request.
        documentation=config.doc if request.include_documentation or not config.doc else None,
    )


_TYPES = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def list_config_resources(cluster: ClusterView) -> Handle:
    """Return the handler that lists configuration resources."""

    def handle_list_config_resources(
        context: RequestContext, request: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse | None:
        """List the resources of the requested types. An unknown type is UNSUPPORTED_VERSION.

        Topics and brokers are listed even if they have no configuration values.
        """
        requested: Sequence[int] = request.resource_types or _TYPES
        if context.version == 0:
            requested = (CLIENT_METRICS,)
        if not set(requested) <= set(_TYPES):
            return ListConfigResourcesResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
            )
        return context.in_slices(build_response(sorted(set(requested))))

    def build_response(kinds: list[int]) -> Generator[None, None, ListConfigResourcesResponse]:
        resources = yield from gradually(
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in kinds
            for name in names(kind)
        )
        return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=resources)

    def names(kind: int) -> list[str]:
        image = cluster.image
        if kind == TOPIC:
            return list(image.topics.names())
        if kind in (BROKER, BROKER_LOGGER):
            return [str(broker_id) for broker_id in image.brokers]
        return [name for found, name, _ in image.configs if found == kind]

    return handle_list_config_resources
