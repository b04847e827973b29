"""Being a member of a consumer group: the classic protocol, that of KIP-848, and the assignors."""
