"""Whether this Python suits Barnabas: its version, and profile-guided optimization (PGO).

Without PGO the broker needs about a fifth more processor time. pyenv and a bare `./configure` build
such a Python. The builds of Linux distributions, python.org, conda and uv are optimized.

`make setup` runs this file as a program: exit status 0 if Barnabas runs well with this Python.
"""

from __future__ import annotations

import sys
import sysconfig

UNOPTIMIZED = (
    "this Python was compiled without profile-guided optimization, so that the broker needs about "
    "a fifth more processor time"
)
OLDEST, NEWEST = (3, 11), (3, 14)
# Distributions may build both forms in their own way, and then do not pass the option.
_DISTRIBUTION_PREFIX = "/usr"


def is_optimized(arguments: str | None = None, base_prefix: str = sys.base_prefix) -> bool:
    """Return whether a Python was compiled with PGO.

    Args:
        arguments: The arguments of its `./configure`; None for those of this Python.
        base_prefix: The directory where it is installed.
    """
    if arguments is None:
        arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    return base_prefix == _DISTRIBUTION_PREFIX or "--enable-optimizations" in arguments


def has_packages(
    version: tuple[int, int] = sys.version_info[:2], flags: str = sys.abiflags
) -> bool:
    """Return whether all packages of `requirements.lock` have wheels for a Python.

    Args:
        version: The major and the minor version.
        flags: The flags of its binary interface; `t` is the free-threaded one.
    """
    return OLDEST <= version <= NEWEST and "t" not in flags


if __name__ == "__main__":
    import ensurepip  # noqa: F401 - some distributions have it in a package of its own

    sys.exit(not (has_packages() and is_optimized()))
