"""The start of a node: formatting, identity and checks of the data directories, failures."""
