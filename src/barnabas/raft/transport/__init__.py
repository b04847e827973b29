"""The quorum's messages as requests and responses of the protocol."""
