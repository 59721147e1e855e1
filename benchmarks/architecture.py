"""Print the size and shape of the source, and how much of it runs in three common commands.

    python benchmarks/architecture.py                        # everything
    python benchmarks/architecture.py --no-run               # without the commands, one of which trains for a step
    python benchmarks/architecture.py --rooms data metrics   # the source's size for some rooms alone

Code lines are lines without blanks, comments and docstrings. Functions are those of ours that run in any thread of one
command, each counted once. Classes are those that its imports define, which Python runs like functions.
"""

import argparse
import ast
import inspect
import io
import json
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from types import FrameType
from typing import Any

import numpy as np
from PIL import Image

import segmeter
from segmeter.cli.main import main as segmeter_main

SOURCE = Path(segmeter.__file__).parent
ROOT = SOURCE.parents[1]
SHORT = 60  # lines of a module that should live in its only caller
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
CELLS = ("data.train_cases=2", "data.val_cases=1", "data.test_cases=1", "device=cpu")
STEP = ("model.encoder=resnet34", "training.steps=1", "training.batch_size=2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-run", action="store_true", help="skip the commands")
    parser.add_argument("--rooms", nargs="+", default=[], help="rooms or modules of src/segmeter; all by default")
    options = parser.parse_args()
    record = measure_source(options.rooms)
    if not options.no_run:
        record["run in a command"] = trace_commands()
    print(json.dumps(record, indent=2))


def measure_source(rooms: Sequence[str] = ()) -> dict[str, Any]:
    modules = [path for path in sorted(SOURCE.rglob("*.py")) if not rooms or _room(path) in rooms]
    texts = {path: path.read_text() for path in modules}
    folders = Counter(path.parent.relative_to(SOURCE).as_posix() for path in modules if path.name != "__init__.py")
    lines = [text.count("\n") for path, text in texts.items() if path.name != "__init__.py"]
    return {
        "code lines": sum(map(code_lines, texts.values())),
        "lines": sum(text.count("\n") for text in texts.values()),
        "modules": len(texts),
        "folders": len(folders),
        "floors": max(len(path.relative_to(SOURCE).parts) for path in modules) - 1,
        "files in the fullest folders": dict(folders.most_common(5)),
        "lines per module": spread(lines),
        "lines per function": spread([size for text in texts.values() for size in function_lines(text)]),
        "modules that name ignore_index": sum("ignore_index" in text for text in texts.values()),
        "modules under 60 lines with one caller": short_modules(modules),
        "imports by string": sum(text.count("import_module(") for text in texts.values()),
        "code lines by room": dict(sorted(_by_room(texts).items())),
        "lines of JavaScript": sum(path.read_text().count("\n") for path in SOURCE.rglob("*.js")),
        "generated lines in git": generated_lines(),
    }


def code_lines(text: str) -> int:
    """Lines that hold code: neither blank, nor a comment, nor part of a docstring."""
    docstrings = set[int]()
    for node in ast.walk(ast.parse(text)):
        held = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if held and ast.get_docstring(node, clean=False) is not None:
            docstrings |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    held_lines = {
        line for token in tokens if token.type not in NOT_CODE for line in range(token.start[0], token.end[0] + 1)
    }
    return len(held_lines - docstrings)


def function_lines(text: str) -> Iterator[int]:
    """Lines of each function without its docstring."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            start = node.body[0].end_lineno if ast.get_docstring(node) else node.lineno
            yield (node.end_lineno or 0) - (start or 0)


def short_modules(modules: Sequence[Path]) -> int:
    """Modules of fewer than 60 lines that one module of ours imports."""
    callers: dict[str, set[Path]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                    callers.setdefault(name, set()).add(path)
    short = [path for path in modules if path.name[0] != "_" and path.read_text().count("\n") < SHORT]
    names = [".".join(("segmeter", *path.relative_to(SOURCE).with_suffix("").parts)) for path in short]
    return sum(len(callers.get(name, ())) == 1 for name in names)


def generated_lines() -> int:
    """Lines of JSON Schemas, completion scripts and generated pages that git holds.

    docs/configuration.md is written by hand. It counts once it holds the reference that `make docs` puts at its mark.
    """
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    ours = [name for name in listed.splitlines() if name.startswith("configs/schema")]
    ours += [name for name in ("docs/configuration.md",) if "<!-- reference:" not in (ROOT / name).read_text()]
    ours += [name for name in listed.splitlines() if name.startswith(("docs/api/", "docs/metric/"))]
    ours += [name for name in listed.splitlines() if "completion" in name and not name.endswith(".py")]
    return sum((ROOT / name).read_text().count("\n") for name in ours if (ROOT / name).is_file())


def spread(values: list[int]) -> dict[str, float]:
    return {"median": median(values), "p95": round(quantiles(values, n=20)[-1], 1), "max": max(values)}


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _by_room(texts: dict[Path, str]) -> Counter[str]:
    found = Counter[str]()
    for path, text in texts.items():
        found[_room(path)] += code_lines(text)
    return found


def trace_commands() -> dict[str, dict[str, int]]:
    """Count what runs of ours in `score` of one pair, up to the first training step, and in `eval`."""
    with tempfile.TemporaryDirectory() as folder:
        masks = _write_pair(Path(folder))
        data = ("data=cells", f"data.root={folder}/cells", f"run.root={folder}/runs")
        found = {"score of one pair": _trace(["score", *masks, "data.num_classes=3", "report.html=false", data[2]])}
        step = ("train", *data, *CELLS, *STEP)
        found["train, to the first optimizer step"] = _trace(step, to_first_step=True)
        run = next(Path(folder, "runs", "train").iterdir())
        found["eval of 32 cases"] = _trace(
            ["eval", f"checkpoint={run}", *data, *CELLS[:2], "data.test_cases=32", CELLS[3]]
        )
    return found


def _write_pair(folder: Path) -> list[str]:
    for seed, side in enumerate(("predictions", "references")):
        (folder / side).mkdir()
        mask = np.random.default_rng(seed).integers(0, 3, (40, 50), np.uint8)
        Image.fromarray(mask).save(folder / side / "a.png")
    return [f"{side}={folder / side}" for side in ("predictions", "references")]


def _trace(arguments: Sequence[str], *, to_first_step: bool = False) -> dict[str, int]:
    """Count what a command runs, in all its threads; `to_first_step` stops counting at the first optimizer step."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    seen: set[tuple[str, str, bool]] = set()
    ended = threading.Event()
    source = str(SOURCE)

    def watch(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and not ended.is_set() and code.co_filename.startswith(source) and code.co_name[0] != "<":
            seen.add((code.co_filename, code.co_qualname, bool(code.co_flags & inspect.CO_NEWLOCALS)))

    hook = register_optimizer_step_pre_hook(lambda *_: ended.set()) if to_first_step else None
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        segmeter_main(list(arguments))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        if hook is not None:
            hook.remove()
    functions = sum(is_function for *_, is_function in seen)
    return {"functions": functions, "classes": len(seen) - functions, "modules": len({file for file, *_ in seen})}


if __name__ == "__main__":
    main()
