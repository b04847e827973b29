"""Security settings of listeners: protocols, and SASL."""
