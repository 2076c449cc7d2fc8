# SPDX-License-Identifier: GPL-2.0-only
"""The origins, stores and snapshots of dm-cowsnap: libcowsnap for Python.

    import cowsnap
    with cowsnap.Cowsnap() as c:
        made = c.snapshot("data", "logs")       # at one instant
        for origin in c.list():
            print(origin["name"], [s["used"] for s in origin["stores"]])
        for name in made:
            c.delete(name)
"""
import ctypes

ABI = 2
NO_MEMORY, NO_ACCESS, BAD_NAME, NONE, EXISTS, BUSY, MANAGED, TIMEOUT, REFUSED = range(-1, -10, -1)
# What is inside an item of each kind.
_ORIGIN, _STORE, _SNAPSHOT = 1, 2, 3
_INSIDE = {_ORIGIN: "stores", _STORE: "snapshots"}

_LINE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)


class _Extent(ctypes.Structure):
    _fields_ = [("offset", ctypes.c_uint64), ("length", ctypes.c_uint64)]


class Error(Exception):
    """What failed, in a sentence; .result is one of the numbers above."""

    def __init__(self, result, text):
        super().__init__(text)
        self.result = result


def _load():
    lib = ctypes.CDLL("libcowsnap.so.1")
    handle, name = ctypes.c_void_p, ctypes.c_char_p
    types = {
        "abi": (ctypes.c_int,),
        "open": (ctypes.c_int, ctypes.POINTER(handle)),
        "close": (None, handle),
        "error": (name, handle),
        "dry_run": (None, handle, _LINE, handle),
        "scan": (ctypes.c_int, handle),
        "first": (handle, handle),
        "next": (handle, handle),
        "inside": (handle, handle),
        "kind": (ctypes.c_int, handle),
        "key": (name, handle, ctypes.c_uint),
        "get": (name, handle, name),
        "number": (ctypes.c_uint64, handle, name),
        "is_number": (ctypes.c_int, handle, name),
        "snapshot": (ctypes.c_int, handle, ctypes.POINTER(name), ctypes.c_uint, ctypes.c_uint,
                     ctypes.POINTER(ctypes.c_uint)),
        "diff": (ctypes.c_int, handle, name, name, ctypes.POINTER(ctypes.POINTER(_Extent)),
                 ctypes.POINTER(ctypes.c_uint64)),
        "free_extents": (None, ctypes.POINTER(_Extent)),
        "delete": (ctypes.c_int, handle, name),
        "track": (ctypes.c_int, handle, name),
        "activate": (ctypes.c_int, handle, name, ctypes.c_int),
        "deactivate": (ctypes.c_int, handle, name),
    }
    for word, (result, *arguments) in types.items():
        function = getattr(lib, "cowsnap_" + word)
        function.restype, function.argtypes = result, arguments
    return lib


class Cowsnap:
    """A handle. For one thread at a time; use it in a with statement, or close() it."""

    def __init__(self):
        self._lib = _load()
        self._line = None
        self._handle = ctypes.c_void_p()
        result = self._lib.cowsnap_open(ctypes.byref(self._handle))
        if result:
            error = Error(result, self._error())
            self.close()
            raise error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Nothing may be done with it afterwards."""
        self._lib.cowsnap_close(self._handle)
        self._handle = ctypes.c_void_p()

    def _error(self):
        return self._lib.cowsnap_error(self._handle).decode()

    def _check(self, result):
        if result:
            raise Error(result, self._error())

    def dry_run(self, line):
        """Change nothing from now on; call line(text) with each line of dmsetup. None: do."""
        self._line = _LINE(lambda _, text: line(text.decode())) if line else _LINE()
        self._lib.cowsnap_dry_run(self._handle, self._line, None)

    def _item(self, item):
        lib, found, number = self._lib, {}, 0
        while key := lib.cowsnap_key(item, number):
            found[key.decode()] = (lib.cowsnap_number(item, key) if lib.cowsnap_is_number(item, key)
                                   else lib.cowsnap_get(item, key).decode())
            number += 1
        if inside := _INSIDE.get(lib.cowsnap_kind(item)):
            found[inside] = self._row(lib.cowsnap_inside(item))
        return found

    def _row(self, item):
        row = []
        while item:
            row.append(self._item(item))
            item = self._lib.cowsnap_next(item)
        return row

    def list(self):
        """All origins: dictionaries, with lists of "stores", with lists of "snapshots"."""
        self._check(self._lib.cowsnap_scan(self._handle))
        return self._row(self._lib.cowsnap_first(self._handle))

    def snapshot(self, *origins, seconds=10):
        """Snapshots of all these origins at one instant; their names."""
        names = (ctypes.c_char_p * len(origins))(*(name.encode() for name in origins))
        ids = (ctypes.c_uint * len(origins))()
        self._check(self._lib.cowsnap_snapshot(self._handle, names, len(origins), seconds, ids))
        return [f"{name}@{number}" for name, number in zip(origins, ids)]

    def diff(self, snapshot, other=None):
        """Where the snapshot other, or the origin as it is, may differ: [(offset, length), ...]."""
        extents, number = ctypes.POINTER(_Extent)(), ctypes.c_uint64()
        self._check(self._lib.cowsnap_diff(
            self._handle, snapshot.encode(), other.encode() if other else None,
            ctypes.byref(extents), ctypes.byref(number)))
        try:
            return [(e.offset, e.length) for e in extents[:number.value]]
        finally:
            self._lib.cowsnap_free_extents(extents)

    def delete(self, snapshot):
        """Delete one, which must not be in use."""
        self._check(self._lib.cowsnap_delete(self._handle, snapshot.encode()))

    def track(self, snapshot):
        """Give it up to a tracker: only what has changed since stays known."""
        self._check(self._lib.cowsnap_track(self._handle, snapshot.encode()))

    def activate(self, snapshot, writable=False):
        """Give it the device /dev/mapper/SNAPSHOT."""
        self._check(self._lib.cowsnap_activate(self._handle, snapshot.encode(), writable))

    def deactivate(self, snapshot):
        """Take that away again."""
        self._check(self._lib.cowsnap_deactivate(self._handle, snapshot.encode()))
