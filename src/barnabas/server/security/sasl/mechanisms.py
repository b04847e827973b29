"""Mechanisms that a listener offers, from its settings."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING

from barnabas.sasl.oauthbearer_messages import OAUTHBEARER
from barnabas.sasl.oauthbearer_server import OAuthBearerServer
from barnabas.sasl.plain import PLAIN, PlainServer
from barnabas.sasl.scram_keys import SCRAM_MECHANISMS
from barnabas.sasl.scram_server import ScramServer
from barnabas.server.security.sasl.login import OfferedMechanism

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.loop import Runtime
    from barnabas.sasl.scram_server import ScramUsers
    from barnabas.sasl.server_mechanism import ServerMechanism
    from barnabas.server.configs.listener_sasl import ListenerSasl, MechanismSettings

_NONCE_BYTES = 24


class Mechanisms:
    """Creates the server's side of exchanges."""

    __slots__ = ("_runtime", "_users")

    def __init__(self, users: ScramUsers, runtime: Runtime) -> None:
        """Args:
        users: the stored SCRAM credentials.
        runtime: randomness of nonces, and dependencies of the validation of tokens.
        """
        self._users = users
        self._runtime = runtime

    def offered(self, settings: ListenerSasl) -> dict[str, OfferedMechanism]:
        """Return the enabled mechanisms of a listener by name."""
        return {
            name: OfferedMechanism(self._beginning(name, each), each.session_ms_max)
            for name, each in settings.mechanisms.items()
        }

    def _beginning(self, name: str, settings: MechanismSettings) -> Callable[[], ServerMechanism]:
        """Return a function that begins an exchange of the mechanism."""
        scram = SCRAM_MECHANISMS.get(name)
        if scram is not None:
            return lambda: ScramServer(scram, self._users, self._nonce())
        if name == OAUTHBEARER:
            assert settings.oauth is not None, "OAUTHBEARER has its settings"
            # Imported only for listeners with OAUTHBEARER.
            from barnabas.server.security.sasl.token_validator import token_validator

            validate = token_validator(settings.oauth, self._runtime)
            return lambda: OAuthBearerServer(validate)
        assert name == PLAIN, name
        assert settings.module is not None, "PLAIN has its users in a login module"
        users = settings.module.users()
        return lambda: PlainServer(users)

    def _nonce(self) -> str:
        """Return new printable characters without a comma."""
        return urlsafe_b64encode(self._runtime.rng.token(_NONCE_BYTES)).decode()
