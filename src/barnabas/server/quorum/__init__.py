"""Contact with the metadata quorum: probes of voters, loss of the quorum, its description."""
