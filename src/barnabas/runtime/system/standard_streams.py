"""Makes sure that the descriptors 0 to 2 are open, and that standard output can be written.

A process may be started with a closed standard stream (`2>&-`). Its next file or socket would get
that number: messages would be written into a data file, and uvloop aborts when such a socket is
closed.
"""

from __future__ import annotations

import os
import sys

# Names in the module sys, and modes, of the descriptors 0 to 2.
_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_standard_descriptors() -> None:
    """Open the null device on each closed descriptor of 0 to 2."""
    for number in range(len(_STREAMS)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            # Child processes inherit standard streams. `dup2` makes the copy inheritable.
            if opened == number:
                os.set_inheritable(number, True)
            else:
                os.dup2(opened, number)
                os.close(opened)


def open_standard_streams() -> None:
    """Open closed descriptors, and set the missing streams of the module sys."""
    open_standard_descriptors()
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def discard_standard_output() -> None:
    """Replace standard output by the null device, after a write to it has failed.

    Otherwise writing the remaining buffer at the end of the process would fail too.
    """
    opened = os.open(os.devnull, os.O_WRONLY)
    os.dup2(opened, sys.stdout.fileno())
    os.close(opened)
