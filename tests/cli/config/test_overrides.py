"""Overrides as people type them: quotes that are left out, keys in quotes, paths of Windows, and advice on the rest."""

import pytest

from segmeter.cli.config.hydra_rules import written
from tests.cli.config.test_compose import jobs_of, problems_of


def test_a_text_of_signs_that_hydra_has_none_for_needs_no_quotes():
    """Requirements are comparisons; a shell's quotes are gone when they arrive."""
    for line in ("require=[mean_iou >= 0.8, iou/car > 0.5]", 'require=\'["mean_iou >= 0.8","iou/car > 0.5"]\''):
        (job,) = jobs_of(line.replace("'", ""), "runs=[a,b]", command="compare")
        assert job.values["require"] == ["mean_iou >= 0.8", "iou/car > 0.5"]
    (job,) = jobs_of("require=mean_iou >= 0.8", "runs=[a,b]", command="compare")
    assert job.values["require"] == "mean_iou >= 0.8"


def test_the_keys_of_a_mapping_may_be_quoted() -> None:
    """As messages write colours."""
    colours = {"0,0,0": 0, "250,50,83": 1}
    for line in ('{"0,0,0": 0, "250,50,83":1}', "{'0,0,0': 0, '250,50,83':1}", written(colours)):
        (job,) = jobs_of(f"data.label_map={line}", "predictions=a", "references=b", command="score")
        assert job.values["data"]["label_map"] == colours
    (job,) = jobs_of('metrics.measures=[{"name": "surface"}]', "predictions=a", "references=b", command="score")
    assert job.values["metrics"]["measures"] == [{"name": "surface"}]


def test_only_a_key_loses_its_quotes() -> None:
    (job,) = jobs_of("""run.root={a: 'b,"c":d, \\\\e\\f'}""", "runs=[a,b]", command="compare")
    assert job.values["run"]["root"] == {"a": 'b,"c":d, \\\\e\\f'}


@pytest.mark.parametrize(("given", "read"), [
    (r"C:\new\table", r"C:\new\table"),
    (r"C:\masks\\"[:-1], r"C:\masks\\"[:-1]),
    (r"'\\server\a share (1)'", r"\\server\a share (1)"),
])  # fmt: skip
def test_paths_of_windows_keep_their_backslashes(given: str, read: object) -> None:
    (job,) = jobs_of(f"runs={given}", command="compare")
    assert job.values["runs"] == read


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
