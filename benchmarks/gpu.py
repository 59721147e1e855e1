"""Everything that only a GPU can show, in stages of nine minutes: `make gpu` runs them all, 40 minutes at most.

The parts run in order of worth, each in its own process and within its own time limit, so that one that fails or is
slow never costs the others. One call is one stage. It keeps what a part found as soon as that ends, and leaves out
what an earlier stage has done with the same code on the same machine. A part that a stage cuts short goes on where it
was stopped, or starts again in a stage that has time for all of it. The record gpu-NAME.json and a table in Markdown
go to --out. Nothing is installed: packages that Python lacks may lie in folders that PYTHONPATH names.

    python benchmarks/gpu.py --camvid PATH
    python benchmarks/gpu.py --only tests,bridge
    python benchmarks/gpu.py --device cpu --quick        the same code on a CPU, without the parts that need a GPU
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

START = time.monotonic()  # a stage's time is that of its process
HERE = Path(__file__).parent
ROOT = HERE.parent
NEEDED = (
    *("torch", "torchvision", "segmentation_models_pytorch", "timm", "numpy", "scipy", "skimage", "hydra", "omegaconf"),
    *("antlr4", "yaml", "pydantic", "PIL", "tifffile", "zarr", "numcodecs", "safetensors", "pyarrow", "imagecodecs"),
    *("filelock", "psutil"),
    *("imagecodecs._deflate", "imagecodecs._zstd"),  # which it imports once they are called
    *("rich", "jinja2", "markupsafe", "numba", "llvmlite", "lazy_loader", "packaging", "typing_extensions", "pytest"),
)


def import_needed() -> None:
    """Import all that the parts stand on, as a package that is there may itself lack another; name all that fails."""
    missing = []
    for name in NEEDED:
        try:
            import_module(name)
        except ImportError as error:
            missing.append(f"{name} ({error})")
    if missing:
        remedy = "Name their folder in PYTHONPATH, install them, or use the file that benchmarks/gpu_bundle.py writes."
        raise SystemExit(f"gpu.py: Python can't import {', '.join(missing)}. {remedy}")


if __name__ == "__main__":
    import_needed()
sys.path.insert(0, str(ROOT / "src"))  # segmeter itself need not be installed

import torch  # noqa: E402

from gpu_parts import PARTS, Part  # noqa: E402
from record import RESULTS, circumstances, write_record  # noqa: E402
from segmeter.records import source  # noqa: E402

SAME = ("code", "quick", "versions", "driver", "machine")  # where figures may stand in one table
CUT = "cut short, goes on in the next stage"
ENDED_BADLY = ("failed", "ran out of time")  # such parts are run again once all others have had their turn


@dataclass(frozen=True, kw_only=True)
class Result:
    """How and when a part ended, and its rows: work, needs, measured, met (null: nothing to reach) and a note.

    `seconds` is that of all stages that it took; `load` is the machine's average over the last minute, before and after
    the last of them.
    """

    state: str
    seconds: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)
    load: tuple[float, float] | None = None
    date: str = ""
    output: str = ""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the part in progress is ended too
    arguments = parse()
    record = describe(arguments)
    kind = "-quick" if arguments.quick else ""
    name = f"gpu-{device_name(arguments.device)}{kind}.json"
    paths = [folder / name for folder in (RESULTS, arguments.work, arguments.out)]
    kept = {} if arguments.fresh else read_kept(paths, record)
    arguments.work = arguments.work / record["code"]  # runs of other code are not gone on with
    for part_name in sorted(PARTS, key=lambda each: kept.get(each, {}).get("state", "").startswith(ENDED_BADLY)):
        part, before = PARTS[part_name], Result(**kept.get(part_name, {"state": "not run"}))
        if before.state == "done" or not wanted(part_name, arguments):
            continue
        left = START + 60 * arguments.minutes - time.monotonic()
        if left >= part.least_s:
            limit = left if arguments.quick else min(part.limit_s, left)  # a CPU may be slow
            before = run_part(part_name, part, arguments, seconds=limit, before=before)
        elif part_name not in kept:
            before = Result(state=f"not run: this stage had less than {part.least_s:.0f} s left")
        kept[part_name] = asdict(before)
        publish(record, kept, paths[1:])
    print(table(record, kept))
    left_over = [name for name in PARTS if wanted(name, arguments) and kept.get(name, {}).get("state") != "done"]
    print(f"Not done yet: {', '.join(left_over)}. The same command goes on." if left_over else "All is done.")


def publish(record: dict[str, Any], kept: dict[str, Any], paths: list[Path]) -> None:
    """Write the record to where the next stage finds it, and to where it is wanted with its table."""
    for path in paths:
        write_record(path, record | {"parts": kept})
    paths[-1].with_suffix(".md").write_text(table(record, kept), encoding="utf-8")


def describe(arguments: argparse.Namespace) -> dict[str, Any]:
    """Describe code, versions and machine, for the record."""
    facts = circumstances("triton", "monai", "torchmetrics")
    machine = {key: facts["hardware"][key] for key in ("cpu", "cores", "gpus")}
    packed = ROOT / "commit"  # of a bundle, which is no repository
    found = source()
    here = f"{found['commit']}{'-dirty' if found['dirty'] else ''}" if found["commit"] else None
    commit = packed.read_text("utf-8") if packed.is_file() else here
    return facts | {"machine": machine, "driver": driver(), "quick": arguments.quick, "code": code(), "commit": commit}


def code() -> str:
    """Return the start of a hash over all that decides what a part does."""
    paths = {path for folder in ("src", "configs", "tests") for path in (ROOT / folder).rglob("*") if path.is_file()}
    paths |= {*HERE.glob("*.py"), ROOT / "pyproject.toml"}
    digest = hashlib.sha256()
    for path in sorted(paths):
        if "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(ROOT)}\n{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:12]


def read_kept(paths: list[Path], record: dict[str, Any]) -> dict[str, Any]:
    """Read the results of earlier stages with the same code on the same machine; others do not go into one table."""
    kept: dict[str, Any] = {}
    for path in paths:
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"parts": {}}
        changed = [key for key in SAME if path.exists() and before.get(key) != record[key]]
        if changed:
            print(f"{path}: of other {', '.join(changed)}, so every part is run anew", file=sys.stderr)
            continue
        for name, part in before["parts"].items():
            if kept.get(name, {}).get("state") != "done":
                kept[name] = part
    return kept


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--quick", action="store_true", help="smallest sizes: shows that every part runs")
    parser.add_argument("--only", default="", help=f"parts, by commas: {','.join(PARTS)}")
    parser.add_argument("--skip", default="", help="parts to leave out, by commas")
    parser.add_argument("--minutes", type=float, default=9, help="of this stage")
    parser.add_argument(
        "--camvid", type=absolute, default=ROOT.parent / "shared" / "data" / "camvid", help="CamVid's folder"
    )
    parser.add_argument("--work", type=absolute, default=ROOT / "runs" / "gpu", help="where runs stay between stages")
    parser.add_argument(
        "--out", type=absolute, default=os.environ.get("OUT", RESULTS), help="folder of the record, or $OUT"
    )
    parser.add_argument("--fresh", action="store_true", help="forget what earlier stages found")
    arguments = parser.parse_args()
    unknown = set(names(arguments.only) + names(arguments.skip)) - set(PARTS)
    if unknown:
        parser.error(f"expected parts among {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error(f"torch {torch.__version__} shows no CUDA device here; try --device cpu --quick")
    return arguments


def absolute(text: str) -> Path:
    """Parts run in the repository's folder, whatever folder the stage was started in."""
    return Path(text).absolute()


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def wanted(name: str, arguments: argparse.Namespace) -> bool:
    return name not in names(arguments.skip) and (not arguments.only or name in names(arguments.only))


