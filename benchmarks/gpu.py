"""Everything that only a GPU can show, in one command: `python benchmarks/gpu.py`, or `make gpu`.

The parts run in order of worth, each in its own process and within its own time limit, so that one that fails or is
slow never costs the others. What a part found is kept as soon as it ends, and a part that is done is not run again
unless --fresh is given, so that the whole can be run in pieces. The record goes to benchmarks/results/gpu-NAME.json,
and a table in Markdown beside it. Nothing is installed: it runs in the environment that is there, and packages that it
lacks may lie in folders that PYTHONPATH names.

    python benchmarks/gpu.py --camvid PATH
    python benchmarks/gpu.py --only tests,bridge
    python benchmarks/gpu.py --device cpu --quick        the same code on a CPU, without the parts that need a GPU
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
NEEDED = (
    *(
        "torch",
        "torchvision",
        "segmentation_models_pytorch",
        "numpy",
        "scipy",
        "skimage",
        "hydra",
        "omegaconf",
        "antlr4",
    ),
    *("pydantic", "PIL", "tifffile", "imagecodecs", "zarr", "safetensors", "pyarrow", "rich", "jinja2", "numba"),
    *("lazy_loader", "pytest"),
)
if missing := [name for name in NEEDED if find_spec(name) is None]:
    raise SystemExit(
        f"gpu.py: Python can't import {', '.join(missing)}. Name their folder in PYTHONPATH, or install them."
    )
sys.path.insert(0, str(ROOT / "src"))  # segmeter itself need not be installed

import torch  # noqa: E402

from gpu_parts import PARTS, Part  # noqa: E402
from record import RESULTS, circumstances, write_record  # noqa: E402


@dataclass(frozen=True, kw_only=True)
class Result:
    """How and when a part ended, and its rows: work, needs, measured, met (null: nothing to reach) and a note.

    `load` is the machine's average over the last minute, before and after.
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
    kind = "-quick" if arguments.quick else ""
    path = arguments.output or RESULTS / f"gpu-{device_name(arguments.device)}{kind}.json"
    record = circumstances("triton", "monai", "torchmetrics") | {"driver": driver(), "quick": arguments.quick}
    kept = {} if arguments.fresh else read_kept(path, record)
    end = time.monotonic() + 60 * arguments.minutes
    for name, part in PARTS.items():
        if kept.get(name, {}).get("state") == "done" or not wanted(name, arguments):
            continue
        left = end - time.monotonic()
        result = run_part(name, part, arguments, left) if left >= part.least_s else Result(state="no time left")
        kept[name] = asdict(result)
        write_record(path, record | {"parts": kept})
        path.with_suffix(".md").write_text(table(record, kept), encoding="utf-8")
    print(table(record, kept))


def read_kept(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """What earlier calls found with the same versions on the same machine; other figures do not go into one table."""
    if not path.exists():
        return {}
    before = json.loads(path.read_text(encoding="utf-8"))
    changed = [key for key in ("versions", "driver", "quick") if before.get(key) != record[key]]
    if changed:
        print(f"{path.name}: of other {', '.join(changed)}, so every part is run anew", file=sys.stderr)
        return {}
    return dict(before["parts"])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--quick", action="store_true", help="smallest sizes: shows that every part runs")
    parser.add_argument("--only", default="", help=f"parts, by commas: {','.join(PARTS)}")
    parser.add_argument("--skip", default="", help="parts to leave out, by commas")
    parser.add_argument("--minutes", type=float, default=40, help="for all parts together")
    parser.add_argument(
        "--camvid", type=Path, default=ROOT.parent / "shared" / "data" / "camvid", help="CamVid's folder"
    )
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "gpu", help="where runs go")
    parser.add_argument("--output", type=Path, help="the record's JSON")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier calls found")
    arguments = parser.parse_args()
    unknown = set(names(arguments.only) + names(arguments.skip)) - set(PARTS)
    if unknown:
        parser.error(f"expected parts among {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error(f"torch {torch.__version__} shows no CUDA device here; try --device cpu --quick")
    return arguments


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


def run_part(name: str, part: Part, arguments: argparse.Namespace, left: float) -> Result:
    """Run a part in a process group of its own; past its limit, the whole group is killed and its rows so far stay."""
    folder = arguments.work / name
    folder.mkdir(parents=True, exist_ok=True)
    rows = folder / "rows.jsonl"
    rows.unlink(missing_ok=True)
    limit = min(part.limit_s, left)
    print(f"{name}: {part.shows} (at most {limit:.0f} s)", file=sys.stderr, flush=True)
    command = [sys.executable, str(HERE / "gpu_parts.py"), name, "--device", arguments.device, "--seconds", str(limit)]
    command += ["--folder", str(folder), "--camvid", str(arguments.camvid), *(["--quick"] if arguments.quick else [])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    start, load = time.monotonic(), os.getloadavg()[0]
    log = folder / "log.txt"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
        code: int | None = None
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            pass
        finally:  # Ctrl-C and SIGTERM end the part too
            if code is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    state = "ran out of time" if code is None else "done" if code == 0 else f"failed with exit code {code}"
    found = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()] if rows.exists() else []
    tail = "" if code == 0 else log.read_text(encoding="utf-8", errors="replace")[-2000:]
    print(f"{name}: {state}\n{tail}".rstrip(), file=sys.stderr, flush=True)
    return Result(
        state=state,
        seconds=round(time.monotonic() - start, 1),
        rows=found,
        load=(round(load, 2), round(os.getloadavg()[0], 2)),
        date=datetime.now(UTC).isoformat(timespec="minutes"),
        output=tail,
    )


def table(record: dict[str, Any], parts: dict[str, Any]) -> str:
    """Markdown: device and versions, every row of every part, then when each was run, what was not run included."""
    versions, hardware = record["versions"], record["hardware"]
    device = ", ".join(hardware["gpus"]) or hardware["cpu"]
    shown = ("python", "torch", "triton", "segmeter")
    text = ", ".join(f"{name} {versions.get(name) or 'not installed'}" for name in shown)
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
