"""The past of a cluster: series of values, the file and the server that keep them, and charts."""
