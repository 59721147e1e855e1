"""Run the same commands with two versions of the source, and compare everything that they write.

python -m benchmarks.same_figures BASE                  # BASE is a commit; the other side is this checkout
python -m benchmarks.same_figures BASE --cases 20 --only score

Exact: every key of metrics.json and compare.json, every column of cases.parquet, label maps, probabilities, weights and
the history of training, but for times and paths. A rewrite keeps all of it, or names in the changelog what differs.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from benchmarks.same_figures_inputs import Command, commands, write_inputs
from PIL import Image

ROOT = Path(__file__).parents[1]
NOT_COMPARED = re.compile(r"seconds|data_wait|_s$|_per_s|time|folder|path|throughput|memory|rss|^runs$|^run$|stages")
SHOWN = 6  # differences of one command


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "same_figures", help="folder of inputs and runs")
    parser.add_argument("--cases", type=int, default=200, help="pairs of each format")
    parser.add_argument(
        "--only", default="", help="the commands whose names this pattern finds, and those that they need"
    )
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="CamVid and the golden pair")
    options = parser.parse_args()
    inputs = options.work / f"inputs-{options.cases}"
    inputs.mkdir(parents=True, exist_ok=True)
    camvid, golden = (options.data / name if (options.data / name).is_dir() else None for name in ("camvid", "golden"))
    write_inputs(inputs, options.cases, golden)
    trees = [_checkout(options.work, options.base), ROOT]
    runs: list[dict[str, Path]] = [{}, {}]
    differing = 0
    for command in _chosen(list(commands(camvid, golden is not None, _conventions())), options.only):
        for side, tree in enumerate(trees):
            runs[side][command.name] = _run(command, tree, options.work / f"side-{side}", inputs, runs[side], runs[0])
        found = list(_differences(runs[0][command.name], runs[1][command.name]))
        differing += bool(found)
        print(f"{'DIFFERS' if found else 'equal':8} {command.name}", flush=True)
        for line in found[:SHOWN]:
            print(f"           {line}")
        if len(found) > SHOWN:
            print(f"           and {len(found) - SHOWN} more")
    print(f"{differing} differ")
    return int(differing > 0)


def _conventions() -> list[str]:
    from segmeter.metrics.config.conventions import CONVENTIONS

    return [name for name in CONVENTIONS if name != "segmeter"]


def _chosen(every: list[Command], only: str) -> list[Command]:
    """Return the commands whose names a pattern finds, and those whose runs they take."""
    needed = {command.name for command in every if re.search(only, command.name)}
    for command in reversed(every):
        if command.name in needed:
            needed |= set(re.findall(r"\{(?:base:)?([^}]+)\}", " ".join(command.arguments)))
    return [command for command in every if command.name in needed]


def _checkout(work: Path, commit: str) -> Path:
    """Return the source of a commit, unpacked once."""
    name = subprocess.run(["git", "rev-parse", commit], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    tree = work / f"tree-{name.strip()[:12]}"
    if not tree.is_dir():
        tree.mkdir()
        packed = subprocess.run(["git", "archive", name.strip()], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(tree)], input=packed, check=True)
    return tree


def _run(command: Command, tree: Path, side: Path, inputs: Path, runs: dict[str, Path], base: dict[str, Path]) -> Path:
    """Run one command of one side; returns its run's folder."""
    place = side / command.name.replace(" ", "-")
    subprocess.run(["rm", "-rf", str(place)], check=True)
    place.mkdir(parents=True)
    names = {"inputs": inputs, **runs, **{f"base:{name}": run for name, run in base.items()}}
    arguments = [re.sub(r"\{([a-z][^{},]*)\}", lambda found: str(names[found[1]]), text) for text in command.arguments]
    line = [sys.executable, "-m", "segmeter", *arguments, f"run.root={place}", f"run.name={place.name}"]
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "COLUMNS": "100"}
    with (place / "terminal.txt").open("wb") as terminal:
        code = subprocess.run(line, cwd=side, env=environment, stdout=terminal, stderr=subprocess.STDOUT).returncode
    if code != command.exit_code:
        sys.exit(f"{command.name}: exit code {code} in {tree}\n{(place / 'terminal.txt').read_text()[-3000:]}")
    return next((place / command.arguments[0]).iterdir())


def _differences(base: Path, new: Path) -> Iterator[str]:
    """One line for each thing that differs between two runs."""
    names = [
        {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file() and _compared(path, run)}
        for run in (base, new)
    ]
    yield from (f"{name}: only in one of them" for name in sorted(names[0] ^ names[1]))
    for name in sorted(names[0] & names[1]):
        paths = base / name, new / name
        if paths[0].read_bytes() == paths[1].read_bytes():
            continue
        yield from (f"{name}: {line}" for line in _inside(*paths))


def _compared(path: Path, run: Path) -> bool:
    """Results, not what a run says of itself; pictures and pages are looked at by people."""
    parts = path.relative_to(run).parts
    if parts[0] in ("predictions", "checkpoints"):
        return path.suffix not in (".pt", ".json")
    return len(parts) == 1 and (
        parts[0] in ("metrics.json", "compare.json", "history.jsonl") or path.suffix == ".parquet"
    )


def _inside(base: Path, new: Path) -> Iterator[str]:
    if base.suffix == ".json":
        texts = [re.sub(r"\d{4}-\d\d-\d\d_\d{6}_", "", path.read_text()) for path in (base, new)]  # of runs' names
        yield from _values(*map(json.loads, texts), "")
    elif base.suffix == ".jsonl":
        lines = [[json.loads(line) for line in path.read_text().splitlines()] for path in (base, new)]
        yield from _values(*lines, "")
    elif base.suffix == ".parquet":
        yield from _columns(base, new)
    elif base.suffix in (".png", ".tif"):
        pixels = [np.asarray(Image.open(path)) for path in (base, new)]
        same = pixels[0].shape == pixels[1].shape and pixels[0].dtype == pixels[1].dtype
        wrong = int((pixels[0] != pixels[1]).sum()) if same else -1
        if wrong:
            yield (
                f"{wrong} pixels"
                if same
                else f"{pixels[0].shape} {pixels[0].dtype}, {pixels[1].shape} {pixels[1].dtype}"
            )
    else:
        yield "other bytes"


def _values(base: Any, new: Any, place: str) -> Iterator[str]:
    if isinstance(base, dict) and isinstance(new, dict):
        for key in sorted({*base, *new}):
            if not NOT_COMPARED.search(key):
                yield from _values(base.get(key, "absent"), new.get(key, "absent"), f"{place}.{key}")
    elif isinstance(base, list) and isinstance(new, list) and len(base) == len(new):
        for number, (one, other) in enumerate(zip(base, new, strict=True)):
            yield from _values(one, other, f"{place}[{number}]")
    elif base != new and not (base != base and new != new):
        yield f"{place}: {str(base)[:60]} and {str(new)[:60]}"


def _columns(base: Path, new: Path) -> Iterator[str]:
    tables = [pq.read_table(path) for path in (base, new)]
    names = [set(table.column_names) for table in tables]
    yield from (f"column {name} only in one of them" for name in sorted(names[0] ^ names[1]))
    for name in sorted(names[0] & names[1]):
        one, other = (table[name].combine_chunks() for table in tables)
        if one.type != other.type:
            yield f"column {name}: {one.type} and {other.type}"
        elif not one.equals(other) and repr(one.to_pylist()) != repr(other.to_pylist()):
            yield f"column {name}: other values"


if __name__ == "__main__":
    sys.exit(main())
