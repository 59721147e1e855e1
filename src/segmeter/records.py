"""Reads the JSON and YAML files of runs and checkpoints, and records versions, source and machine.

Files may come from anywhere. They must be regular files, never links, pipes or devices, of bounded size and depth, and
of the form that a model describes. Every problem is one line that names the file.
"""

import errno
import json
import os
import platform
import stat
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import psutil
import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

import segmeter
from segmeter.errors import DataError, InputError
from segmeter.files import describe_file, json_bytes, link_error, open_file, sha256_json
from segmeter.threads import count_cores, describe_waiting

RUN = "run.json"
CONFIG = "config.yaml"
MANIFEST = "manifest.json"  # of a run; `segmeter.evaluation.manifest` writes it
PACKAGES = [
    "torch", "torchvision", "segmentation-models-pytorch", "timm", "numpy", "scipy", "scikit-image", "hydra-core",
    "omegaconf", "pillow", "tifffile", "imagecodecs", "zarr", "safetensors", "pyarrow", "rich", "jinja2",
    "numba",
]  # fmt: skip
MOST_BYTES = 1 << 28
MOST_OF_CASES = 1 << 32  # A file with an entry per case or step may be larger: this suits some ten million entries.
MOST_YAML = 1 << 22
_SCHEMA = 1  # The version of run.json. Older files have neither this nor a seal.
_LISTED = (CONFIG, MANIFEST)  # run.json keeps the hashes of these files.
_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
_REMEDY = "Restore the file, or make it again."
_adapter = cache(TypeAdapter[Any])


class Form(BaseModel):
    """Base class of forms, which check the keys that readers rely on and allow others."""

    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)


class FileEntry(Form):
    """Size and hash of a file, as `segmeter.files.describe_file` returns them."""

    bytes: int
    sha256: str


class RunRecord(Form):
    """run.json of a run."""

    command: str = ""
    state: str = ""
    start: str = ""
    argv: list[str] = Field(default_factory=list)
    overrides: list[str] = Field(default_factory=list)
    planned: dict[str, Any] = Field(default_factory=dict)
    planned_steps: int = 0
    result: dict[str, Any] = Field(default_factory=dict)
    merged: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, Any] = Field(default_factory=dict)
    files: dict[str, FileEntry] = Field(default_factory=dict)


class Summary(Form):
    """metrics.json of an evaluation."""

    n_cases: int | None = None
    convention: str = ""
    classes: list[str] = Field(default_factory=list)
    bootstrap: dict[str, Any] = Field(default_factory=dict)
    mean_classes: list[str] = Field(default_factory=list)
    measure_settings: list[dict[str, Any]] = Field(default_factory=list)
    per_class: dict[str, dict[str, Any]] = Field(default_factory=dict)
    per_group: dict[str, dict[str, Any]] = Field(default_factory=dict)


def open_own(path: Path, *, most: int = MOST_BYTES) -> IO[bytes]:
    """Open a file of a run for reading.

    Raises
    ------
    InputError
        It is a link or another irregular file, such as a pipe, or has more than `most` bytes.
    OSError
        It can't be opened.
    """
    try:
        handle = open_file(path, os.O_RDONLY)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise link_error(path) from error
        raise OSError(error.errno, error.strerror, str(path)) from error
    state = os.fstat(handle)
    kind = stat.S_IFMT(state.st_mode)
    if kind == stat.S_IFREG and state.st_size <= most:
        return os.fdopen(handle, "rb")
    os.close(handle)
    if kind == stat.S_IFREG:
        raise _damaged(path, f"it has {state.st_size} bytes, more than {most}")
    raise InputError(f"{path}: expected a regular file, got {_KINDS.get(kind, 'a device')}. Remove it.")


def read_own(path: Path, *, most: int = MOST_BYTES) -> bytes:
    """Read a file of a run; raises as `open_own`."""
    with open_own(path, most=most) as file:
        return file.read(os.fstat(file.fileno()).st_size)  # read(most) would allocate that much


def read_json(path: Path, form: Any = dict[str, Any], *, most: int = MOST_BYTES) -> dict[str, Any]:
    """Read JSON of a form, such as `RunRecord`.

    Raises
    ------
    InputError
        It is not a regular file, too large, nested too deep, not JSON, or of another form.
    OSError
        It can't be opened.
    """
    return parse_json(path, read_own(path, most=most), form)


