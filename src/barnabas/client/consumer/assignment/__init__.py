"""What a consumer is subscribed and assigned to, and its positions."""
