"""Creating and deleting access control entries (CreateAcls API 30, DeleteAcls API 31; KIP-140).

Each entry of a request has its own result. An entry that exists is created with success and without
a record. Deletions of one request are in one batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.result import ControllerResult, Refusal
from barnabas.metadata.acl_decision import HostRangeError, is_range, parse_range
from barnabas.metadata.acls import Acl, AclFilter
from barnabas.metadata.metadata_version import has_host_ranges
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.security import (
    AclCreationResult,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from barnabas.protocol.records.security import (
    RemoveAccessControlEntryRecord,
)
from barnabas.protocol.resources import (
    CLUSTER_NAME,
    WILDCARD,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from barnabas.waiting.steps import gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.acls import AclsImage
    from barnabas.protocol.messages.security import (
        AclCreation,
        CreateAclsRequest,
        DeleteAclsRequest,
    )
    from barnabas.runtime.rng import Rng


# Kafka's maximum number of entries that one request deletes.
DELETED_MAX = 10_000
# Maximum number of entries that the filters of one request are compared with. A request near the
# limit takes seconds.
COMPARED_MAX = 5_000_000
_COMPARED_AT_ONCE = 100

_DISABLED = Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
_TOO_MANY_DELETED = Refusal(
    ErrorCode.INVALID_REQUEST,
    f"Cannot remove more than {DELETED_MAX} acls in a single delete operation.",
)
_TOO_MANY_COMPARED = Refusal(
    ErrorCode.INVALID_REQUEST,
    f"the filters of one request may be compared with {COMPARED_MAX} entries; send fewer filters",
)


class AclControl:
    """Handles changes of access control entries and returns the resulting records."""

    def __init__(self, rng: Rng, *, has_authorizer: bool) -> None:
        """Create the part of a controller that changes entries.

        Args:
            rng: makes the ids of entries.
            has_authorizer: whether this node has an authorizer. Requests are refused otherwise.
        """
        self._rng = rng
        self._has_authorizer = has_authorizer

    def create(
        self, view: ControllerView, request: CreateAclsRequest
    ) -> Generator[None, None, ControllerResult[CreateAclsResponse]]:
        """Create the entries that do not exist; yields before each entry."""
        if not self._has_authorizer:
            response = yield from refuse_create_acls(request, _DISABLED)
            return ControllerResult([], response)
        image = view.image
        has_ranges = has_host_ranges(image.features.metadata_version)
        added: dict[Acl, bytes] = {}
        results: list[AclCreationResult] = []
        for creation in request.creations:
            yield
            try:
                acl = _valid_acl(creation, has_ranges=has_ranges)
            except Refusal as refusal:
                results.append(_creation_result(refusal))
                continue
            if acl not in image.acls and acl not in added:
                added[acl] = self._rng.uuid()
            results.append(_creation_result(None))
        records: list[VersionedRecord] = [
            (acl.to_record(acl_id), 0) for acl, acl_id in added.items()
        ]
        return ControllerResult(records, CreateAclsResponse(results=results))

    def delete(
        self, view: ControllerView, request: DeleteAclsRequest
    ) -> Generator[None, None, ControllerResult[DeleteAclsResponse]]:
        """Delete the entries that the filters select; yields after some comparisons."""
        if not self._has_authorizer:
            response = yield from refuse_delete_acls(request, _DISABLED)
            return ControllerResult([], response)
        acls = view.image.acls
        if len(request.filters) * len(acls) > COMPARED_MAX:
            response = yield from refuse_delete_acls(request, _TOO_MANY_COMPARED)
            return ControllerResult([], response)
        deleted: dict[bytes, None] = {}
        results: list[DeleteAclsFilterResult] = []
        for each in request.filters:
            yield
            # The handler has replaced the default of version 0.
            wanted = AclFilter.from_request(each, 1)
            problem = _problem_of(wanted)
            if problem is not None:
                results.append(_filter_result(problem, {}))
                continue
            found = yield from _select(acls, wanted)
            if len(deleted) + len(found) > DELETED_MAX:
                response = yield from refuse_delete_acls(request, _TOO_MANY_DELETED)
                return ControllerResult([], response)
            deleted.update(dict.fromkeys(found))
            results.append(_filter_result(None, found))
        records: list[VersionedRecord] = [
            (RemoveAccessControlEntryRecord(id=acl_id), 0) for acl_id in deleted
        ]
        return ControllerResult(records, DeleteAclsResponse(filter_results=results))


def _valid_acl(creation: AclCreation, *, has_ranges: bool) -> Acl:
    """Return the entry of a request. Texts of errors are Kafka's, whose tools show them."""
    kind, name = creation.resource_type, creation.resource_name
    if kind == AclResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise _invalid("Invalid empty resource name")
    if kind not in _RESOURCE_TYPES:
        raise _invalid(f"Invalid resourceType {_name_of(AclResourceType, kind)}")
    if creation.resource_pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        pattern = _name_of(PatternType, creation.resource_pattern_type)
        raise _invalid(f"Invalid patternType {pattern}")
    if creation.operation not in _OPERATIONS:
        raise _invalid(f"Invalid operation {_name_of(AclOperation, creation.operation)}")
    if creation.permission_type not in (AclPermission.DENY, AclPermission.ALLOW):
        permission = _name_of(AclPermission, creation.permission_type)
        raise _invalid(f"Invalid permissionType {permission}")
    if ":" not in creation.principal:
        raise _invalid(
            f"Could not parse principal from `{creation.principal}` (no colon is present "
            "separating the principal type from the principal name)"
        )
    _check_host(creation.host, has_ranges=has_ranges)
    return Acl(
        kind,
        name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


_RESOURCE_TYPES = frozenset(AclResourceType) - {AclResourceType.ANY, AclResourceType.UNKNOWN}
_OPERATIONS = frozenset(AclOperation) - {AclOperation.ANY, AclOperation.UNKNOWN}


def _check_host(host: str, *, has_ranges: bool) -> None:
    if not host:
        raise _invalid("Host pattern cannot be null or empty")
    if host == WILDCARD or not is_range(host):
        return
    if not has_ranges:
        raise Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
        )
    try:
        parse_range(host)
    except HostRangeError as error:
        raise _invalid(f"Invalid CIDR notation '{host}': {error}") from None


