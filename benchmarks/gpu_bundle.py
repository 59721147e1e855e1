"""Pack all that `benchmarks/gpu.py` needs into one file, for a machine without internet: build/gpu/gpu.pyz.

    python benchmarks/gpu_bundle.py --camvid PATH/camvid
    python gpu.pyz                                        there: unpack it once, and run a stage

The file holds the source, CamVid as it is, earlier records, and wheels of the packages that such a machine lacks, in
the versions of constraints.txt. Of imagecodecs, whose 28 MB are codecs for every kind of image, it holds the few that
segmeter itself calls. The wheels come from pip's index; `--machine-python` names Python's version there.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
WHEELS = (
    *("hydra-core", "omegaconf", "antlr4-python3-runtime", "pydantic", "pydantic_core", "annotated-types"),
    *("typing-inspection", "segmentation_models_pytorch", "zarr", "numcodecs", "donfig", "google-crc32c"),
    *(
        "imagecodecs",
        "msgspec",
        "filelock",
        "psutil",
        "monai",
    ),  # the last is a peer that tiles and losses are compared with
)
CODECS = ("_shared", "_shared_cython", "_deflate")  # modules of imagecodecs that src calls
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
SOURCE = ("src", "configs", "tests", "benchmarks", "pyproject.toml", "LICENSE")
LIMIT_MB = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--camvid", type=Path, default=ROOT.parent / "shared" / "data" / "camvid", help="its folder")
    parser.add_argument("--machine-python", default="3.12", help="version of Python on the machine")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "gpu" / "gpu.pyz")
    given = parser.parse_args()
    if not (given.camvid / "images").is_dir():
        parser.error(f"expected --camvid to be CamVid's folder, with images in it, got {given.camvid}")
    given.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        wheels = fetch_wheels(Path(scratch), given.machine_python)
        write_bundle(given.output, [*source(), *packages(wheels), *camvid(given.camvid)])
    size = given.output.stat().st_size / 1e6
    if size > LIMIT_MB:
        raise SystemExit(f"gpu_bundle: {given.output} has {size:.1f} MB, and {LIMIT_MB} are allowed")
    print(f"{given.output}: {size:.1f} MB")


def write_bundle(output: Path, files: list[tuple[str, bytes]]) -> None:
    """Return a zip that Python runs; its hash names the folder that it is unpacked to."""
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\n{hashlib.sha256(content).hexdigest()}\n".encode())
    unpacker = (HERE / "gpu_unpack.py").read_bytes()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in [("__main__.py", unpacker), ("digest", digest.hexdigest().encode()), *files]:
            bundle.writestr(name, content)


def source() -> Iterator[tuple[str, bytes]]:
    """Tracked and new files of the parts, the commit, and records of earlier stages."""
    yield "files/commit", git("describe", "--always", "--dirty", "--abbrev=40").strip().encode()
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", "-z", *SOURCE).split("\0")
    for path in sorted(ROOT / name for name in listed if name):
        name = path.relative_to(ROOT).as_posix()
        other = name.startswith("benchmarks/results/") and not name.startswith("benchmarks/results/gpu")
        if path.is_file() and not other:
            yield f"files/{name}", path.read_bytes()


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def camvid(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Return the original files, whose pictures are compressed as they are, so that figures are those of CamVid."""
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".jpg", ".png", ".txt")):
        yield f"files/camvid/{path.relative_to(folder).as_posix()}", path.read_bytes()


def fetch_wheels(folder: Path, python: str) -> list[Path]:
    """Binary wheels for the machine's Python; what exists as source only is built, if any Python can use it."""
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text("utf-8").split() if "==" in line)
    for package in WHEELS:
        asked = f"{package}=={pins[package]}" if package in pins else package
        common = ["--quiet", "--disable-pip-version-check", "--no-deps", asked]
        binary = ["--only-binary=:all:", f"--python-version={python}", *(f"--platform={name}" for name in PLATFORMS)]
        if pip("download", *common, *binary, "--dest", str(folder)):
            pip("wheel", *common, "--wheel-dir", str(folder), check=True)
    wheels = sorted(folder.glob("*.whl"))
    own = [path.name for path in wheels if path.name.endswith("any.whl") or "x86_64" in path.name]
    if len(own) != len(WHEELS):
        raise SystemExit(f"gpu_bundle: expected wheels of {', '.join(WHEELS)}, got {', '.join(own)}")
    return wheels


def pip(*arguments: str, check: bool = False) -> int:
    return subprocess.run([sys.executable, "-m", "pip", *arguments], check=check).returncode


def packages(wheels: list[Path]) -> Iterator[tuple[str, bytes]]:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
            if wheel.name.startswith("imagecodecs-"):
                names = called(archive, names)
            for name in names:
                yield f"files/packages/{name}", archive.read(name)


def called(archive: zipfile.ZipFile, names: list[str]) -> list[str]:
    """Choose files of imagecodecs: its Python, the codecs that src calls, and the libraries that these load."""
    extensions = [name for name in names if Path(name).suffix == ".so" and Path(name).name.split(".")[0] in CODECS]
    loaded = b"".join(archive.read(name) for name in extensions)
    libraries = [name for name in names if ".libs/" in name and Path(name).name.encode() in loaded]
    return [*(name for name in names if ".so" not in name), *extensions, *libraries]


if __name__ == "__main__":
    main()
