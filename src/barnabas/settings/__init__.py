"""The config-key type with which each package declares its own keys in its `config` module."""
