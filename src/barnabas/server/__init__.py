"""The server process: nodes, listeners, request handling and the API handlers."""
