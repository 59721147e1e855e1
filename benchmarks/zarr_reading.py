"""How long label maps in Zarr take to read, and how much of that is decoding: what imagecodecs could save at most.

Each map is 2048x2048 in chunks of 512, as `segmeter` writes them or packed otherwise. `read_values` is the whole reader
with its checks and the hash; "decoding" is imagecodecs on the same chunks' bytes, or nothing where they are stored as
they are; zarr alone is `open_array` and a slice of everything. CPU milliseconds a map, best of some rounds.

    python benchmarks/zarr_reading.py [rounds]      writes benchmarks/results/zarr_reading.json
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from record import RESULTS, circumstances, write_record
from segmeter.data.masks.reading import read_values

SIDE, CHUNK, K = 2048, 512, 19
PACKERS: dict[str, tuple[Any, Callable[[bytes], bytes] | None]] = {
    "zstd": (ZstdCodec(level=3), imagecodecs.zstd_decode),
    "gzip": (GzipCodec(level=5), imagecodecs.gzip_decode),
    "blosc": (BloscCodec(cname="lz4"), imagecodecs.blosc_decode),
    "none": (None, None),
}


def label_map() -> np.ndarray:
    """Flat regions with specks."""
    rng = np.random.default_rng(0)
    labels = np.kron(rng.integers(0, K, (32, 32)), np.ones((SIDE // 32, SIDE // 32), int)).astype(np.uint8)
    specks = rng.random(labels.shape) < 0.002
    labels[specks] = rng.integers(0, K, specks.sum())
    return labels


def best_ms(work: Callable[[], object], rounds: int) -> float:
    took = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        took.append(1000 * (time.process_time() - start))
    return min(took)


def measure(path: Path, packer: Any, decode: Callable[[bytes], bytes] | None, rounds: int) -> dict[str, float]:
    labels = label_map()
    array = zarr.create_array(path, shape=labels.shape, chunks=(CHUNK, CHUNK), dtype="u1", compressors=packer)
    array[:] = labels
    chunks = [file.read_bytes() for file in sorted((path / "c").rglob("*")) if file.is_file()]

    def read() -> np.ndarray:
        return read_values(path, max_pixels=SIDE * SIDE).values

    assert np.array_equal(read(), labels)
    assert decode is None or sum(len(decode(chunk)) for chunk in chunks) == labels.nbytes
    return {
        "read_values_ms": best_ms(read, rounds),
        "zarr_alone_ms": best_ms(lambda: zarr.open_array(path, mode="r")[:], rounds),
        "decoding_ms": best_ms(lambda: [decode(chunk) for chunk in chunks] if decode else None, rounds),
    }


def main(rounds: int = 20) -> None:
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (packer, decode) in PACKERS.items():
            rows[name] = measure(Path(folder) / f"{name}.zarr", packer, decode, rounds)
            print(name, ", ".join(f"{what} {ms:.2f}" for what, ms in rows[name].items()))
    shape = {"side": SIDE, "chunk": CHUNK, "rounds": rounds}
    write_record(RESULTS / "zarr_reading.json", circumstances("zarr", "imagecodecs") | shape | {"rows": rows})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
