"""Removes Linux-only system calls from every Python process that imports this file.

Python imports `sitecustomize` automatically if its directory is in PYTHONPATH.
"""

import ctypes
import fcntl
import os
import resource

for _name in ("fdatasync", "pwritev", "sendfile", "posix_fadvise", "posix_fallocate", "eventfd"):
    if hasattr(os, _name):
        delattr(os, _name)
for _name in ("F_OFD_SETLK", "F_OFD_SETLKW", "F_OFD_GETLK"):
    if hasattr(fcntl, _name):
        delattr(fcntl, _name)

_set = resource.setrlimit
_get = resource.getrlimit
_LIMIT = 10_240


def _getrlimit(which):
    """Return an infinite hard limit of open files, like macOS."""
    soft, hard = _get(which)
    return (256, resource.RLIM_INFINITY) if which == resource.RLIMIT_NOFILE else (soft, hard)


def _setrlimit(which, limits):
    """Refuse limits above the maximum, like macOS."""
    if which == resource.RLIMIT_NOFILE:
        if limits[0] == resource.RLIM_INFINITY or limits[0] > _LIMIT:
            raise ValueError("not allowed to raise maximum limit")
        limits = (min(limits[0], _get(which)[1]), _get(which)[1])
    _set(which, limits)


resource.getrlimit = _getrlimit
resource.setrlimit = _setrlimit

_load = ctypes.CDLL


class _Library:
    """The C library without the functions of Linux."""

    def __init__(self, *words, **options):
        self._library = _load(*words, **options)

    def __getattr__(self, name):
        if name in ("prctl", "syncfs"):
            raise AttributeError(name)
        return getattr(self._library, name)


ctypes.CDLL = _Library

if os.environ.get("ABSENT_NOTE"):
    with open(os.environ["ABSENT_NOTE"], "a") as _note:
        _note.write(f"{os.getpid()}\n")
