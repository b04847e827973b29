"""`barnabas bench` and `top`: generate load, and measure the load of a cluster."""