def parse_json(path: Path, text: bytes | str, form: Any = dict[str, Any]) -> dict[str, Any]:
    """Parse JSON that was read from `path`; raises as `read_json`."""
    try:
        content: dict[str, Any] = from_json(text)
        _adapter(form).validate_python(content, strict=True)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(map(str, problem["loc"]))
        raise _damaged(path, f"{key}: {problem['msg']}" if key else problem["msg"]) from error
    except ValueError as error:
        is_deep = "recursion limit" in str(error)
        raise _damaged(path, "it is nested too deep" if is_deep else f"it is not JSON: {error}") from error
    return content


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Read a JSON object per line, except for a last line that a crash cut short; raises as `read_json`."""
    lines = read_own(path, most=MOST_OF_CASES).split(b"\n")[:-1]
    return [parse_json(Path(f"{path}, line {number}"), line) for number, line in enumerate(lines, start=1)]


class _Loader(yaml.SafeLoader):
    """Builds plain values; refuses aliases, with which a short file could expand beyond memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Build one node; PyYAML calls this for each value."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has aliases (*name)")
        return super().compose_node(parent, index)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping from YAML, such as a run's config.yaml; raises as `read_json`."""
    content = read_own(path, most=MOST_YAML)
    try:
        values = yaml.load(content, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        is_deep = isinstance(error, RecursionError)
        raise _damaged(path, "it is nested too deep" if is_deep else str(error)) from error
    if not isinstance(values, dict):
        raise _damaged(path, "it holds no mapping")
    return {str(key): value for key, value in values.items()}


def read_run(folder: Path) -> dict[str, Any]:
    """Read run.json of a run; raises as `read_json`, or InputError if it was changed since the run wrote it."""
    record = read_json(folder / RUN, RunRecord)
    if ("schema" in record or "sha256" in record) and record != seal(record):
        raise InputError(f"{folder / RUN}: was changed or damaged since it was written (sha256 differs). {_REMEDY}")
    return record


def seal_run(record: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Add to the content of run.json the hashes of the files beside it, and its own."""
    listed = _LISTED if record.get("state") != "running" else (CONFIG,)  # a running job's manifest still changes
    files = {name: describe_file(folder / name) for name in listed if (folder / name).is_file()}
    content = {"schema": _SCHEMA, **record, "files": files}
    return seal(from_json(json_bytes(content)))  # as it will be read: keys become text, and tuples lists


def flatten(values: Mapping[str, Any], *, separator: str = ".", prefix: str = "") -> dict[str, Any]:
    """Flatten nested values: each key becomes "group.key", and each value what JSON would make of it.

    Examples
    --------
    >>> flatten({"data": {"names": ("a", "b"), "root": None}})
    {'data.names': ['a', 'b'], 'data.root': None}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, separator=separator, prefix=f"{prefix}{key}{separator}")
        else:
            flat[f"{prefix}{key}"] = json.loads(json.dumps(value, default=str))
    return flat


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Add the sha256 of the content (without this entry itself), so that edits are noticed."""
    return {**content, "sha256": sha256_json({key: value for key, value in content.items() if key != "sha256"})}


def _damaged(path: Path, reason: str) -> DataError:
    return DataError(f"{path}: is damaged, or was not written by segmeter ({' '.join(reason.split())}). {_REMEDY}")


def cache_folder() -> Path:
    """Return the folder of caches between runs: $SEGMETER_CACHE, or segmeter/ in $XDG_CACHE_HOME or ~/.cache."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "segmeter")
    return Path(os.environ.get("SEGMETER_CACHE") or usual)


def versions() -> dict[str, str | None]:
    """Return the versions of segmeter, Python and the packages that segmeter uses; None for a missing one."""
    found: dict[str, str | None] = {"segmeter": segmeter.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def hardware() -> dict[str, Any]:
    """Describe the processor, the cores that this process may use, memory, and the CUDA devices if torch is loaded."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        cpu = names[0] if names else platform.machine()
    except OSError:
        cpu = platform.processor()
    facts: dict[str, Any] = {
        "os": platform.platform(),
        "cpu": cpu,
        "cores": count_cores(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
    }
    torch = sys.modules.get("torch")  # asking about GPUs must not cost a torch import
    if torch is not None:
        facts["threads"] = torch.get_num_threads()
        facts["waiting"] = describe_waiting()
        facts["cuda"] = torch.version.cuda
        facts["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return facts


def source() -> dict[str, str | bool | None]:
    """Return the commit of the working folder's repository and whether it has changes; None where unknown."""
    lines = _git("status", "--porcelain=v2", "--branch", "--untracked-files=no")
    if lines is None:  # no repository, or one too large to look through in time
        head = _git("rev-parse", "HEAD")
        return {"commit": head[0].decode() if head else None, "dirty": None}
    name = next((line.split()[-1] for line in lines if line.startswith(b"# branch.oid ")), b"")
    commit = name.decode() if name.isalnum() else None  # git names it "(initial)" before the first commit
    return {"commit": commit, "dirty": any(line[:1] != b"#" for line in lines) if commit else None}


def _git(*arguments: str) -> list[bytes] | None:
    """Return the lines that git prints, as bytes: names of branches may be in any encoding."""
    try:
        return subprocess.run(["git", *arguments], capture_output=True, timeout=10, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
