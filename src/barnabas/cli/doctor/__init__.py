"""`barnabas doctor`: what is wrong with an address, a directory or a properties file."""
