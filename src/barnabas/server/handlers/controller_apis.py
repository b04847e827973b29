"""APIs that a controller's listeners serve, with exactly the advertised versions."""

from __future__ import annotations

from barnabas.protocol.api_table import ApiKey
from barnabas.server.dispatch.served_api import ServedApi
from barnabas.server.handlers.broker_apis import SERVED_APIS

# Other APIs with the same handler as on brokers.
_SAME_AS_BROKERS = (
    ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
)

CONTROLLER_APIS: dict[int, ServedApi] = {
    # Here, the requests go to the controller of this process.
    **{key: api for key, api in SERVED_APIS.items() if api.is_forwarded},
    **{key: SERVED_APIS[key] for key in _SAME_AS_BROKERS},
    ApiKey.FETCH: ServedApi(4, 18, "controller.quorum_request"),
    ApiKey.VOTE: ServedApi(0, 2, "controller.quorum_request"),
    ApiKey.BEGIN_QUORUM_EPOCH: ServedApi(0, 1, "controller.quorum_request"),
    ApiKey.END_QUORUM_EPOCH: ServedApi(0, 1, "controller.quorum_request"),
    ApiKey.ALTER_PARTITION: ServedApi(2, 3, "controller.controller_request"),
    ApiKey.ENVELOPE: ServedApi(0, 0, "controller.envelope"),
    ApiKey.FETCH_SNAPSHOT: ServedApi(0, 1, "controller.quorum_request"),
    ApiKey.DESCRIBE_CLUSTER: ServedApi(0, 2, "controller.describe_controllers"),
    ApiKey.BROKER_REGISTRATION: ServedApi(0, 4, "controller.broker_registration"),
    ApiKey.BROKER_HEARTBEAT: ServedApi(0, 2, "controller.broker_heartbeat"),
    ApiKey.ALLOCATE_PRODUCER_IDS: ServedApi(0, 0, "controller.controller_request"),
    ApiKey.CONTROLLER_REGISTRATION: ServedApi(0, 0, "controller.controller_request"),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ServedApi(0, 0, "controller.controller_request"),
    ApiKey.ADD_RAFT_VOTER: ServedApi(0, 1, "controller.quorum_request"),
    ApiKey.REMOVE_RAFT_VOTER: ServedApi(0, 0, "controller.quorum_request"),
    ApiKey.UPDATE_RAFT_VOTER: ServedApi(0, 0, "controller.quorum_request"),
}
CONTROLLER_APIS = dict(sorted(CONTROLLER_APIS.items()))
