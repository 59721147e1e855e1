"""Overrides composed to the values of jobs: as people type them, in sweeps, beside the user's own files."""

from pathlib import Path

import pytest

from segmeter.cli.config import compose
from segmeter.cli.config.compose import Request, compose_jobs
from segmeter.cli.config.hydra_rules import written
from segmeter.errors import ConfigError
from segmeter.schema import REQUIRED
from tests.data.crafted import put


def compose_all(*overrides: str, command: str = "train", sweep: bool = False, folder: Path | None = None):
    """The composed jobs, and what is wrong, a line each."""
    problems: list[str] = []
    found = compose_jobs(Request(command, overrides, str(folder) if folder else None, sweep), problems)
    assert not any("\n" in line for line in problems)
    return found, problems


def jobs_of(*overrides: str, **asked):
    found, problems = compose_all(*overrides, **asked)
    assert problems == []
    return found


def problems_of(*overrides: str, **asked) -> list[str]:
    return compose_all(*overrides, **asked)[1]


def test_one_job_has_the_values_of_its_choices_and_overrides():
    (job,) = jobs_of("data=camvid", "loss=dice", "optimizer.lr=0.5", "+training.own=[1,{a: b}]")
    assert job.overrides == ("data=camvid", "loss=dice", "optimizer.lr=0.5", "+training.own=[1,{a: b}]")
    assert (job.values["loss"]["name"], job.values["optimizer"]["lr"]) == ("dice", 0.5)
    assert job.values["training"]["own"] == [1, {"a": "b"}]
    assert job.values["data"]["root"] == REQUIRED, "what must be given is left to the schema"
    assert "hydra" not in job.values
    assert jobs_of("run.name='1,2'")[0].values["run"]["name"] == "1,2"


def test_a_sweep_is_every_combination_in_the_order_of_the_overrides():
    found = jobs_of("loss.gamma=1,2", "seed=3", "optimizer=adamw,sgd", sweep=True)
    assert [job.overrides for job in found] == [
        ("loss.gamma=1", "seed=3", "optimizer=adamw"),
        ("loss.gamma=1", "seed=3", "optimizer=sgd"),
        ("loss.gamma=2", "seed=3", "optimizer=adamw"),
        ("loss.gamma=2", "seed=3", "optimizer=sgd"),
    ]
    assert [job.values["optimizer"]["name"] for job in found] == ["adamw", "sgd"] * 2
    assert {job.values["seed"] for job in found} == {3}


@pytest.mark.parametrize("lines", [["seed=range(0,1000000000)"], ["seed=1,2", "loss.gamma=1,2"]], ids=" ".join)
def test_a_sweep_of_more_jobs_than_are_checked_is_refused(lines, monkeypatch):
    """Mutation seen to fail: the first of them run without a word."""
    monkeypatch.setattr(compose, "SWEEP_LIMIT", 3)
    assert len(jobs_of("seed=1,2,3", sweep=True)) == 3
    assert problems_of(*lines, sweep=True) == [
        "config: expected a sweep to be of at most 3 jobs, got more. Split it, or let hydra/sweeper=optuna choose "
        "among its values."
    ]


def test_what_an_optimiser_chooses_is_composed_when_it_has_chosen(monkeypatch, tmp_path):
    """Whether it is chosen on the command line or in a file."""
    monkeypatch.setattr(compose, "SWEEP_LIMIT", 3)
    searched = ["seed=range(5,100)", "optimizer.lr=interval(0.1,0.2)"]
    (job,) = jobs_of("hydra/sweeper=optuna", *searched, sweep=True)
    assert job.overrides == ("hydra/sweeper=optuna", "seed=5")
    text = "# @package _global_\ndefaults:\n  - override /hydra/sweeper: optuna\n"
    put(tmp_path / "experiment/mine.yaml", text)
    (job,) = jobs_of("experiment=mine", *searched, sweep=True, folder=tmp_path)
    assert job.overrides == ("experiment=mine", "seed=5")


@pytest.mark.parametrize(("line", "problem"), [
    ("loss.gamma=choice()", "can't read the override 'loss.gamma=choice()' ("),
    ("seed=range(3,3)", "the sweep 'seed=range(3,3)' is empty. List its values: seed=1,2."),
    ("seed=range(0,5,0)", "the sweep 'seed=range(0,5,0)' is empty."),
])  # fmt: skip
def test_a_sweep_without_values_is_refused(line, problem):
    (found,) = problems_of(line, sweep=True)
    assert found.startswith(f"config: {problem}")


