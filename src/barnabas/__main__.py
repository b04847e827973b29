"""`python -m barnabas`: the command `barnabas`, without its script on the path."""

from __future__ import annotations

from barnabas.cli.main import main

if __name__ == "__main__":
    main()
