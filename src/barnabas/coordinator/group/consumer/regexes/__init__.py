"""Regular expressions in the subscriptions of consumer groups."""
