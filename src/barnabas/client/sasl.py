"""The SASL keys of a client: Java's, librdkafka's and kafka-python's names of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.client.errors import ClientConfigError
from barnabas.runtime.tls.tls_options import TrustSource
from barnabas.sasl.client_login import PASSWORD_MECHANISMS, PasswordLogin
from barnabas.sasl.jaas import (
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    LoginModule,
    parse_jaas,
)
from barnabas.sasl.oauthbearer import OAUTHBEARER, check_extensions
from barnabas.sasl.plain import PLAIN
from barnabas.sasl.scram import TOKEN_AUTH
from barnabas.sasl.token_login import (
    CLAIM_OPTION,
    EXTENSION_OPTION,
    ClientCredentials,
    TokenLogin,
    from_provider,
    is_file_url,
    options_with_prefix,
    token_file,
    unsecured,
)
from barnabas.settings.key import ConfigError

if TYPE_CHECKING:
    from barnabas.runtime.loop import Runtime
    from barnabas.sasl.client_login import ClientLogin
    from barnabas.sasl.token_login import TokenSource

__all__ = ["check_sasl", "client_login"]

MECHANISMS = (*PASSWORD_MECHANISMS, OAUTHBEARER)
_JAAS = "sasl.jaas.config"
_MODULES = {PLAIN: PLAIN_MODULE, OAUTHBEARER: OAUTHBEARER_MODULE}


class SaslKeys(Protocol):
    """The keys of a `ClientConfig` that belong to SASL."""

    @property
    def security_protocol(self) -> str:
        """`security.protocol`."""
        ...

    @property
    def sasl_mechanism(self) -> str | None:
        """`sasl.mechanism`."""
        ...

    @property
    def sasl_plain_username(self) -> str | None:
        """`sasl.username`."""
        ...

    @property
    def sasl_plain_password(self) -> str | None:
        """`sasl.password`."""
        ...

    @property
    def sasl_jaas_config(self) -> str | None:
        """`sasl.jaas.config`."""
        ...

    @property
    def sasl_oauth_token_provider(self) -> object | None:
        """`sasl.oauth.token.provider`."""
        ...

    @property
    def sasl_oauthbearer_token_endpoint_url(self) -> str | None:
        """`sasl.oauthbearer.token.endpoint.url`."""
        ...

    @property
    def sasl_oauthbearer_client_credentials_client_id(self) -> str | None:
        """`sasl.oauthbearer.client.credentials.client.id`."""
        ...

    @property
    def sasl_oauthbearer_client_credentials_client_secret(self) -> str | None:
        """`sasl.oauthbearer.client.credentials.client.secret`."""
        ...

    @property
    def sasl_oauthbearer_header_urlencode(self) -> bool:
        """`sasl.oauthbearer.header.urlencode`."""
        ...

    @property
    def https_ca_location(self) -> str | None:
        """`https.ca.location`."""
        ...

    @property
    def https_ca_pem(self) -> str | None:
        """`https.ca.pem`."""
        ...

    @property
    def enable_sasl_oauthbearer_unsecure_jwt(self) -> bool:
        """`enable.sasl.oauthbearer.unsecure.jwt`."""
        ...

    @property
    def sasl_oauthbearer_config(self) -> str | None:
        """`sasl.oauthbearer.config`."""
        ...

    @property
    def sasl_oauthbearer_scope(self) -> str | None:
        """`sasl.oauthbearer.scope`."""
        ...

    @property
    def sasl_oauthbearer_extensions(self) -> str | None:
        """`sasl.oauthbearer.extensions`."""
        ...


def check_sasl(config: SaslKeys) -> None:
    """Check the SASL keys of a configuration together.

    Raises:
        ClientConfigError: a key is missing, or keys contradict each other.
    """
    has_sasl = config.security_protocol.startswith("SASL_")
    if not has_sasl:
        if _has_credentials(config):
            raise ClientConfigError(
                f"credentials for SASL have no effect with "
                f"security.protocol={config.security_protocol}: set SASL_PLAINTEXT or SASL_SSL"
            )
        return
    if config.sasl_mechanism is None:
        raise ClientConfigError(
            f"sasl.mechanism is missing: security.protocol={config.security_protocol} needs one "
            f"of {', '.join(MECHANISMS)}"
        )
    if config.sasl_mechanism == OAUTHBEARER:
        _token_source(config)
    else:
        _password_credentials(config)


def client_login(config: SaslKeys, runtime: Runtime) -> ClientLogin | None:
    """Return the credentials of a client; None if it does not log in."""
    if not config.security_protocol.startswith("SASL_"):
        return None
    assert config.sasl_mechanism is not None, "the configuration is checked"
    if config.sasl_mechanism == OAUTHBEARER:
        source, subject = _token_source(config)
        return TokenLogin(source, subject, runtime)
    user, password, extensions = _password_credentials(config)
    return PasswordLogin(
        config.sasl_mechanism, (user, password), runtime.executor, runtime.rng, extensions
    )


def _has_credentials(config: SaslKeys) -> bool:
    return any(
        (
            config.sasl_plain_username,
            config.sasl_plain_password,
            config.sasl_jaas_config,
            config.sasl_oauth_token_provider,
            config.sasl_oauthbearer_token_endpoint_url,
        )
    )


def _password_credentials(config: SaslKeys) -> tuple[str, str, dict[str, str]]:
    """Return user, password, and the extensions of SCRAM's first message."""
    user, password = config.sasl_plain_username, config.sasl_plain_password
    extensions: dict[str, str] = {}
    if config.sasl_jaas_config is not None:
        if user is not None or password is not None:
            raise ClientConfigError(
                f"{_JAAS} has the credentials, so that sasl.username and sasl.password "
                f"contradict it: leave one of both out"
            )
        module = _module(config.sasl_jaas_config, str(config.sasl_mechanism))
        user, password = module.username, module.password
        if module.options.get(TOKEN_AUTH, "").lower() == "true":
            extensions = {TOKEN_AUTH: "true"}
    if not user or not password:
        missing = "user name" if not user else "password"
        raise ClientConfigError(
            f"sasl.mechanism={config.sasl_mechanism} needs a {missing}: set sasl.username and "
            f'sasl.password, or {_JAAS} with username="..." password="..."'
        )
    return user, password, extensions