def _name_of(
    numbers: type[AclResourceType | PatternType | AclOperation | AclPermission], number: int
) -> str:
    """Return the name of a number in Kafka's texts."""
    return numbers(number).name


def _problem_of(wanted: AclFilter) -> Refusal | None:
    if wanted.has_unknown_resource:
        return _invalid("Unknown patternFilter.")
    return _invalid("Unknown entryFilter.") if wanted.has_unknown_entry else None


def _select(acls: AclsImage, wanted: AclFilter) -> Generator[None, None, dict[bytes, Acl]]:
    """Return the entries that a filter selects, by id."""
    found: dict[bytes, Acl] = {}
    for number, (acl_id, acl) in enumerate(acls):
        if wanted.matches(acl):
            found[acl_id] = acl
        if number % _COMPARED_AT_ONCE == 0:
            yield
    return found


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _creation_result(refusal: Refusal | None) -> AclCreationResult:
    if refusal is None:
        return AclCreationResult(error_code=ErrorCode.NONE, error_message="")
    return AclCreationResult(error_code=refusal.error_code, error_message=refusal.message)


def _filter_result(refusal: Refusal | None, found: dict[bytes, Acl]) -> DeleteAclsFilterResult:
    matching = [
        DeleteAclsMatchingAcl(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in found.values()
    ]
    return DeleteAclsFilterResult(
        error_code=ErrorCode.NONE if refusal is None else refusal.error_code,
        error_message=None if refusal is None else refusal.message,
        matching_acls=matching,
    )


def refuse_create_acls(
    request: CreateAclsRequest, error: Refusal
) -> Generator[None, None, CreateAclsResponse]:
    """Make the error response for all entries of a request."""
    results = yield from gradually(_creation_result(error) for _ in request.creations)
    return CreateAclsResponse(results=results)


def refuse_delete_acls(
    request: DeleteAclsRequest, error: Refusal
) -> Generator[None, None, DeleteAclsResponse]:
    """Make the error response for all filters of a request."""
    results = yield from gradually(_filter_result(error, {}) for _ in request.filters)
    return DeleteAclsResponse(filter_results=results)
