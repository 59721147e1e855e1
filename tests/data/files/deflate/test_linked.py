"""Functions of other libraries, called by compiled loops; what happens where they are out of reach."""

import hashlib
import math
import zlib
from types import SimpleNamespace

import numpy as np
import pytest

from segmeter.data.files.deflate import linked
from segmeter.jit import kernel

CONTENT = np.random.default_rng(0).integers(0, 9, 5000).astype(np.uint8)


@kernel
def sums(content, digest):
    start = content.ctypes.data
    linked_hash(start, content.size, digest.ctypes.data)
    return linked_crc(np.uint32(0), start, content.size), linked_adler(np.uint32(1), start, content.size)


@kernel
def inflate(packed, goal):
    decompressor = linked_alloc()
    failed = linked_inflate(decompressor, packed.ctypes.data, packed.size, goal.ctypes.data, goal.size, 0)
    linked_free(decompressor)
    return failed == 0


linked_hash, linked_crc, linked_adler = linked.sha256, linked.crc32, linked.adler32
linked_alloc, linked_free, linked_inflate = linked.alloc_decompressor, linked.free_decompressor, linked.zlib_decompress


def test_checksums_are_those_of_python():
    digest = np.zeros(32, np.uint8)
    assert sums(CONTENT, digest) == (zlib.crc32(CONTENT), zlib.adler32(CONTENT))
    assert digest.tobytes() == hashlib.sha256(CONTENT).digest()


@pytest.mark.parametrize("change", [None, "sum", "longer", "shorter"])
def test_a_stream_is_inflated_only_where_its_sum_and_its_length_are_right(change):
    packed = bytearray(zlib.compress(CONTENT))
    packed[-1] ^= change == "sum"
    goal = np.zeros(5000 + {"longer": 1, "shorter": -1}.get(change, 0), np.uint8)
    assert inflate(np.frombuffer(packed, np.uint8), goal) == (change is None)
    assert change or goal.tobytes() == CONTENT.tobytes()


def test_python_hashes_where_libcrypto_is_out_of_reach(monkeypatch):
    assert linked._find_hash() is not None
    monkeypatch.setattr(linked.hashlib, "sha256", type("Hash", (), {"__module__": "builtins"}))
    assert linked._find_hash() is None
    monkeypatch.undo()
    digest = np.zeros(32, np.uint8)
    linked._hash_by_python(CONTENT.ctypes.data, CONTENT.size, digest.ctypes.data)
    assert digest.tobytes() == hashlib.sha256(CONTENT).digest()


@pytest.mark.parametrize("path", [math.__file__, "none.so"], ids=["other library", "no library"])
def test_importing_fails_where_libdeflate_is_out_of_reach(path, monkeypatch):
    """Code from the cache on disk would end the process."""
    monkeypatch.setattr(linked, "import_module", lambda _: SimpleNamespace(__file__=path))
    with pytest.raises(ImportError, match="out of reach"):
        linked._link()
