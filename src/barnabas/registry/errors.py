"""Errors of the registry's REST interface: status, code and message as in Confluent's registry.

The codes begin with their status: 40401 is the first error of status 404.
"""

from __future__ import annotations

NOT_FOUND = 404
CONFLICT = 409
UNPROCESSABLE = 422
_CODES_PER_STATUS = 100


class RegistryError(Exception):
    """A refused request.

    Attributes:
        status: The status of the response.
        code: `error_code` in the body of the response.
        message: `message` in the body.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = code if code < 1000 else code // _CODES_PER_STATUS
        self.message = message


def unauthorized() -> RegistryError:
    """Return the error for a client that has not logged in, or not with a valid password."""
    return RegistryError(40101, "Unauthorized")


def forbidden(message: str) -> RegistryError:
    """Return the error for a principal without the right."""
    return RegistryError(40301, message)


def subject_not_found(subject: str) -> RegistryError:
    """Return the error for a subject without versions."""
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    """Return the error for a version that the subject does not have."""
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> RegistryError:
    """Return the error for an id that is unknown, or a schema that is not registered."""
    words = "Schema not found" if schema_id is None else f"Schema {schema_id} not found"
    return RegistryError(40403, words)


def subject_soft_deleted(subject: str) -> RegistryError:
    """Return the error for a second soft deletion of a subject."""
    return RegistryError(
        40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
    )


def subject_not_soft_deleted(subject: str) -> RegistryError:
    """Return the error for a permanent deletion of a subject that has undeleted versions."""
    return RegistryError(
        40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
    )


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    """Return the error for a second soft deletion of a version."""
    return RegistryError(
        40406,
        f"Subject '{subject}' Version {version} was soft deleted. "
        "Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    """Return the error for a permanent deletion of an undeleted version."""
    return RegistryError(
        40407,
        f"Subject '{subject}' Version {version} was not deleted first before being "
        "permanently deleted",
    )


def config_not_found(subject: str) -> RegistryError:
    """Return the error for a subject without a compatibility level of its own."""
    return RegistryError(
        40408, f"Subject '{subject}' does not have subject-level compatibility configured"
    )


def mode_not_found(subject: str) -> RegistryError:
    """Return the error for a subject without a mode of its own."""
    return RegistryError(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, problems: list[str], level: str) -> RegistryError:
    """Return the error for a schema that breaks the compatibility level of its subject."""
    details = ", ".join([*problems, level_note(level)])
    return RegistryError(
        CONFLICT,
        "Schema being registered is incompatible with an earlier schema for subject "
        f'"{subject}", details: [{details}]',
    )


def level_note(level: str) -> str:
    """Return the last entry of a list of incompatibilities: the level that was checked."""
    return f"{{validateFields: 'false', compatibility: '{level}'}}"


def invalid_schema(message: str) -> RegistryError:
    """Return the error for a schema that cannot be parsed, or whose references are missing."""
    return RegistryError(42201, message)


def invalid_version(version: str) -> RegistryError:
    """Return the error for a version that is neither a positive number nor `latest`."""
    return RegistryError(
        42202,
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def invalid_level() -> RegistryError:
    """Return the error for an unknown compatibility level."""
    return RegistryError(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_mode() -> RegistryError:
    """Return the error for an unknown mode."""
    return RegistryError(
        42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, and IMPORT"
    )


def not_permitted(message: str) -> RegistryError:
    """Return the error for a change that the mode of the subject forbids."""
    return RegistryError(42205, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    """Return the error for the deletion of a version that other schemas refer to."""
    return RegistryError(
        42206,
        "One or more references exist to the schema "
        f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}.",
    )


def id_does_not_match(given: int, known: int) -> RegistryError:
    """Return the error for an imported schema whose id belongs to another schema, or inversely."""
    return RegistryError(
        42207, f"Schema already registered with id {known} instead of input id {given}"
    )


def invalid_subject(subject: str) -> RegistryError:
    """Return the error for a name that no subject may have."""
    return RegistryError(42208, f"The specified subject '{subject}' is not a valid.")


def store_failed(message: str) -> RegistryError:
    """Return the error for a failed read or write of the topic."""
    return RegistryError(50001, message)


def store_timed_out(message: str) -> RegistryError:
    """Return the error for a write that was not read back in time."""
    return RegistryError(50002, message)


def forwarding_failed(message: str) -> RegistryError:
    """Return the error for a leader that does not answer."""
    return RegistryError(50003, message)


def leader_unknown() -> RegistryError:
    """Return the error for a change while no registry leads."""
    return RegistryError(50004, "Leader not known.")
