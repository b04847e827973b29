"""Connections to brokers, metadata, and lookups of topics and coordinators."""
