"""What advice must be like if following it can lose rows or repeat them."""

from __future__ import annotations

import re

# Commands, options and deeds that lose rows or repeat them.
DANGEROUS = re.compile(
    r"pipeline reset|failOnDataLoss=false|exactlyOnce=false|--accept"
    r"|(?:new|another) checkpoint|\bdelete (?!d)"
)
# A word for what is lost or repeated.
_COST = re.compile(
    r"\blost\b|\bloses?\b|\blacks?\b|\btwice\b|\bagain\b|second time|once more|costs?\b"
)


def assert_safe(advice: str) -> None:
    """Assert that dangerous advice comes after other advice, and says what it costs."""
    found = DANGEROUS.search(advice)
    if found is None:
        return
    assert advice[: found.start()].strip(), f"the first advice is dangerous: {advice}"
    assert _COST.search(advice), f"the cost is not named: {advice}"
