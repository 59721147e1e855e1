"""The start of build/gpu/gpu.pyz: unpack it once, then run a stage of `benchmarks/gpu.py` from what it holds.

    python gpu.pyz                    a stage of nine minutes; the same command goes on
    python gpu.pyz --only tests       all arguments are those of benchmarks/gpu.py

It is unpacked to runs/gpu in the folder of the call, or to $SEGMETER_GPU. The record goes to $OUT, or to gpu-results in
the folder of the call.
"""

import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path


def main() -> None:
    place = Path(os.environ.get("SEGMETER_GPU", "runs/gpu")).absolute()
    place.mkdir(parents=True, exist_ok=True)
    folder = unpack(Path(sys.argv[0]), place)
    out = os.environ.get("OUT") or str(Path("gpu-results").absolute())
    command = [sys.executable, str(folder / "benchmarks" / "gpu.py"), "--camvid", str(folder / "camvid")]
    command += ["--work", str(place / "work"), "--out", out, *sys.argv[1:]]
    paths = os.pathsep.join(filter(None, [str(folder / "packages"), os.environ.get("PYTHONPATH")]))
    os.execve(sys.executable, command, os.environ | {"PYTHONPATH": paths})


def unpack(bundle: Path, place: Path) -> Path:
    """Return the folder of what the bundle holds, made whole or not at all."""
    with zipfile.ZipFile(bundle) as archive:
        folder = place / archive.read("digest").decode()[:12]
        if not folder.is_dir():
            scratch = Path(tempfile.mkdtemp(dir=place))
            archive.extractall(scratch)
            os.replace(scratch / "files", folder)
            shutil.rmtree(scratch)
    return folder


if __name__ == "__main__":
    main()
