"""HEALTHCHECK: ends with status 0 if the broker is ready, else with 1 and the reason."""

# ruff: noqa: INP001 - a script of the image, no part of a package

import sys
import urllib.error
import urllib.request

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9308"
TIMEOUT_S = 4

try:
    with urllib.request.urlopen(f"http://{ADDRESS}/readyz", timeout=TIMEOUT_S) as answer:
        sys.exit(answer.read().decode().strip() != "ok")
except urllib.error.HTTPError as error:
    sys.exit(error.read().decode().strip())
except OSError as error:
    sys.exit(f"{ADDRESS} does not answer: {error}")
