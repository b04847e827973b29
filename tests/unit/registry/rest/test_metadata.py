"""Metadata and rule sets are merged into new versions, and select versions, as by Confluent's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from registry_in_memory import RegistryInMemory

STRING, INT = '"string"', '"int"'
LOOKUP = "/subjects/a/metadata?key=owner&value=ana"


@pytest.fixture
def registry() -> Iterator[RegistryInMemory]:
    with RegistryInMemory() as made:
        made.request("PUT", "/config", {"compatibility": "NONE"})
        yield made


def properties(**given: str) -> dict[str, Any]:
    return {"properties": given}


def rule(name: str, expression: str = "true") -> dict[str, str]:
    return {"name": name, "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": expression}


def version(registry: RegistryInMemory, number: object = "latest") -> Any:
    return registry.request("GET", f"/subjects/a/versions/{number}").json


def test_defaults_and_overrides_are_merged_with_what_is_given(registry: RegistryInMemory) -> None:
    config = {
        "defaultMetadata": {"tags": {"f": ["x"]}, **properties(owner="all", team="t")},
        "overrideMetadata": {"sensitive": ["team"], **properties(checked="yes")},
        "defaultRuleSet": {"domainRules": [rule("first"), rule("second")]},
        "overrideRuleSet": {"migrationRules": [rule("up")], "domainRules": [rule("last")]},
    }
    assert registry.request("PUT", "/config/a", config).json == config
    assert registry.request("GET", "/config/a").json == config
    registry.register(
        "a",
        STRING,
        metadata={"tags": {"f": ["x", "y"]}, **properties(owner="ana", checked="no")},
        ruleSet={"domainRules": [rule("first", "false")]},
    )
    found = version(registry)
    assert found["metadata"] == {
        "tags": {"f": ["x", "y"]},
        "properties": {"owner": "ana", "team": "t", "checked": "yes"},
        "sensitive": ["team"],
    }
    assert found["ruleSet"] == {
        "migrationRules": [rule("up")],
        "domainRules": [rule("second"), rule("first", "false"), rule("last")],
    }


def test_a_new_version_has_the_metadata_of_the_one_before(registry: RegistryInMemory) -> None:
    registry.register("a", STRING, metadata=properties(owner="ana"))
    registry.register("a", INT)
    assert version(registry)["metadata"] == properties(owner="ana")
    # The same schema is found, registered and looked up, with and without its metadata.
    assert registry.register("a", INT) == registry.register(
        "a", INT, metadata=properties(owner="ana")
    )
    assert registry.request("POST", "/subjects/a", {"schema": INT}).json["version"] == 2
    assert registry.request("GET", "/subjects/a/versions").json == [1, 2]


def test_an_empty_text_is_the_latest_schema_with_new_metadata(registry: RegistryInMemory) -> None:
    registry.register("a", STRING)
    registry.register("a", "", metadata=properties(owner="ana"))
    assert (version(registry)["version"], version(registry)["schema"]) == (2, STRING)


def test_the_property_of_the_version_counts_the_versions(registry: RegistryInMemory) -> None:
    registry.register("a", STRING, metadata=properties(**{"confluent:version": "0"}))
    registry.register("a", INT)
    for number in (1, 2):
        found = version(registry, number)["metadata"]["properties"]
        assert found == {"confluent:version": str(number)}
    # It is not a difference between two schemas.
    registry.register("a", INT, metadata=properties(**{"confluent:version": "7"}))
    assert registry.request("GET", "/subjects/a/versions").json == [1, 2]


def test_the_latest_version_with_properties_is_found(registry: RegistryInMemory) -> None:
    assert registry.request("GET", LOOKUP).error == (404, 40401)
    for schema, owner in ((STRING, "ana"), (INT, "ana"), ('"long"', "ben")):
        registry.register("a", schema, metadata=properties(owner=owner, team="t"))
    assert registry.request("GET", LOOKUP).json["version"] == 2
    both = f"{LOOKUP}&key=team&value=t"
    assert registry.request("GET", both).json["schema"] == INT
    assert registry.request("GET", f"{LOOKUP}&key=team&value=u").error == (404, 40403)
    registry.request("DELETE", "/subjects/a/versions/2")
    assert registry.request("GET", LOOKUP).json["version"] == 1
    assert registry.request("GET", f"{LOOKUP}&deleted=true").json["version"] == 2


def test_versions_of_other_groups_are_not_compared(registry: RegistryInMemory) -> None:
    config = {"compatibility": "FULL", "compatibilityGroup": "major"}
    registry.request("PUT", "/config/a", config)
    registry.register("a", STRING, metadata=properties(major="1"))
    other = {"schema": INT, "metadata": properties(major="2")}
    assert registry.request("POST", "/compatibility/subjects/a/versions", other).json[
        "is_compatible"
    ]
    registry.register("a", INT, metadata=properties(major="2"))
    same = {"schema": '"boolean"', "metadata": properties(major="2")}
    assert registry.request("POST", "/subjects/a/versions", same).error == (409, 409)


@pytest.mark.parametrize(
    "metadata",
    [{"properties": "x"}, {"tags": {"f": "x"}}, {"tags": 7, "properties": {"owner": ["ana"]}}],
)
def test_metadata_of_other_types_does_no_harm(
    registry: RegistryInMemory, metadata: dict[str, Any]
) -> None:
    registry.request("PUT", "/config/a", {"defaultMetadata": metadata, "compatibilityGroup": "x"})
    rules = {"domainRules": ["x", {}], "migrationRules": 5}
    registry.register("a", STRING, metadata={**metadata, "sensitive": 1}, ruleSet=rules)
    registry.register("a", INT)
    assert registry.request("GET", LOOKUP).error == (404, 40403)