@pytest.mark.parametrize(("overrides", "starts"), [
    (["seed"], ["config: can't read the override 'seed' ("]),
    (["data.classes=[a,b"], ["config: can't read the override 'data.classes=[a,b' ("]),
    (["~seeed"], ["config: ~seeed: Could not delete from config. 'seeed' does not exist. --cfg job shows all keys."]),
    (["loss.gamma=1,2"], ["config: 'loss.gamma=1,2' gives several values. Add --multirun to run each;"]),
    (["modle/x=unet"], ["config: unknown group 'modle/x'. "]),
    (["loss=focall"], ["config: expected `loss` to be one of "]),
    (["hydra/launcher=elsewhere"], ["config: expected `hydra/launcher` to be one of basic, joblib, submitit_local"]),
    (["postprocess=cells"], ["config: this command has no group 'postprocess' to choose an option of. --help"]),
    (["training=null"], ["config: expected `training` to be one of "]),
    (["hydra/sweeper=null"], ["config: expected `hydra/sweeper` to be one of "]),
    (["loss=[focal,dise]"], ["config: expected `loss` to be one of "]),
    (["data.classes={a: 1}"], ["config: data.classes={a: 1}: "]),
    (["hydra.run.dir=x"], ["config: 'hydra.run.dir' can't be set here. Outputs go where run.root and run.name"]),
    (["hydra/callbacks=x"], ["config: 'hydra/callbacks=x' can't be set here. Allowed: hydra/launcher, hydra/s"]),
    (["~hydra/sweeper"], ["config: '~hydra/sweeper' can't be set here. Allowed: hydra/launcher, hydra/sweeper"]),
    (["seed=1", "seed", "loss=focall"], ["config: can't read the override 'seed'", "config: expected `loss`"]),
], ids=lambda value: value[0] if isinstance(value, list) else None)  # fmt: skip
def test_what_can_not_be_composed_is_left_out_with_a_line_each(overrides, starts):
    problems = problems_of(*overrides)
    assert len(problems) == len(starts)
    assert all(problem.startswith(start) for problem, start in zip(problems, starts, strict=True))


def test_a_second_requirement_of_the_same_key_is_refused():
    """Hydra takes the last value of a key, and the gate lost the first."""
    (problem,) = problems_of("require=mean_iou >= 0.8", "require=hd95 <= 3", "runs=[a,b]", command="compare")
    assert problem.startswith("config: `require` is given 2 times, and only the last would count. Write a list:")


def test_keys_are_new_to_hydra_but_for_what_it_must_decide_itself():
    own = ["hydra/sweeper=optuna", "hydra.mode=RUN", "hydra.sweeper.params={a: 1}"]
    (job,) = jobs_of("seed=1", "loss=dice", "+a=1", "++b=1", "new=1", "~training.seed", *own)
    assert (job.values["loss"]["name"], job.values["new"]) == ("dice", 1)
    assert (job.hydra["sweeper"]["params"], "seed" in job.values["training"]) == ({"a": 1}, False)


def test_an_unknown_configuration_or_folder_is_refused():
    with pytest.raises(ConfigError, match=r"^config: no configuration is named 'trian'. Did you mean 'train'\?$"):
        compose_jobs(Request("trian"), [])
    with pytest.raises(ConfigError, match=r"--config-dir: .*/no is not a folder"):
        compose_jobs(Request("train", [], "no"), [])


@pytest.mark.parametrize(("value", "reason"), [
    ("${oc.env:SEGMETER_ABSENT}", "environment variable SEGMETER_ABSENT is not set."),
    ("${oc.env:HOME}", "only variables whose names start with SEGMETER_ can be read, not HOME."),
    ("${nosuch.key}", "Interpolation key 'nosuch.key' not found."),
])  # fmt: skip
def test_an_interpolation_that_fails_is_a_line_and_not_the_end(value, reason):
    (job,), problems = compose_all(f"run.name={value}", "seed=4")
    assert problems == [f"config: can't resolve `run.name`: {reason} Write a value, or the path of another key."]
    assert (job.values["run"]["name"], job.values["seed"]) == (None, 4)


def test_only_our_own_environment_variables_are_read(monkeypatch):
    monkeypatch.setenv("SEGMETER_NAME", "mine")
    (job,) = jobs_of("run.name=${oc.env:SEGMETER_NAME}", "run.root=${oc.env:SEGMETER_ABSENT,x}")
    assert job.values["run"] == {"root": "x", "name": "mine", "copy_to": None}


