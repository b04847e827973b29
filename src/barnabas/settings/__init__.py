"""The types with which each package declares its configuration keys, in its `config` module."""
