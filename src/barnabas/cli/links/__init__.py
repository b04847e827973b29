"""Commands for links to other clusters."""
