"""What pages call the fields of their forms, for the texts of errors.

A template names each field for its readers, and an error about the field has the same name. A test
compares this table with the labels in the templates.
"""

from __future__ import annotations

_LABELS = {
    "ago": "Time ago",
    "add": "Add headers",
    "age": "Open for longer than",
    "broker": "Broker",
    "brokers": "Brokers",
    "columns": "Columns",
    "compression": "Compression",
    "csv": "Lines",
    "directory": "Directory",
    "endpoints": "Endpoints of its controller",
    "feature": "Feature",
    "file": "File",
    "from": "From",
    "headers": "Headers",
    "interval": "Interval",
    "key_format": "Keys as",
    "level": "Level",
    "lifetime": "Longest life",
    "limit": "Results",
    "metrics": "Prefixes of metrics",
    "mechanism": "Mechanism",
    "mode": "Mode",
    "name": "Name",
    "node": "Node",
    "offset": "Offset",
    "other_offset": "Offset before",
    "other_partition": "Partition before",
    "operation": "Operation",
    "owner": "Owner",
    "partition": "Partition",
    "partitions": "Partitions",
    "password": "Password",
    "pattern_type": "Pattern",
    "period": "For",
    "permission": "Permission",
    "principal": "Principal",
    "quota": "Quota",
    "references": "References",
    "renewers": "Renewers",
    "replicas": "Replicas",
    "resource_name": "Name",
    "resource_type": "Resource",
    "schema": "Schema",
    "shift": "By",
    "state": "State",
    "subject": "Subject",
    "target": "To the topic",
    "throttle": "Limit",
    "time": "Time",
    "timestamp": "Timestamp",
    "to": "To",
    "topic": "Topic",
    "type": "Type",
    "user": "User",
    "value": "Value",
    "value_format": "Values as",
    "version": "Version",
    "zone": "Time zone",
}
# Fields that one form calls otherwise, by the end of its path.
_LABELS_OF_FORMS = {
    ("/topic/partitions", "partitions"): "New number of partitions",
    ("/topic/purge", "to"): "Which",
    ("/quotas/set", "value"): "Limit",
    ("/quorum/remove", "node"): "Voter",
    ("/schemas/compatibility", "level"): "Compatibility",
    ("/schemas/delete", "version"): "Versions",
    ("/transactions/fence", "id"): "Transactional id",
}
# The key and the value of a new message have the same fields.
_PARTS = ("key_", "value_")
_LABELS_OF_PARTS = {
    "kind": "Written as",
    "file": "File",
    "subject": "Subject of the schema",
    "version": "Version",
    "message": "Message type",
}


def label_of(path: str, name: str) -> str:
    """Return what a form calls a field.

    Args:
        path: The path that the form is sent to.
        name: The name of the field.

    Returns:
        The label; the name itself if a page shows no such field.
    """
    for (end, own), label in _LABELS_OF_FORMS.items():
        if own == name and path.endswith(end):
            return label
    if name in _LABELS:
        return _LABELS[name]
    part = next((part for part in _PARTS if name.startswith(part)), "")
    return _LABELS_OF_PARTS.get(name.removeprefix(part), name) if part else name
