"""What only POSIX systems have is used where it is there: the commands run without it, as they have to on Windows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.data.crafted import encoded, noise

LIKE_WINDOWS = f"""import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.cli.like_windows import become_windows
become_windows()"""
TORCH = "import torch, torchvision, segmentation_models_pytorch"
RUN = f"{LIKE_WINDOWS}\nfrom segmeter.cli.main import main\nmain(sys.argv[1].split())"
IMPORT_ALL = f"""{TORCH}
{LIKE_WINDOWS}
import importlib, pkgutil, segmeter
for module in pkgutil.walk_packages(segmeter.__path__, "segmeter."):
    if "triton" not in module.name and not module.name.startswith(("segmeter.__main__", "segmeter.api.adapters.")):
        importlib.import_module(module.name)
"""


def python(code: str, line: str = "", *, at: Path, code_of_exit: int = 0, **more: str) -> str:
    # text is read in the encoding of the system, unless the code names another, and a terminal knows few letters
    here = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "cp1252", **more}
    command = [sys.executable, "-c", code, line]
    done = subprocess.run(command, cwd=at, capture_output=True, text=True, check=False, env=os.environ | here)
    assert done.returncode == code_of_exit, done.stderr
    return done.stdout + done.stderr


def write_masks(root: Path, *sides: str, cases: str = "ab") -> None:
    for number, side in enumerate(sides):
        (root / side).mkdir()
        for case in cases:
            (root / side / f"{case}.png").write_bytes(encoded(noise(40, 50, None, seed=number) // 128))


@pytest.mark.slow
def test_every_module_can_be_imported_without_what_windows_lacks(tmp_path: Path) -> None:
    python(IMPORT_ALL, at=tmp_path)


@pytest.mark.slow
def test_masks_are_scored_and_runs_compared_without_what_windows_lacks(tmp_path: Path) -> None:
    """Mutation seen to fail: a folder opened with O_DIRECTORY, whether the system has it or not."""
    write_masks(tmp_path, "base", "new", "references")
    score = "score predictions={0} references=references data.num_classes=2 run.name={0}"
    for side in ("base", "new"):
        assert "mean IoU" in python(RUN, score.format(side), at=tmp_path)
    base, new = (next((tmp_path / "runs/score").glob(f"*_{side}")) for side in ("base", "new"))
    for run in (base, new):
        assert {path.name for path in run.iterdir()} >= {"metrics.json", "cases.parquet", "report.html", ".owner"}
        assert not list(run.glob(".tmp-*"))
    python(RUN, f"compare runs=[{base},{new}]", at=tmp_path)
    assert next((tmp_path / "runs/compare").iterdir()).joinpath("compare.html").is_file()
    python(RUN, f"report run={base}", at=tmp_path)
    (tmp_path / "new" / "a.png").write_bytes(b"no picture")
    assert "a.png" in python(RUN, f"{score.format('new')} run.root=refused", at=tmp_path, code_of_exit=2)
    assert not (tmp_path / "refused").exists()


@pytest.mark.slow
def test_masks_behind_urls_are_fetched_and_forgotten_without_what_windows_lacks(tmp_path: Path) -> None:
    """The cache has room for six of sixteen masks. Mutation seen to fail: an entry renamed while its lock is open."""
    pytest.importorskip("obstore")
    write_masks(tmp_path, "predictions", "references", cases="abcdefgh")
    size = (tmp_path / "predictions/a.png").stat().st_size
    urls = " ".join(f"{side}=file://{tmp_path / side}" for side in ("predictions", "references"))
    room = {"SEGMETER_CACHE": str(tmp_path / "cache"), "SEGMETER_CACHE_GB": str(6.5 * size / 1e9)}
    found = python(RUN, f"score {urls} data.num_classes=2", at=tmp_path, **room, LC_ALL="C.UTF-8")
    assert "mean IoU" in found
    entries = list((tmp_path / "cache/.segmeter-fetched").iterdir())
    assert 0 < len(entries) < 16
    assert all(":" not in file.name for each in entries for file in each.rglob("*"))


@pytest.mark.slow
def test_a_model_is_trained_evaluated_and_run_without_what_windows_lacks(tmp_path: Path) -> None:
    code = f"{TORCH}\n{RUN}"
    small = [f"data.{split}_cases={count}" for split, count in (("train", 8), ("val", 2), ("test", 2))]
    python(code, f"train data=cells {' '.join(small)} data.size=64 training.steps=2", at=tmp_path)
    (run,) = (tmp_path / "runs/train").iterdir()
    assert (run / "checkpoints/best").is_file(), "no link was made"
    (images,) = (tmp_path / "data").glob("cells-*/images")
    for name in ("best", "last"):  # as on the system from which the run was copied
        target = (run / "checkpoints" / name).read_text()
        (run / "checkpoints" / name).unlink()
        (run / "checkpoints" / name).symlink_to(target)
    use = [f"eval checkpoint={run}", f"predict checkpoint={run}/checkpoints/last input={images}", f"report run={run}"]
    longer = f"train resume={run} training.steps=3 allow_changes=[training.steps]"
    for line in (*use, longer):
        python(code, line, at=tmp_path)
    assert "step-00000003" in (run / "checkpoints/last").read_text()
