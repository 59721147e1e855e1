"""Print the size and shape of the source: files per folder, lines per module and function, and an evaluation's path.

python benchmarks/architecture.py              # the figures of this checkout
python benchmarks/architecture.py --no-run     # without the evaluation, which trains for one step first
"""

import argparse
import ast
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median, quantiles
from types import FrameType
from typing import Any

import segmeter
from segmeter.cli.main import main as segmeter_main

SOURCE = Path(segmeter.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
SMALL = ("training.steps=1", "training.batch_size=2", "data.train_cases=2", "data.val_cases=1", "data.test_cases=1")


def spread(values: list[int]) -> dict[str, float]:
    return {"median": median(values), "p95": round(quantiles(values, n=20)[-1], 1), "max": max(values)}


def function_lines(path: Path) -> list[int]:
    """Lines of each function without its docstring."""
    lines = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            start = node.body[0].end_lineno if ast.get_docstring(node) else node.lineno
            lines.append((node.end_lineno or 0) - (start or 0))
    return lines


def measure_source() -> dict[str, Any]:
    texts = {path: path.read_text() for path in MODULES}
    folders = Counter(path.parent.relative_to(SOURCE).as_posix() for path in MODULES if path.name != "__init__.py")
    return {
        "lines": sum(text.count("\n") for text in texts.values()),
        "modules": len(texts),
        "folders": len(folders),
        "files in the fullest folders": dict(folders.most_common(5)),
        "lines per module": spread([text.count("\n") for path, text in texts.items() if path.name != "__init__.py"]),
        "lines per function": spread([lines for path in texts for lines in function_lines(path)]),
        "modules that name ignore_index": sum("ignore_index" in text for text in texts.values()),
    }


def trace_evaluation() -> dict[str, int]:
    """Functions and modules of ours that run between `evaluate` and its return, for a data set of one case."""
    seen: set[tuple[str, str]] = set()
    inside = False

    def watch(frame: FrameType, event: str, _: object) -> None:
        nonlocal inside
        code = frame.f_code
        file = code.co_filename
        if not file.startswith(str(SOURCE)):
            return
        if code.co_name == "evaluate" and file.endswith("evaluation/evaluate.py"):
            inside = event == "call"
        if inside and event == "call" and not code.co_name.startswith("<"):
            seen.add((file, code.co_qualname))

    with tempfile.TemporaryDirectory() as folder:
        data = (f"data.root={folder}/cells", f"run.root={folder}/runs", *SMALL[2:])
        segmeter_main(["train", *data, *SMALL[:2], "device=cpu"])
        run = next(Path(folder, "runs", "train").iterdir())
        sys.setprofile(watch)  # this thread only: what reads ahead and writes is not counted
        try:
            segmeter_main(["eval", f"checkpoint={run}", *data, "device=cpu"])
        finally:
            sys.setprofile(None)
    return {"functions": len(seen), "modules": len({file for file, _ in seen})}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-run", action="store_true", help="skip the evaluation")
    record = measure_source()
    if not parser.parse_args().no_run:
        record["one evaluation, from evaluate() to its return"] = trace_evaluation()
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
