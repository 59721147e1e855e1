"""Every way in which a file or an override could name code to Hydra, or lead it out of the run's root."""

import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.sharded import run
from tests.data.crafted import put

MARK = "evil ran"


class Touch:
    """A pickle that leaves a file when it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (exec, (f"open({MARK!r}, 'w')",))


@pytest.fixture(autouse=True)
def _here(in_tmp: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("conf").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    put(Path("evil/__init__.py"), f"open({MARK!r}, 'w')")
    put(Path("evil.pt"), pickle.dumps(Touch()))
    for folder in ("a", "b"):
        put(Path(folder, "case.png"), np.zeros((8, 8), np.uint8))


SCORE = ("score", "predictions=a", "references=b", "data.num_classes=2", "metrics.bootstrap=0")
OWN = (*SCORE, "--config-dir", "conf")


LOAD = "{x: {_target_: torch.load, f: evil.pt, weights_only: false}}"
X = "experiment/x.yaml"
CHOSEN = "+experiment=x"
GLOBAL = "# @package _global_\n"
ROOT = "defaults: [score, _self_]\n"
FILES = {  # the file of the user's, what it holds, and how it is chosen
    "global package": (X, f"{GLOBAL}hydra: {{callbacks: {LOAD}}}\n", CHOSEN),
    "hydra package": (X, f"# @package hydra\ncallbacks: {LOAD}\n", CHOSEN),
    "deep package": (X, f"# @package hydra.callbacks\n{LOAD[1:-1]}\n", CHOSEN),
    "package of an override": (X, LOAD, "+experiment@hydra.callbacks=x"),
    "package in defaults": (X, f"{GLOBAL}defaults: ['/report@hydra.callbacks: default']\n", CHOSEN),
    "group of hydra": ("hydra/callbacks/x.yaml", LOAD, "--multirun"),
    "launcher": ("hydra/launcher/x.yaml", "_target_: os.system", "hydra/launcher=x"),
    "sweeper": (X, f"{GLOBAL}hydra: {{sweeper: {{_target_: os.system}}}}\n", CHOSEN),
    "logging": (X, f"{GLOBAL}hydra: {{job_logging: {{handlers: {{x: {{(): os.system}}}}}}}}\n", CHOSEN),
    "search path": (X, f"{GLOBAL}hydra: {{searchpath: ['file:///tmp']}}\n", CHOSEN),
    "search path of odd keys": (X, f"{GLOBAL}hydra: {{searchpath: [{{2020-01-01: x}}]}}\n", CHOSEN),
    "no mapping": (X, f"{GLOBAL}hydra: ${{x}}\nx: {{searchpath: ['file:///tmp']}}\n", CHOSEN),
    "run folder": (X, f"{GLOBAL}hydra: {{run: {{dir: /tmp/x}}}}\n", CHOSEN),
    "resolver": (X, GLOBAL + "hydra: {sweeper: {params: \"${oc.create:'{_target_: os.system}'}\"}}\n", CHOSEN),
    "swept": (X, f"{GLOBAL}hydra: {{sweeper: {{params: {{+hydra.callbacks.x._target_: os.system}}}}}}\n", CHOSEN),
    "one of a sweep": (X, f"{GLOBAL}hydra: {{callbacks: {LOAD}}}\n", "-m +experiment=x"),
    "root": ("own.yaml", f"{ROOT}hydra: {{callbacks: {LOAD}}}\n", "-cn own"),
    "search path of a root": ("own.yaml", f"{ROOT}hydra: {{searchpath: ['pkg://evil']}}\n", "-cn own"),
}


@pytest.mark.parametrize("way", FILES)
def test_no_file_of_the_user_names_code(way: str, refused) -> None:
    """Mutation seen to fail: the files not read before Hydra composes, which imports packages of the search path."""
    path, text, chosen = FILES[way]
    put(Path("conf", path), text)
    errors = refused(*OWN, *chosen.split())
    assert re.search(r"segmeter: config: .*(hydra\.\w|hydra/launcher|package is 'hydra'|folder named hydra)", errors)
    assert "Cannot find" not in errors  # another cause would prove nothing
    assert not Path(MARK).exists()
    assert not Path("runs").exists()


@pytest.mark.parametrize("override", [
    "hydra.launcher._target_=os.system",
    "hydra.sweeper._target_=os.system",
    "+hydra.sweeper.x={_target_: os.system}",
    "+hydra.callbacks.x._target_=os.system",
    "+hydra.sweeper.params={+hydra.callbacks.x._target_: os.system}",
    "hydra.sweep.subdir=../../../x",
])  # fmt: skip
def test_no_override_names_code_or_leads_out(override: str, refused) -> None:
    (line,) = [line for line in refused(*SCORE, "-m", override).splitlines() if line.startswith("segmeter: ")]
    assert line.startswith("segmeter: config: ")
    assert sorted(path.name for path in Path().iterdir()) == ["a", "b", "conf", "evil", "evil.pt"]


def test_sweeps_of_a_file_are_allowed() -> None:
    put(Path("conf", X), f"{GLOBAL}hydra: {{sweeper: {{params: {{metrics.background: 'true,false'}}}}}}\n")
    assert run(*OWN, "-m", CHOSEN, "hydra.sweep.dir=out") == 0
    assert {path.name for path in Path("out").iterdir()} >= {"0_background-True", "1_background-False"}


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(("name", "text", "message"), [
    (X, BOMB, "its aliases (&name, *name) stand for more than"),
    (X, "a: &a [*a]\n", "its aliases (&name, *name) stand for more than"),
    ("experiment/x.yml", "a: 1\n", "is not read. Rename it to x.yaml"),
    ("experiment/demo.yaml", "a: 1\n", "segmeter's own file of this name is read instead. Rename it."),
    (X, "defaults: [override /hydra/launcher: joblib]\n", "its defaults choose hydra/launcher."),
    (X, "defaults: ['/../other/x']\n", "its defaults lead out of the folder: ['/../other/x']."),
    (X, "<<: {defaults: [../../x]}\n", "its defaults lead out of the folder: ['../../x']."),
    (X, "<<: [{}, {<<: {defaults: [../../x]}}]\n", "lead out of the folder: ['../../x']."),
    (X, "defaults: [{/experiment: //tmp/x}]\n", "lead out of the folder: [{'/experiment': '//tmp/x'}]."),
], ids=["bomb", "itself", "yml", "of ours", "launcher", "above", "merged", "merged twice", "absolute"])  # fmt: skip
def test_files_that_are_not_read_or_lead_out_are_refused(name, text, message, refused):
    put(Path("conf", name), text)
    assert message in refused(*OWN, CHOSEN)


def test_what_is_no_regular_file_is_not_waited_for(refused) -> None:
    Path("conf/experiment").mkdir()
    os.mkfifo("conf/experiment/x.yaml")
    assert "conf/experiment/x.yaml: expected a regular file." in refused(*OWN, CHOSEN)


@pytest.mark.parametrize("more", [[], ["--cfg", "job"]])
def test_files_behind_links_are_checked_too_and_before_they_are_shown(more, refused):
    put(Path("elsewhere/x.yaml"), "defaults: [../../x]\n")
    Path("conf/experiment").symlink_to(Path("elsewhere").absolute())
    Path("conf/again").symlink_to(".")
    assert "conf/experiment/x.yaml: its defaults lead out" in refused(*OWN, CHOSEN, *more)


@pytest.mark.parametrize("folder", ["conf", "it's $x {y}"])
def test_a_root_file_of_ones_own(folder: str) -> None:
    put(Path(folder, "mine.yaml"), f"{ROOT}run: {{name: own}}\n")
    assert run(*SCORE, "--config-dir", folder, "-cn", "mine") == 0
    assert len(list(Path("runs/score").glob("*_own"))) == 1
