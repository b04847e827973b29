"""Avro: serializers, schemas, and columns of Arrow."""
