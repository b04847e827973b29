"""Parts of the console's web pages: checks of requests, sessions, forms and templates."""