def device_name(device: str) -> str:
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def driver() -> str | None:
    """Version of the NVIDIA driver, or None where there is none."""
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def run_part(name: str, part: Part, arguments: argparse.Namespace, *, seconds: float, before: Result) -> Result:
    """Run a part in a process group of its own, at most as long as `seconds`; its rows so far stay.

    A part that goes on is asked to stop a while before that, so that a training saves a checkpoint. Of any other part
    that was cut short nothing is left for the next stage.
    """
    folder = arguments.work / name
    if arguments.fresh or not part.goes_on:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    rows, log = folder / "rows.jsonl", folder / "log.txt"
    rows.unlink(missing_ok=True)
    print(f"{name}: {part.shows} (at most {seconds:.0f} s)", file=sys.stderr, flush=True)
    command = [sys.executable, str(HERE / "gpu_parts.py"), name, "--device", arguments.device]
    command += ["--folder", str(folder), "--camvid", str(arguments.camvid), *(["--quick"] if arguments.quick else [])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    start, load = time.monotonic(), os.getloadavg()[0]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            in_time = ends(process, seconds - part.stop_s)
            if not in_time and part.goes_on:
                os.killpg(process.pid, signal.SIGTERM)
                ends(process, part.stop_s)
        finally:  # Ctrl-C and SIGTERM end the part too
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
    late = CUT if part.goes_on else "ran out of time"
    state = late if not in_time else "done" if code == 0 else f"failed with exit code {code}"
    found = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()] if rows.exists() else []
    tail = "" if code == 0 else log.read_text(encoding="utf-8", errors="replace")[-2000:]
    print(f"{name}: {state}\n{tail}".rstrip(), file=sys.stderr, flush=True)
    return Result(
        state=state,
        seconds=round(time.monotonic() - start + (before.seconds if before.state == CUT else 0), 1),
        rows=found,
        load=(round(load, 2), round(os.getloadavg()[0], 2)),
        date=datetime.now(UTC).isoformat(timespec="minutes"),
        output=tail,
    )


def ends(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process; whether it ended in time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def table(record: dict[str, Any], parts: dict[str, Any]) -> str:
    """Markdown: device and versions, every row of every part, then when each was run, what was not run included."""
    versions, hardware = record["versions"], record["hardware"]
    device = ", ".join(hardware["gpus"]) or hardware["cpu"]
    shown = ("python", "torch", "triton", "segmeter")
    text = ", ".join(f"{name} {versions.get(name) or 'not installed'}" for name in shown)
    text += f" ({record['commit'] or 'no commit'}, code {record['code']})"
    lines = [f"{device}; driver {record['driver'] or 'none'}; {text}; {hardware['cores']} cores."]
    lines += ["Smallest sizes: every part ran, and times mean nothing."] if record["quick"] else []
    lines += ["", "| part | work | needs | measured | |", "|---|---|---|---|---|"]
    for name in PARTS:
        part = parts.get(name, asdict(Result(state="not run")))
        if part["state"] != "done":
            lines.append(f"| {name} | {PARTS[name].shows} | | **{part['state']}** | |")
        for row in part["rows"]:
            verdict = {None: "", True: "met", False: "**not met**"}[row["met"]]
            note = "; ".join(word for word in (verdict, row["note"]) if word)
            lines.append(f"| {name} | {row['work']} | {row['needs']} | {row['measured']} | {note} |")
    lines += ["", "| part | ended | seconds | load before and after |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {part['date']} | {part['seconds']:.0f} | {part['load'][0]}, {part['load'][1]} |"
        for name, part in parts.items()
        if part["load"]
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
