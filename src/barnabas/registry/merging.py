"""Metadata and rule sets of a new version: from the request, the version before and the config.

A configuration has defaults and overrides of both. What a request does not give, a new version has
from the version before it. Clients execute the rules; the registry stores and merges them, as
Confluent's does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.registry.records import METADATA, RULE_SET, VERSION_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Mapping

    Members = Mapping[str, Any]

# Members of a configuration.
DEFAULT_METADATA, OVERRIDE_METADATA = "defaultMetadata", "overrideMetadata"
DEFAULT_RULES, OVERRIDE_RULES = "defaultRuleSet", "overrideRuleSet"
GROUP = "compatibilityGroup"
_RULE_LISTS = ("migrationRules", "domainRules", "encodingRules")


def merged(config: Members, given: Members, previous: Members) -> dict[str, Any]:
    """Return metadata and rule set of a new version.

    Args:
        config: The configuration that applies to the subject.
        given: Metadata and rule set of the request.
        previous: Those of the latest version of the subject; empty without one.
    """
    metadata = given.get(METADATA) or previous.get(METADATA)
    metadata = _merged_metadata(config.get(DEFAULT_METADATA), metadata)
    metadata = _merged_metadata(metadata, config.get(OVERRIDE_METADATA))
    rules = given.get(RULE_SET) or previous.get(RULE_SET)
    rules = _merged_rules(config.get(DEFAULT_RULES), rules)
    rules = _merged_rules(rules, config.get(OVERRIDE_RULES))
    found = {METADATA: metadata, RULE_SET: rules}
    return {name: value for name, value in found.items() if value}


def _merged_metadata(first: Members | None, second: Members | None) -> Members | None:
    """Return properties of both, the second's where both have one; tags and names of both."""
    if not first or not second:
        return first or second
    tags = {**_object(first, "tags")}
    for path, names in _object(second, "tags").items():
        tags[path] = _union(tags.get(path), names)
    found = {
        "tags": tags,
        "properties": {**_object(first, "properties"), **_object(second, "properties")},
        "sensitive": _union(first.get("sensitive"), second.get("sensitive")),
    }
    return {name: value for name, value in found.items() if value}


def _object(members: Members, name: str) -> Members:
    """Return a member; an empty object unless it is an object, since clients give the text."""
    found = members.get(name)
    return found if isinstance(found, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _union(first: object, second: object) -> list[str]:
    return [*dict.fromkeys(each for each in _list(first) + _list(second) if isinstance(each, str))]


def _merged_rules(first: Members | None, second: Members | None) -> Members | None:
    """Return the rules of both, the second's where both have one of a name."""
    if not first or not second:
        return first or second
    found = {}
    for name in _RULE_LISTS:
        earlier, later = _rules(first, name), _rules(second, name)
        names = [each.get("name") for each in later]
        rules = [*(each for each in earlier if each.get("name") not in names), *later]
        if rules:
            found[name] = rules
    return found


def _rules(members: Members, name: str) -> list[Members]:
    return [each for each in _list(members.get(name)) if isinstance(each, dict)]


def with_version(more: Members, version: int) -> Members:
    """Return metadata and rule set with the version as a property, if there is such a property."""
    if property_of(more, VERSION_PROPERTY) is None:
        return more
    properties = {**_properties(more), VERSION_PROPERTY: str(version)}
    return {**more, METADATA: {**more[METADATA], "properties": properties}}


def property_of(more: Members, name: str) -> object:
    """Return a property of the metadata of a version; None without it."""
    return _properties(more).get(name)


def _properties(more: Members) -> Members:
    return _object(_object(more, METADATA), "properties")


def has_properties(more: Members, wanted: Members) -> bool:
    """Return whether the metadata of a version has all these properties."""
    return all(property_of(more, name) == value for name, value in wanted.items())
