"""The JSON and YAML files of runs: what is not what a run wrote is one line, whoever reads it; and what runs record."""

import ast
import os
import socket
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import segmeter
from segmeter import records
from segmeter.errors import DataError, InputError
from segmeter.files import describe_file, write_json
from tests.deadline import deadline
from tests.sources import MODULES, SOURCE, nodes

# Modules that parse JSON or YAML themselves, and where theirs comes from: nowhere in the folder of a run or checkpoint
OTHERS = {
    "records.py": "this door",
    "metrics/cases/stored.py": "the schema's note in a Parquet file, which pyarrow bounds",
    "data/verification/verify.py": "our own cache of verified files",
    "data/masks/annotations.py": "masks that the user names",
    "data/masks/drawn.py": "masks that the user names",
    "data/labels_config.py": "dataset.json that the user names",
    "cli/completion.py": "an index in the package",
    "cli/commands/finished.py": "a value of the command line",
    "cli/config/groups.py": "YAML of the package",
    "cli/config/reference.py": "YAML of the package, and JSON that the same line encoded",
    "cli/config/hydra_rules.py": "YAML of --config-dir, checked there",
    "evaluation/decisions/settings.py": "a value of the command line",
    "evaluation/decisions/suspects.py": "JSON that the line before encoded",
    "models/foreign/onnx_file.py": "metadata of a model that the user names",
}
PARSERS = {
    *("json.load", "json.loads", "json.JSONDecoder", "from_json", "pydantic_core.from_json"),
    *("yaml.load", "yaml.safe_load", "yaml.load_all", "yaml.safe_load_all", "yaml.compose", "OmegaConf.load"),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with the records of a finished run."""
    (tmp_path / "config.yaml").write_text("data: {name: cells}\n")
    (tmp_path / "manifest.json").write_text("{}")
    record = {"command": "score", "versions": {"segmeter": "0.1.0"}, "result": {"iou": 0.1}, "state": "done"}
    write_json(tmp_path / "run.json", records.seal_run(record, tmp_path))
    return tmp_path


@pytest.mark.parametrize("door", [records.read_json, records.read_own, records.read_yaml, records.read_json_lines])
def test_a_pipe_a_socket_a_link_and_a_folder_are_refused_at_once(door, tmp_path, monkeypatch):
    """Mutation seen to fail: opened without O_NONBLOCK, which waits for a writer."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("{}\n")
    (tmp_path / "link").symlink_to("file")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(tmp_path)  # the name of a socket is short
        listening.bind("socket")
        for name, said in (("pipe", "got a FIFO"), ("folder", "got a folder"), ("link", "is a link")):
            with pytest.raises(InputError, match=rf"^{tmp_path / name}: .*{said}"), deadline(30):
                door(tmp_path / name)
        with pytest.raises(OSError, match="socket"):
            door(tmp_path / "socket")
    with pytest.raises(InputError, match="/dev/zero: expected a regular file, got a device"):
        door(Path("/dev/zero"))


def test_a_file_is_read_up_to_its_bound_and_takes_the_memory_of_its_bytes(tmp_path):
    """Mutations seen to fail: the bound taken for one that a file must stay below, or for the bytes to set aside."""
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert records.read_own(path, most=5) == b"12345"
    with pytest.raises(DataError, match="it has 5 bytes, more than 4"), records.open_own(path, most=4):
        pass
    tracemalloc.start()
    records.read_own(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


@pytest.mark.parametrize(("content", "said"), [
    (b"[" * 100_000, "nested too deep"),
    (b'{"a": ' * 100_000, "nested too deep"),
    (b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}", "nested too deep"),
    (b"", "it is not JSON"),
    (b"{", "it is not JSON"),
    (b'{"a": "\xff"}', "it is not JSON"),
    (b"[]", "Input should be a valid dictionary"),
    (b"null", "Input should be a valid dictionary"),
    (b'{"command": 3}', "command: Input should be a valid string"),
    (b'{"result": [1]}', "result: Input should be a valid dictionary"),
    (b'{"overrides": ["a", 3]}', r"overrides\.1: Input should be a valid string"),
    (b'{"files": {"a": {"bytes": "1", "sha256": ""}}}', r"files\.a\.bytes: Input should be a valid integer"),
], ids=["deep", "keys", "300", "empty", "cut", "bytes", "list", "null", "number", "form", "inner", "kind"])  # fmt: skip
def test_json_of_another_form_is_one_line_that_names_the_file(content, said, tmp_path):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        records.read_json(tmp_path / "run.json", records.RunRecord)
    (line,) = caught.value.problems
    assert line.startswith(f"{tmp_path / 'run.json'}: is damaged, or was not written by segmeter (")
    assert "\n" not in line


@pytest.mark.parametrize(("content", "said"), [
    ("a: &x [1]\nb: *x\n", "it has aliases"),
    ("".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 1}]\n" for i in range(20)), "it has aliases"),
    ("a: &x [*x]\n", "it has aliases"),
    ("[" * 100_000, "nested too deep"),
    ("a: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
    ("- a\n", "it holds no mapping"),
    ("", "it holds no mapping"),
    ("a: [", "expected"),
], ids=["alias", "bomb", "itself", "deep", "code", "list", "empty", "cut"])  # fmt: skip
def test_yaml_that_no_run_wrote_is_one_line(content, said, tmp_path):
    """Mutation seen to fail: aliases allowed."""
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(DataError, match=said) as caught:
        records.read_yaml(tmp_path / "config.yaml")
    assert "\n" not in str(caught.value)


def test_files_are_read_as_they_were_written_with_what_a_form_does_not_name(tmp_path):
    content = {"command": "score", "mine": [1, {"b": 0.1}], "large": 2**70}
    write_json(tmp_path / "a.json", content)
    assert records.read_json(tmp_path / "a.json", records.RunRecord) == content
    (tmp_path / "a.yaml").write_text("a: 0.001\nb: '1e-3'\nc: [x, null]\n3: true\n" + "d: " + "[" * 99 + "]" * 99)
    found = records.read_yaml(tmp_path / "a.yaml")
    assert found | {"d": 0} == {"a": 0.001, "b": "1e-3", "c": ["x", None], "3": True, "d": 0}


def test_json_lines_are_read_without_one_that_was_cut_short(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n{"step": 3')
    assert records.read_json_lines(path) == [{"step": 1}, {"step": 2}]
    path.write_bytes(b"")
    assert records.read_json_lines(path) == []
    path.write_bytes(b"{}\n[1]\n")
    with pytest.raises(DataError, match=r"history\.jsonl, line 2: is damaged"):
        records.read_json_lines(path)


def test_every_changed_byte_of_a_sealed_record_is_found(run):
    """Mutation seen to fail: a record without a seal is taken for an older one."""
    whole, known = (run / "run.json").read_bytes(), records.read_run(run)
    for place in range(len(whole)):
        bit = (1, 2, 32)[place % 3]
        changed = bytearray(whole)
        changed[place] ^= bit
        (run / "run.json").write_bytes(changed)
        with pytest.raises(InputError, match=r"run\.json: (was changed or damaged|is damaged)"):
            raise AssertionError(f"byte {place} ^ {bit}: {records.read_run(run) == known}")


def test_a_record_names_the_files_beside_it_and_is_sealed_as_it_is_read_again(run):
    """Mutation seen to fail: sealed before keys became texts, so that 10 came after 9."""
    assert records.read_run(run)["files"] == {
        name: describe_file(run / name) for name in ("config.yaml", "manifest.json")
    }
    sealed = records.seal_run({"numbers": {9: "a", 10: ("b",)}, "state": "running"}, run)
    write_json(run / "run.json", sealed)
    assert records.read_run(run) == sealed
    assert list(sealed["files"]) == ["config.yaml"]
    assert records.seal(sealed) == sealed
    older = {"command": "train", "state": "done"}  # without a seal
    write_json(run / "run.json", older)
    assert records.read_run(run) == older


def test_nothing_else_parses_the_json_of_runs():
    """Mutation seen to fail: one json.loads of a run's file elsewhere."""
    found = {str(path.relative_to(SOURCE)) for path in MODULES if PARSERS & set(parsers_in(path))}
    assert found == set(OTHERS)


def parsers_in(path: Path) -> list[str]:
    """Names of what a module calls or hands on, as far as they may parse JSON or YAML."""
    found = nodes(path)
    inner = (node for node in found if isinstance(node, ast.ImportFrom) and node.module in ("json", "yaml"))
    named = {name.rpartition(".")[2] for name in PARSERS}
    return [
        *(f"{node.module}.{alias.name}" for node in inner for alias in node.names),
        *(ast.unparse(node) for node in found if {getattr(node, "attr", ""), getattr(node, "id", "")} & named),
        *("json.loads" for node in found if getattr(node, "attr", "") == "model_validate_json"),
    ]


def test_versions_name_what_is_installed_and_what_is_missing() -> None:
    found = records.versions()
    assert (found["segmeter"], found["numpy"]) == (segmeter.__version__, np.__version__)
    assert found["python"].split(".")[:2] == [str(part) for part in sys.version_info[:2]]


def test_hardware_names_gpus_where_torch_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = records.hardware()
    assert facts["gpus"] == [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    assert min(facts["cores"], facts["memory_gb"]) > 0
    monkeypatch.delitem(sys.modules, "torch")
    of_torch = ("threads", "waiting", "cuda", "gpus")
    assert records.hardware() == {name: fact for name, fact in facts.items() if name not in of_torch}
    assert "torch" not in sys.modules


def git(*arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


@pytest.mark.parametrize("name", [b"file", b"\x81"])
def test_source_is_the_commit_and_whether_it_was_changed(name: bytes, tmp_path, monkeypatch) -> None:
    """Names of files in no encoding hide no change, and those of branches may be in any."""
    if name != b"file" and sys.platform != "linux":
        pytest.skip("other systems refuse such names")
    monkeypatch.chdir(tmp_path)
    assert records.source() == {"commit": None, "dirty": None}
    git("init")
    git("config", "core.quotePath", "false")
    Path(os.fsdecode(name)).write_text("one")
    git("add", "--all")
    git("commit", "-m", "one")
    assert records.source()["dirty"] is False
    Path(os.fsdecode(name)).write_text("two")
    assert records.source()["dirty"] is True
    assert len(str(records.source()["commit"])) == 40
    Path(".git/HEAD").write_bytes(b"ref: refs/heads/caf\xe9\n")
    assert records.source() == {"commit": None, "dirty": None}


def test_the_commit_of_a_tree_too_large_to_look_through_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: Any) -> Any:
        if command[1] == "status":
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return subprocess.CompletedProcess(command, 0, b"0123456789abcdef\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert records.source() == {"commit": "0123456789abcdef", "dirty": None}