def test_a_folder_of_the_users_own_configurations_is_found(tmp_path):
    """Mutation seen to fail: the backslash doubled in Hydra's search path."""
    own = tmp_path / "a\\b"
    put(own / "experiment/mine.yaml", "# @package _global_\nseed: 7\n")
    (job,) = jobs_of("experiment=mine", folder=own)
    assert job.values["seed"] == 7


def test_each_file_that_hydra_can_not_read_has_a_line(tmp_path):
    for group, text in (("loss", "gamma: [\n"), ("augment", "crop: 1\ncrop: 2\n"), ("schedule", "a:\n\tb: 1\n")):
        put(tmp_path / group / "mine.yaml", text)
    problems = problems_of("loss=mine", "augment=mine", "schedule=mine", folder=tmp_path)
    assert len(problems) == 3
    assert problems[1].endswith("Keep one of the two.")
    assert problems[2].endswith("Indent with spaces.")


@pytest.mark.parametrize("value", ["null", "5", "{}"])
def test_a_file_whose_defaults_are_no_list_has_a_line(value, tmp_path):
    (tmp_path / "mine.yaml").write_text(f"defaults: {value}\n")
    (problem,) = problems_of(command="mine", folder=tmp_path)
    assert problem.startswith("config: Invalid defaults list in 'mine', defaults must be a list")


def test_a_file_that_starts_from_its_own_name_has_a_line(tmp_path):
    """Hydra ends with a RecursionError."""
    put(tmp_path / "training/default.yaml", "defaults: [default]\nepochs: 3\n")
    (problem,) = problems_of("training=default", folder=tmp_path)
    remedy = "Give the file another name than the option that it starts from."
    assert problem.endswith(f"the defaults of a file in {tmp_path} lead back to that file. {remedy}")


REQUIRED_BOTH, COLOURS = ["mean_iou >= 0.8", "iou/car > 0.5"], {"0,0,0": 0, "250,50,83": 1}


@pytest.mark.parametrize(("command", "line", "value"), [
    ("compare", "require=[mean_iou >= 0.8, iou/car > 0.5]", REQUIRED_BOTH),
    ("compare", 'require=["mean_iou >= 0.8","iou/car > 0.5"]', REQUIRED_BOTH),
    ("compare", "require=mean_iou >= 0.8", "mean_iou >= 0.8"),
    ("score", 'data.label_map={"0,0,0": 0, "250,50,83":1}', COLOURS),  # as messages write colours
    ("score", "data.label_map={'0,0,0': 0, '250,50,83':1}", COLOURS),
    ("score", f"data.label_map={written(COLOURS)}", COLOURS),
    ("score", 'metrics.measures=[{"name": "surface"}]', [{"name": "surface"}]),
    ("compare", """run.root={a: 'b,"c":d, \\\\e\\f'}""", {"a": 'b,"c":d, \\\\e\\f'}),  # a key alone loses its quotes
    ("compare", r"runs=C:\new\table", r"C:\new\table"),
    ("compare", r"runs=C:\masks\\"[:-1], r"C:\masks\\"[:-1]),
    ("compare", r"runs='\\server\a share (1)'", r"\\server\a share (1)"),
], ids=lambda each: each if isinstance(each, str) else "")  # fmt: skip
def test_quotes_that_a_shell_takes_away_are_not_needed_and_backslashes_stay(command, line, value):
    (job,) = jobs_of(line, command=command)
    found = job.values
    for key in line.partition("=")[0].split("."):
        found = found[key]
    assert found == value


@pytest.mark.parametrize(("line", "remedy"), [
    ("run.root=neue Bilder ü", """needs quotes that reach the program: 'run.root="neue Bilder ü"'."""),
    ("data.classes=[große, 'b',\"(c)\"]", """the program: 'data.classes=["große","b","(c)"]'."""),
    ("run.root=Anna's (1)", """the program: 'run.root="Anna'"'"'s (1)"'."""),
    ('metrics.groups={"größe": [a]}', "A key beyond ASCII needs a YAML file, see --config-dir."),
    ("loss.gamma=choice(1,2", "quote [ ] { } , and spaces for the shell: 'key=[1,2]'."),
    ("größe", "quote [ ] { } , and spaces for the shell: 'key=[1,2]'."),
])  # fmt: skip
def test_what_hydra_can_not_read_is_refused_with_the_quotes_that_it_needs(line: str, remedy: str) -> None:
    """Mutation seen to fail: a list in the quotes of one text."""
    (problem,) = problems_of(line)
    assert problem.endswith(remedy)