def _token_source(config: SaslKeys) -> tuple[TokenSource, str]:
    """Return the source of tokens, and the name of the client that error messages show."""
    options: dict[str, str] = {}
    if config.sasl_jaas_config is not None:
        options = _module(config.sasl_jaas_config, OAUTHBEARER).options
    extensions = _extensions(config, options)
    provider, url = config.sasl_oauth_token_provider, config.sasl_oauthbearer_token_endpoint_url
    if provider is not None:
        if url is not None:
            raise ClientConfigError(
                "sasl.oauth.token.provider and sasl.oauthbearer.token.endpoint.url contradict "
                "each other: leave one of both out"
            )
        if not callable(getattr(provider, "token", provider)):
            raise ClientConfigError(
                "sasl.oauth.token.provider is neither a function nor an object with a method token"
            )
        return from_provider(provider, extensions), "the token of sasl.oauth.token.provider"
    if url is not None and is_file_url(url):
        return _token_file(url, extensions)
    if url is not None:
        return _client_credentials(config, url, options, extensions)
    claims = options_with_prefix(options, CLAIM_OPTION)
    if "sub" in claims:
        return unsecured(claims), f"user {claims['sub']!r}"
    if config.enable_sasl_oauthbearer_unsecure_jwt:
        return _unsecured_of_librdkafka(config.sasl_oauthbearer_config or "", extensions)
    raise ClientConfigError(
        "sasl.mechanism=OAUTHBEARER needs tokens: set sasl.oauthbearer.token.endpoint.url with "
        "sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret, or to file:///PATH, or "
        "set sasl.oauth.token.provider"
    )


def _token_file(url: str, extensions: dict[str, str]) -> tuple[TokenSource, str]:
    try:
        return token_file(url, extensions), f"the token of {url}"
    except ValueError as error:
        raise ClientConfigError(f"sasl.oauthbearer.token.endpoint.url={url}: {error}") from None


def _client_credentials(
    config: SaslKeys, url: str, options: dict[str, str], extensions: dict[str, str]
) -> tuple[TokenSource, str]:
    # Kafka's clients before 4.1 have the credentials in the login module.
    client_id = config.sasl_oauthbearer_client_credentials_client_id or options.get("clientId")
    secret = config.sasl_oauthbearer_client_credentials_client_secret
    secret = secret or options.get("clientSecret")
    if not url.lower().startswith(("https://", "http://")):
        raise ClientConfigError(
            f"sasl.oauthbearer.token.endpoint.url={url} is no address: write https://HOST/PATH "
            f"or file:///PATH"
        )
    if not client_id or not secret:
        raise ClientConfigError(
            "sasl.oauthbearer.token.endpoint.url needs sasl.oauthbearer.client.id and "
            "sasl.oauthbearer.client.secret"
        )
    scope = config.sasl_oauthbearer_scope or options.get("scope")
    made = ClientCredentials(
        url,
        client_id,
        secret,
        scope,
        extensions,
        TrustSource(location=config.https_ca_location, certificates=config.https_ca_pem),
        config.sasl_oauthbearer_header_urlencode,
    )
    return made, f"the token of client {client_id!r}"


def _unsecured_of_librdkafka(text: str, extensions: dict[str, str]) -> tuple[TokenSource, str]:
    """Return a source of unsecured tokens, from NAME=VALUE pairs as librdkafka knows them."""
    pairs = dict(each.partition("=")[::2] for each in text.split())
    user = pairs.get("principal")
    if not user:
        raise ClientConfigError(
            "enable.sasl.oauthbearer.unsecure.jwt needs sasl.oauthbearer.config=principal=NAME"
        )
    claims: dict[str, object] = {pairs.get("principalClaimName", "sub"): user}
    if "scope" in pairs:
        claims[pairs.get("scopeClaimName", "scope")] = pairs["scope"].split(",")
    own = options_with_prefix(pairs, EXTENSION_OPTION)
    return unsecured(claims, {**extensions, **own}), f"user {user!r}"


def _extensions(config: SaslKeys, options: dict[str, str]) -> dict[str, str]:
    """Return the extensions of the configuration and of the login module."""
    found = options_with_prefix(options, EXTENSION_OPTION)
    for part in (config.sasl_oauthbearer_extensions or "").split(","):
        name, _, text = part.strip().partition("=")
        if name:
            found[name] = text
    try:
        check_extensions(found)
    except ValueError as error:
        raise ClientConfigError(f"sasl.oauthbearer.extensions: {error}") from None
    return found


def _module(text: str, mechanism: str) -> LoginModule:
    try:
        module = parse_jaas(_JAAS, text)
    except ConfigError as error:
        raise ClientConfigError(str(error)) from None
    expected = _MODULES.get(mechanism, SCRAM_MODULE)
    if module.class_name != expected:
        raise ClientConfigError(
            f"{_JAAS} names {module.class_name}, which is not for sasl.mechanism={mechanism}: "
            f"use {expected}"
        )
    return module
