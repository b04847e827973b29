"""Parts that several commands share."""
