"""DescribeConfigs, IncrementalAlterConfigs, AlterConfigs, ListConfigResources, UpdateFeatures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from differential.case import case
from differential.scene import Scene

if TYPE_CHECKING:
    from differential.request import Values

DESCRIBE, INCREMENTAL = ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS
ALTER, LIST = ApiKey.ALTER_CONFIGS, ApiKey.LIST_CONFIG_RESOURCES
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describing(kind: int, name: str, *keys: str, **more: Any) -> Values:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    return {"resources": [resource], **more}


@case(DESCRIBE)
def a_topic_s_configs(scene: Scene) -> None:
    topic = scene.topic(retention_ms="12345", cleanup_policy="delete")
    keys = ("retention.ms", "cleanup.policy", "segment.bytes", "min.insync.replicas")
    scene.compare(describing(TOPIC, topic, *keys))
    scene.compare(describing(TOPIC, topic, *keys, include_synonyms=True))
    scene.compare(describing(TOPIC, topic, "no.such.key"))
    scene.compare(describing(TOPIC, topic, "retention.ms", "retention.ms"))
    resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": []}
    scene.compare({"resources": [resource]})


@case(DESCRIBE)
def all_of_a_topic_s_configs(scene: Scene) -> None:
    scene.compare(describing(TOPIC, scene.topic(), include_synonyms=True))


@case(DESCRIBE)
def unknown_resources(scene: Scene) -> None:
    for name in ("absent", "", "a/b"):
        scene.compare(describing(TOPIC, name, "retention.ms"))
    for name in ("9", "x", "-1", "0x1"):
        scene.compare(describing(BROKER, name, "num.partitions"))
    for kind in (0, 1, 3, 99, -1):
        scene.compare(describing(kind, "a"))
    scene.compare({"resources": []})


@case(DESCRIBE)
def some_of_a_broker_s_configs(scene: Scene) -> None:
    keys = ("log.retention.ms", "num.partitions", "message.max.bytes", "auto.create.topics.enable")
    for name in ("1", ""):
        scene.compare(describing(BROKER, name, *keys))
        scene.compare(describing(BROKER, name, *keys, include_synonyms=True))


# Configs that depend on the process and its cluster.
_OF_THE_PROCESS = {
    "advertised.listeners",
    "broker.id",
    "controller.listener.names",
    "controller.quorum.voters",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "node.id",
    "process.roles",
}


@case(DESCRIBE)
def all_of_a_broker_s_configs_that_barnabas_has(scene: Scene) -> None:
    requested = describing(BROKER, "1", include_synonyms=True)
    kafka, barnabas = (
        {each.name: each for each in response.results[0].configs}
        for response in scene.do(DESCRIBE, scene.version, requested)
    )
    assert len(barnabas) > 50
    shown = [name for name in barnabas if name in kafka and name not in _OF_THE_PROCESS]
    assert len(shown) > 50
    fields = ("value", "read_only", "config_source", "is_sensitive", "config_type", "synonyms")
    scene.note(
        *(
            {
                f"{name} {field}": repr(getattr(each[name], field))
                for name in shown
                for field in fields
            }
            for each in (kafka, barnabas)
        )
    )


@case(DESCRIBE)
def several_resources(scene: Scene) -> None:
    topic = scene.topic()
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": ["retention.ms"]}
        for kind, name in ((TOPIC, topic), (TOPIC, "absent"), (TOPIC, topic), (BROKER, "1"))
    ]
    scene.compare({"resources": resources})


@case(DESCRIBE)
def groups_and_client_metrics(scene: Scene) -> None:
    for kind in (CLIENT_METRICS, GROUP):
        for name in ("something", ""):
            scene.compare(describing(kind, name))


def changing(kind: int, name: str, *changes: tuple[str, int, str | None], **more: Any) -> Values:
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in changes
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return {"resources": [resource], **more}


@case(INCREMENTAL)
def a_topic_s_configs_change(scene: Scene) -> None:
    topic = scene.topic()
    description = describing(TOPIC, topic, "retention.ms", "cleanup.policy", include_synonyms=True)
    for change in (
        ("retention.ms", SET, "1000"),
        ("cleanup.policy", APPEND, "compact"),
        ("cleanup.policy", SUBTRACT, "delete"),
        ("cleanup.policy", APPEND, "compact"),
        ("retention.ms", DELETE, None),
        ("retention.ms", DELETE, "ignored"),
        ("cleanup.policy", DELETE, None),
    ):
        scene.compare(changing(TOPIC, topic, change, validate_only=True))
        scene.compare(changing(TOPIC, topic, change))
        scene.settle()
        scene.compare(description, DESCRIBE, 4)


@case(INCREMENTAL)
def changes_that_are_refused(scene: Scene) -> None:
    topic = scene.topic()
    for change in (
        ("no.such.key", SET, "1"),
        ("no.such.key", DELETE, None),
        ("retention.ms", SET, "soon"),
        ("retention.ms", SET, None),
        ("retention.ms", APPEND, "1"),
        ("retention.ms", SUBTRACT, "1"),
        ("retention.ms", 9, "1"),
        ("retention.ms", -1, "1"),
        ("cleanup.policy", APPEND, "burn"),
        ("cleanup.policy", APPEND, None),
        ("cleanup.policy", SUBTRACT, "compact"),
        ("", SET, "1"),
        ("min.insync.replicas", SET, "0"),
        ("segment.bytes", SET, "10"),
    ):
        scene.compare(changing(TOPIC, topic, change))
    twice = (("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    scene.compare(changing(TOPIC, topic, *twice))
    scene.compare(changing(TOPIC, topic))


@case(INCREMENTAL)
def configs_of_a_remote_tier_without_a_tier(scene: Scene) -> None:
    topic = scene.topic()
    for changes in (
        [("remote.storage.enable", SET, "true")],
        [("remote.storage.enable", SET, "true"), ("cleanup.policy", SET, "compact")],
        [("local.retention.ms", SET, "-3")],
        [("remote.copy.lag.bytes", SET, "-2")],
        [("internal.segment.bytes", SET, "x")],
        # Without remote.storage.enable=true, the other keys are not compared with each other.
        [("remote.storage.enable", SET, "false"), ("local.retention.ms", SET, "-1")],
        [("local.retention.bytes", SET, "7"), ("retention.bytes", SET, "6")],
        [("remote.log.copy.disable", SET, "true"), ("remote.copy.lag.ms", SET, "5")],
        [("internal.segment.bytes", SET, "10000")],
    ):
        scene.compare(changing(TOPIC, topic, *changes))
        scene.settle()
        scene.compare(describing(TOPIC, topic, include_synonyms=True), DESCRIBE, 4)


@case(INCREMENTAL)
def broker_configs_of_local_retention(scene: Scene) -> None:
    for changes in (
        [("log.local.retention.ms", SET, "604800001")],
        [("log.local.retention.ms", SET, "604800000")],
        [("log.local.retention.ms", SET, "-1")],
        [("log.local.retention.ms", SET, "-3")],
        [("log.local.retention.bytes", SET, "5")],
        [("log.local.retention.bytes", SET, "6"), ("log.retention.bytes", SET, "5")],
        [("log.remote.copy.lag.ms", SET, "604800001")],
        [("log.remote.copy.lag.ms", SET, "-2")],
        [("remote.log.manager.copier.thread.pool.size", SET, "21")],
        [("remote.log.manager.copier.thread.pool.size", SET, "20")],
        [("remote.log.reader.threads", SET, "0")],
        [("remote.fetch.max.wait.ms", SET, "0")],
        [("remote.log.manager.task.interval.ms", SET, "1000")],
    ):
        scene.compare(changing(BROKER, "", *changes, validate_only=True))


@case(INCREMENTAL)
def resources_that_cannot_change(scene: Scene) -> None:
    change = ("retention.ms", SET, "1")
    for name in ("absent", "", "a/b"):
        scene.compare(changing(TOPIC, name, change))
    for name in ("9", "x", "-1"):
        scene.compare(changing(BROKER, name, ("log.cleaner.threads", SET, "2")))
    for kind in (0, 1, 3, 99, -1):
        scene.compare(changing(kind, "a", change))
    scene.compare({"resources": []})
    topic = scene.topic()
    resource = changing(TOPIC, topic, change)["resources"][0]
    scene.compare({"resources": [resource, resource]})


@case(INCREMENTAL)
def broker_configs(scene: Scene) -> None:
    for name in ("1", ""):
        for change in (
            ("message.max.bytes", SET, "1048588"),
            ("message.max.bytes", DELETE, None),
            ("message.max.bytes", SET, "-5"),
            ("node.id", SET, "2"),
            ("no.such.key", SET, "2"),
            ("log.cleaner.threads", SET, "x"),
        ):
            scene.compare(changing(BROKER, name, change, validate_only=True))


def replacing(kind: int, name: str, *pairs: tuple[str, str | None], **more: Any) -> Values:
    configs = [{"name": key, "value": value} for key, value in pairs]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return {"resources": [resource], **more}


@case(ALTER)
def all_configs_are_replaced(scene: Scene) -> None:
    topic = scene.topic(retention_ms="5000")
    scene.compare(replacing(TOPIC, topic, ("segment.ms", "60000"), validate_only=True))
    scene.compare(replacing(TOPIC, topic, ("segment.ms", "60000")))
    scene.compare(replacing(TOPIC, topic))


@case(ALTER)
def replacements_that_are_refused(scene: Scene) -> None:
    topic = scene.topic()
    for key, value in (
        ("no.such.key", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", None),
        ("", "1"),
        ("cleanup.policy", "burn"),
    ):
        scene.compare(replacing(TOPIC, topic, (key, value)))
    scene.compare(replacing(TOPIC, "absent", ("retention.ms", "1")))
    scene.compare(replacing(TOPIC, "", ("retention.ms", "1")))
    scene.compare(replacing(BROKER, "9", ("log.cleaner.threads", "2")))
    scene.compare(replacing(99, "a", ("retention.ms", "1")))
    scene.compare({"resources": []})


@case(ALTER, [2])
def a_resource_named_twice(scene: Scene) -> None:
    twice = replacing(TOPIC, scene.topic(), ("retention.ms", "1"))["resources"][0]
    scene.compare_pending({"resources": [twice, twice]})


@case(LIST)
def config_resources(scene: Scene) -> None:
    for kinds in ([BROKER], [LOGGER], [CLIENT_METRICS], [GROUP], [99], [0], [BROKER, BROKER]):
        scene.compare({"resource_types": kinds})


@case(ApiKey.UPDATE_FEATURES)
def features(scene: Scene) -> None:
    for name, level, kind in (
        ("no.such.feature", 1, 1),
        ("metadata.version", 1, 1),
        ("metadata.version", 99, 1),
        ("metadata.version", 0, 1),
        ("metadata.version", -1, 1),
        ("metadata.version", 25, 0),
        ("metadata.version", 25, 9),
        ("", 1, 1),
    ):
        update = {"feature": name, "max_version_level": level, "upgrade_type": kind}
        scene.compare({"feature_updates": [update], "validate_only": True, "timeout_ms": 5000})
    scene.compare({"feature_updates": [], "timeout_ms": 5000, "validate_only": True})


@case(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
def scram_credentials(scene: Scene) -> None:
    scene.compare({"users": None})
    scene.compare({"users": []})
    scene.compare({"users": [{"name": "nobody"}]})
    scene.compare({"users": [{"name": "nobody"}, {"name": "nobody"}]})
    scene.compare({"users": [{"name": ""}]})


@case(ApiKey.UNREGISTER_BROKER)
def brokers_that_cannot_be_unregistered(scene: Scene) -> None:
    for number in (9, -1):
        scene.compare({"broker_id": number})


USER, CLIENT, ADDRESS = "user", "client-id", "ip"


def quota(entity: list[tuple[str, str | None]], *ops: tuple[str, float, bool]) -> Values:
    named = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
    changes = [{"key": key, "value": value, "remove": remove} for key, value, remove in ops]
    return {"entries": [{"entity": named, "ops": changes}]}


@case(ApiKey.ALTER_CLIENT_QUOTAS)
def quotas_are_set_and_removed(scene: Scene) -> None:
    client = scene.name("client")
    find = {
        "components": [{"entity_type": CLIENT, "match_type": 0, "match": client}],
        "strict": False,
    }
    rate = ("producer_byte_rate", 1e9, False)
    scene.compare({**quota([(CLIENT, client)], rate), "validate_only": True})
    scene.compare(quota([(CLIENT, client)], rate, ("consumer_byte_rate", 2e9, False)))
    scene.settle()
    scene.compare(find, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1)
    scene.compare(quota([(CLIENT, client)], ("producer_byte_rate", 0, True)))
    scene.compare(quota([(CLIENT, client)], ("consumer_byte_rate", 0, True)))
    scene.compare(quota([(CLIENT, client)], ("consumer_byte_rate", 0, True)))


@case(ApiKey.ALTER_CLIENT_QUOTAS)
def quotas_that_are_refused(scene: Scene) -> None:
    client = (CLIENT, scene.name("client"))
    for entity, op in (
        ([client], ("no_such_rate", 1.0, False)),
        ([client], ("producer_byte_rate", 0.0, False)),
        ([client], ("producer_byte_rate", -1.0, False)),
        ([client], ("producer_byte_rate", 1.5, False)),
        ([client], ("request_percentage", 0.5, False)),
        ([client], ("connection_creation_rate", 5.0, False)),
        ([client], ("no_such_rate", 0.0, True)),
        ([], ("producer_byte_rate", 1.0, False)),
        ([client, client], ("producer_byte_rate", 1.0, False)),
        ([("planet", "mars")], ("producer_byte_rate", 1.0, False)),
        ([(CLIENT, "")], ("producer_byte_rate", 1.0, False)),
        ([(ADDRESS, "127.0.0.9")], ("connection_creation_rate", 5.0, False)),
        ([(ADDRESS, "127.0.0.9")], ("connection_creation_rate", 5.5, False)),
        ([(ADDRESS, "not an address")], ("connection_creation_rate", 5.0, False)),
        ([(ADDRESS, "127.0.0.9")], ("producer_byte_rate", 5.0, False)),
        ([(ADDRESS, "127.0.0.9"), client], ("connection_creation_rate", 5.0, False)),
        ([(USER, "somebody"), client], ("request_percentage", 200.0, False)),
    ):
        scene.compare({**quota(list(entity), op), "validate_only": True})
    scene.compare({"entries": [], "validate_only": True})
    once = quota([client], ("producer_byte_rate", 1.0, False))["entries"][0]
    scene.compare({"entries": [once, once], "validate_only": True})


@case(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def quotas_of_an_entity_are_in_the_order_of_a_hash_table(scene: Scene) -> None:
    client = scene.name("client")
    part = {"entity_type": CLIENT, "match_type": 0, "match": client}
    keys = ("request_percentage", "controller_mutation_rate", "consumer_byte_rate")
    for key in (*keys, "producer_byte_rate"):
        scene.do(ApiKey.ALTER_CLIENT_QUOTAS, 1, quota([(CLIENT, client)], (key, 9.0, False)))
        scene.settle()
        scene.compare({"components": [part], "strict": True})
    removals = [(key, 0.0, True) for key in (*keys, "producer_byte_rate")]
    scene.do(ApiKey.ALTER_CLIENT_QUOTAS, 1, quota([(CLIENT, client)], *removals))


@case(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def quotas_that_are_found(scene: Scene) -> None:
    client = scene.name("client")
    scene.do(
        ApiKey.ALTER_CLIENT_QUOTAS, 1, quota([(CLIENT, client)], ("producer_byte_rate", 1e9, False))
    )
    scene.settle()
    for kind, match, name in (
        (CLIENT, 0, client),
        (CLIENT, 0, "nobody"),
        (CLIENT, 1, None),
        (USER, 0, "nobody"),
        (USER, 1, None),
        (ADDRESS, 1, None),
        ("planet", 0, "mars"),
        (CLIENT, 3, None),
        (CLIENT, -1, None),
        (CLIENT, 0, None),
        (CLIENT, 1, "x"),
        (CLIENT, 2, "x"),
        ("", 0, "x"),
    ):
        for strict in (False, True):
            part = {"entity_type": kind, "match_type": match, "match": name}
            scene.compare({"components": [part], "strict": strict})
    part = {"entity_type": CLIENT, "match_type": 0, "match": client}
    scene.compare({"components": [part, part], "strict": False})
    address = {"entity_type": ADDRESS, "match_type": 1, "match": None}
    scene.compare({"components": [part, address], "strict": False})
    scene.do(
        ApiKey.ALTER_CLIENT_QUOTAS, 1, quota([(CLIENT, client)], ("producer_byte_rate", 0, True))
    )
