"""The admin client: calls by area with their values, requests and responses."""
