"""Functions of libc, and of libdeflate and libcrypto as imagecodecs and hashlib use them, for compiled loops to call.

A compiled loop that calls them itself keeps the interpreter out of reading a file: each of the short calls would take
its lock again, and threads would wait for one another. Importing this raises ImportError where imagecodecs holds
libdeflate inside, out of reach.
"""

import ctypes
import hashlib
import sys
from importlib import import_module

from llvmlite import binding
from numba import types

_PREFIX = "segmeter_"  # no other package's symbols
_LIBDEFLATE = (
    "libdeflate_alloc_decompressor",
    "libdeflate_free_decompressor",
    "libdeflate_zlib_decompress",
    "libdeflate_crc32",
    "libdeflate_adler32",
)
_LIBC = ("open", "pread", "close", "memmove")
_HASH = "SHA256"
_size, _address, _number = types.uintp, types.uintp, types.int32


def _declare(name: str, result: types.Type, *arguments: types.Type) -> types.ExternalFunction:
    return types.ExternalFunction(_PREFIX + name, result(*arguments))


alloc_decompressor = _declare(_LIBDEFLATE[0], _address)
free_decompressor = _declare(_LIBDEFLATE[1], types.void, _address)
# decompressor, stream and its size, goal and its size, 0 for a goal that must be filled; 0 where all is in order
zlib_decompress = _declare(_LIBDEFLATE[2], _number, *[_address] * 6)
crc32 = _declare(_LIBDEFLATE[3], types.uint32, types.uint32, _address, _size)  # the sum of what came before, content
adler32 = _declare(_LIBDEFLATE[4], types.uint32, types.uint32, _address, _size)
open_file = _declare(_LIBC[0], _number, _address, _number)  # name and flags
read_at = _declare(_LIBC[1], types.intp, _number, _address, _size, types.int64)  # not of what has no places, as a pipe
close_file = _declare(_LIBC[2], _number, _number)
move = _declare(_LIBC[3], _address, _address, _address, _size)  # to where, from where, bytes
# content and its size, 32 bytes for the hash; their address, or another where there is no hash
sha256 = _declare(_HASH, _address, _address, _size, _address)


def _find_hash() -> object | None:
    """That of libcrypto, which uses what the processor has for it; None where Python holds it inside."""
    module = sys.modules.get(hashlib.sha256.__module__)
    path = getattr(module, "__file__", None)
    return getattr(ctypes.CDLL(path), _HASH, None) if path else None


def _hash(content: int, size: int, goal: int) -> int:
    ctypes.memmove(goal, hashlib.sha256((ctypes.c_char * size).from_address(content)).digest(), 32)
    return goal


_hash_by_python = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)(_hash)


def _link() -> None:
    """Make the functions known to the compiler: code from its cache on disk that misses one ends the process."""
    try:
        library = ctypes.CDLL(import_module("imagecodecs._deflate").__file__)
        found = {name: getattr(library, name) for name in _LIBDEFLATE}
        found |= {name: getattr(ctypes.CDLL(None), name) for name in _LIBC}
    except (OSError, AttributeError, TypeError) as error:  # TypeError: of CDLL(None), where that is no library
        raise ImportError(f"libdeflate and libc are out of reach: {error}") from error
    for name, function in (found | {_HASH: _find_hash() or _hash_by_python}).items():
        binding.add_symbol(_PREFIX + name, ctypes.cast(function, ctypes.c_void_p).value)


_link()
