"""Changes of configurations that the controller makes, and the response for all resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.server.configs.config_admin import merge_results

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.schema import Message
    from barnabas.server.configs.config_admin import Outcomes
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.dispatch.request import RequestContext


def forward_changes(
    context: RequestContext,
    request: Any,
    response_class: type[Any],
    result_class: type[Any],
    forwarding: ControllerAccess,
    outcomes: Outcomes,
) -> None:
    """Send the resources without an outcome to the controller, and respond for all of them.

    Args:
        context: the context of the request.
        request: an AlterConfigs or IncrementalAlterConfigs request.
        response_class: class of the API's response.
        result_class: class of the API's result for a resource.
        forwarding: sends requests to the active controller.
        outcomes: outcomes of the resources that are not forwarded.
    """

    def build(forwarded: list[Any]) -> Generator[None, None, Message]:
        responses = yield from merge_results(result_class, request.resources, outcomes, forwarded)
        response: Message = response_class(responses=responses)
        return response

    rest = [each for index, each in enumerate(request.resources) if index not in outcomes]
    if not rest:
        context.respond_in_slices(build([]))
        return
    forwarding.send(
        type(request)(resources=rest, validate_only=request.validate_only),
        lambda response: context.respond_in_slices(build(response.responses)),
        client_context=context,
    )
