"""One module per API of the Kafka protocol: its request, its response and their structs."""
