"""Takes away what another operating system lacks (SYSTEM_MASK, see `masking.py`).

Python imports `sitecustomize` automatically if its directory is in PYTHONPATH.

Linux: only modules are taken away.

macOS: `sys.platform` is "darwin". Limits of open files are as on macOS. Locks of open file
descriptions are refused. Stand-ins for what only macOS has: kqueue by `poll`, and `_scproxy`
without proxies. F_FULLFSYNC is absent.

Windows: `sys.platform` stays, because packages would import modules of Windows. Event loops refuse
to watch descriptors and signals, as on Windows. Paths stay those of POSIX.
"""

import contextlib
import errno
import json
import os
import sys
import types

# Modules of the standard library that need the system as it is when they are imported.
_EARLY = ("asyncio", "getpass", "multiprocessing", "shutil", "ssl", "subprocess", "tempfile")


class _Blocker:
    """Refuses the import of modules."""

    def __init__(self, names):
        self._names = set(names)

    def find_spec(self, name, path=None, target=None):
        if name in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _apply(mask):
    if mask["system"] == "linux":
        _block(mask["modules"])
        return
    if mask["system"] == "darwin":
        _look_like_macos()
    # First, because asyncio chooses its selector when it is imported.
    _remove("select", mask["names"].pop("select"))
    if mask["system"] == "darwin":
        _import_psutil()
    else:
        for name in _EARLY:
            __import__(name)
        _look_like_windows()
    for module, names in mask["names"].items():
        _remove(module, names)
    _remove_functions(mask["library"])
    _block(mask["modules"])


def _block(modules):
    for name in modules:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Blocker(modules))


def _remove(module, names):
    for name in names:
        delattr(__import__(module), name)


def _look_like_macos():
    sys.platform = "darwin"
    proxies = types.ModuleType("_scproxy")
    proxies._get_proxies = proxies._get_proxy_settings = dict
    sys.modules["_scproxy"] = proxies
    _use_macos_locks()
    _limit_open_files()
    _add_kqueue()


def _import_psutil():
    """Import psutil as on Linux: its compiled module for macOS does not exist here."""
    # What psutil imports belongs to macOS.
    __import__("subprocess")
    sys.platform = "linux"
    with contextlib.suppress(ImportError):
        __import__("psutil")
    sys.platform = "darwin"


def _use_macos_locks():
    """Use the numbers of macOS. Linux refuses them, as macOS refuses Linux's `struct flock`."""
    import fcntl

    fcntl.F_OFD_SETLK, fcntl.F_OFD_SETLKW, fcntl.F_OFD_GETLK = 90, 91, 92


def _add_kqueue():
    """Add the part of kqueue that selectors and our code use."""
    import select

    poll, peer_ended = select.poll, select.POLLRDHUP | select.POLLHUP | select.POLLERR
    events = {-1: select.POLLIN | select.POLLRDHUP, -2: select.POLLOUT}

    class Event:
        def __init__(self, ident, kind=-1, flags=1):
            self.ident, self.filter, self.flags = ident, kind, flags

    class Queue:
        def __init__(self):
            self._file = os.open(os.devnull, os.O_RDONLY)
            self._watched = set()

        def fileno(self):
            return self._file

        def close(self):
            os.close(self._file)

        def control(self, changes, maximum, timeout=None):
            for each in changes or ():
                change = self._watched.add if each.flags & 1 else self._watched.discard
                change((each.ident, each.filter))
            if not maximum:
                return []
            poller = poll()
            for ident, _ in self._watched:
                wanted = [events[kind] for other, kind in self._watched if other == ident]
                poller.register(ident, wanted[0] | wanted[-1])
            found = dict(poller.poll(None if timeout is None else timeout * 1000))
            # Closed files are no longer watched.
            closed = {ident for ident, event in found.items() if event & select.POLLNVAL}
            self._watched = {each for each in self._watched if each[0] not in closed}
            ready = [
                Event(ident, kind, 0x8000 if found[ident] & peer_ended else 0)
                for ident, kind in self._watched
                if found.get(ident, 0) & (events[kind] | peer_ended)
            ]
            return ready[:maximum]

    select.kqueue, select.kevent = Queue, Event
    select.KQ_FILTER_READ, select.KQ_FILTER_WRITE = -1, -2
    select.KQ_EV_ADD, select.KQ_EV_DELETE, select.KQ_EV_EOF = 1, 2, 0x8000


def _limit_open_files():
    import resource

    read, change = resource.getrlimit, resource.setrlimit
    # The limits of a process in a terminal. A change is kept here and, as far as it may, by Linux.
    shown = (256, resource.RLIM_INFINITY)

    def getrlimit(which):
        return shown if which == resource.RLIMIT_NOFILE else read(which)

    def setrlimit(which, limits):
        nonlocal shown
        if which == resource.RLIMIT_NOFILE:
            if limits[0] == resource.RLIM_INFINITY or limits[0] > 10_240:
                raise ValueError("not allowed to raise maximum limit")
            shown = tuple(limits)
            hard = read(which)[1]
            limits = (min(limits[0], hard), hard)
        change(which, limits)

    resource.getrlimit, resource.setrlimit = getrlimit, setrlimit


def _remove_functions(absent):
    import ctypes

    load = ctypes.CDLL

    class Library:
        """A C library without some functions."""

        def __init__(self, *words, **options):
            self._library = load(*words, **options)

        def __getattr__(self, name):
            if name in absent:
                raise AttributeError(name)
            return getattr(self._library, name)

    ctypes.CDLL = Library


def _look_like_windows():
    import asyncio
    import select
    import socket

    def refuse(*_words, **_options):
        raise NotImplementedError

    loop = asyncio.SelectorEventLoop
    for name in ("signal_handler", "reader", "writer"):
        setattr(loop, f"add_{name}", refuse)
    pair, family, wait = socket.socketpair, socket.AF_UNIX, select.select
    socket.socketpair = lambda *words: pair(*(words or (family,)))

    def select_sockets(readers, writers, others, timeout=None):
        for each in (*readers, *writers, *others):
            descriptor = each if isinstance(each, int) else each.fileno()
            if not os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                raise OSError(errno.ENOTSOCK, "not a socket")
        return wait(readers, writers, others, timeout)

    select.select = select_sockets


if os.environ.get("SYSTEM_MASK"):
    with open(os.environ["SYSTEM_MASK"]) as _file:
        _apply(json.load(_file))
if os.environ.get("SYSTEM_MASK_NOTE"):
    with open(os.environ["SYSTEM_MASK_NOTE"], "a") as _note:
        _note.write(f"{os.getpid()}\n")
