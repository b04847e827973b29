"""Admin calls on ACLs, SCRAM credentials and delegation tokens."""
