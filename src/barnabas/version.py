"""The version of this Barnabas: the one place, which the package's metadata reads too."""

__version__ = "0.1.0"
