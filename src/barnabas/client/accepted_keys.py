"""Keys of other clients that have no field in `ClientConfig`, by their names with "_" for ".".

`IGNORED` keys have no effect here and are accepted, so that properties files of other clients work.
A key whose effect would be missed is refused, with the reason.
"""

from __future__ import annotations

__all__ = ["IGNORED", "ONLY_VALUES", "UNSUPPORTED"]

IGNORED = frozenset({
    "auto_include_jmx_reporter", "client_dns_lookup", "enable_metrics_push",
    # Settings of a schema registry, which the command line uses.
    "basic_auth_credentials_source", "basic_auth_user_info", "schema_registry_url",
    "schema_registry_basic_auth_user_info", "schema_registry_bearer_auth_token",
    "schema_registry_ssl_ca_location", "schema_registry_ssl_certificate_location",
    "schema_registry_ssl_key_location", "key_subject_name_strategy", "value_subject_name_strategy",
    # Settings of the web console.
    "console_clusters", "console_connect", "console_metrics", "console_prometheus_labels",
    "console_prometheus_url",
    "interceptor_classes",
    "key_deserializer", "key_serializer", "log_level",
    "metric_reporters", "metrics_num_samples", "metrics_recording_level",
    "metrics_sample_window_ms", "receive_buffer_bytes",
    "sasl_oauthbearer_method", "send_buffer_bytes", "socket_connection_setup_timeout_max_ms",
    # How TLS is implemented in Java, and where Windows has its certificates.
    "ssl_ca_certificate_stores", "ssl_keymanager_algorithm", "ssl_protocol", "ssl_provider",
    "ssl_secure_random_implementation", "ssl_trustmanager_algorithm",
    # Kerberos: the mechanism GSSAPI itself is refused.
    "sasl_kerberos_keytab", "sasl_kerberos_kinit_cmd", "sasl_kerberos_min_time_before_relogin",
    "sasl_kerberos_principal", "sasl_kerberos_service_name", "sasl_kerberos_ticket_renew_jitter",
    "sasl_kerberos_ticket_renew_window_factor",
    # When Java's client gets new tokens, and how often it tries.
    "sasl_login_callback_handler_class", "sasl_login_connect_timeout_ms",
    "sasl_login_read_timeout_ms", "sasl_login_refresh_buffer_seconds",
    "sasl_login_refresh_min_period_seconds", "sasl_login_refresh_window_factor",
    "sasl_login_refresh_window_jitter", "sasl_login_retry_backoff_max_ms",
    "sasl_login_retry_backoff_ms", "sasl_oauthbearer_jwt_retriever_class",
    # Checks of tokens, which the broker makes.
    "sasl_oauthbearer_clock_skew_seconds", "sasl_oauthbearer_expected_audience",
    "sasl_oauthbearer_expected_issuer", "sasl_oauthbearer_jwks_endpoint_refresh_ms",
    "sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms",
    "sasl_oauthbearer_jwks_endpoint_retry_backoff_ms", "sasl_oauthbearer_jwks_endpoint_url",
    "sasl_oauthbearer_jwt_validator_class", "sasl_oauthbearer_scope_claim_name",
    "sasl_oauthbearer_sub_claim_name",
    "value_deserializer", "value_serializer",
})  # fmt: skip

# Keys with one value that is what this client does.
ONLY_VALUES = {
    "sasl_oauthbearer_grant_type": "client_credentials",
    "sasl_oauthbearer_metadata_authentication_type": "none",
}

_BY_OPENSSL = "OpenSSL's configuration file (environment variable OPENSSL_CONF) can set it"
_NO_ENGINE = "private keys are read from files: use ssl.key.location"
_NO_ASSERTION = (
    "tokens are requested by client credentials only: use sasl.oauth.token.provider for others"
)
_NO_CLASS = "a Java class cannot be used: see sasl.oauth.token.provider for tokens of your own"

# The reasons of refusals, each with a way out.
UNSUPPORTED = {
    "ssl_curves_list": _BY_OPENSSL,
    "ssl_sigalgs_list": _BY_OPENSSL,
    "ssl_providers": _BY_OPENSSL,
    "ssl_engine_id": _NO_ENGINE,
    "ssl_engine_location": _NO_ENGINE,
    "ssl_engine_factory_class": "a Java class cannot be used: set the keys of stores or PEM files",
    "sasl_client_callback_handler_class": _NO_CLASS,
    "sasl_login_class": _NO_CLASS,
    **{
        f"sasl_oauthbearer_assertion_{name}": _NO_ASSERTION
        for name in (
            "algorithm", "claim_aud", "claim_exp_seconds", "claim_iss", "claim_jti_include",
            "claim_nbf_include", "claim_nbf_seconds", "claim_sub", "file", "jwt_template_file",
            "private_key_file", "private_key_passphrase", "private_key_pem", "template_file",
        )
    },
    "sasl_oauthbearer_metadata_authentication_query": _NO_ASSERTION,
}  # fmt: skip
