"""Packages that only some features need. They are imported at their first use.

An installation by pip has all of them. Without one, the rest works, and the error of its feature
says what to install.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Packages whose name is not that of their module.
_PACKAGE_OF = {"re2": "google-re2", "prometheus_client": "prometheus-client"}


class MissingPackageError(ImportError):
    """A package that a feature needs is not installed."""

    def __init__(self, module: str, feature: str) -> None:
        package = _PACKAGE_OF.get(module, module)
        super().__init__(
            f"{feature} needs the package {package}, which is not installed: pip install {package}",
            name=module,
        )


@contextmanager
def needed_for(feature: str) -> Iterator[None]:
    """Import packages in this block that only a feature needs.

    Args:
        feature: The feature, as the subject of the error's sentence.

    Raises:
        MissingPackageError: One of the packages is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        raise MissingPackageError(module, feature) from None
