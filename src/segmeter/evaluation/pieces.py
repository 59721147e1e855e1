"""Reads the runs to be merged, and lists every way in which they are not parts of one run."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from segmeter.checks import expected, some
from segmeter.classes import ClassSpec
from segmeter.distributed.shards import hash_names
from segmeter.errors import DataError, InputError
from segmeter.evaluation.manifest import read_case_facts, read_run_manifest
from segmeter.files import is_whole
from segmeter.metrics.cases.stored import read_spec
from segmeter.records import read_run
from segmeter.remote import fetch
from segmeter.schema import ADDED

Kind = Literal["shards", "folds"]
COMMANDS = ("eval", "score", "predict")
SHARD = ("shard.shard", "shard.cases", "shard.sha256")  # Keys of a manifest's identity, see `describe_shard`
# Folds differ in their checkpoint, their held-out cases, and the normalisation of their training cases
OF_A_FOLD = ("files.checkpoint_sha256", "files.data", *(f"data.{key}" for key in ("fold", "split", "mean", "std")))


@dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """A finished run on some of the cases.

    Parameters
    ----------
    folder
        Its folder.
    command
        The command that made it: "eval", "score" or "predict".
    identity
        Everything that determined its results, by "group.key", without its shard.
    shard
        Its shard, by the last part of the keys `SHARD`; empty if it is not a shard.
    cases
        The hash of the files and the record of each case, by case id.
    inputs
        Hashes of further files, beside those of the cases, that its manifest keeps.
    record
        Its run.json.
    spec
        The classes; None for predict.
    """

    folder: Path
    command: str
    identity: Mapping[str, Any]
    shard: Mapping[str, Any]
    cases: Mapping[str, tuple[str, str]]
    inputs: Mapping[str, str]
    record: Mapping[str, Any]
    spec: ClassSpec | None

    @property
    def name(self) -> str:
        """The name of the run in messages."""
        return self.folder.name


def find_runs(where: str, folders: Sequence[Path], keep: Callable[[str], bool] = lambda name: True) -> list[Path]:
    """Resolve the folders of runs. From URLs, the files that `keep` accepts are fetched.

    Raises
    ------
    InputError
        A folder is given twice.
    """
    resolved = [fetch(folder, keep=keep).resolve() for folder in folders]
    twice = [str(folder) for folder, times in Counter(resolved).items() if times > 1]
    if twice:
        raise InputError(expected(where, "runs", "to be different folders", f"{some(twice)} twice"))
    return resolved


def read_pieces(folders: Sequence[Path]) -> list[Piece]:
    """Read runs that are finished and whole.

    Raises
    ------
    DataError
        A folder is not a finished run of eval, score or predict, or a file of it was changed; one line each.
    InputError
        There are none, or a folder is given twice.
    """
    if not folders:
        raise InputError(expected("merge", "runs", "to name run folders", "none", "Write runs=[A,B]."))
    pieces, problems = list[Piece](), list[str]()
    for folder in find_runs("merge", folders):
        try:
            pieces.append(_read(folder))
        except InputError as error:
            problems += error.problems
    if problems:
        raise DataError(problems)
    return pieces


def _read(folder: Path) -> Piece:
    remedy = "Give the folders of finished runs of segmeter eval, score or predict."
    try:
        record = read_run(folder)
        command = record.get("merged", {}).get("command") or record["command"]
        if command not in COMMANDS:
            raise ValueError(f"it is a run of {command}")
        manifest = read_run_manifest(folder)
    except (OSError, ValueError, KeyError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(expected("merge", "runs", "to be run folders", f"{folder} ({reason})", remedy)) from error
    if manifest["state"] != "done":
        remedy = f"Finish it with segmeter {command} resume={folder}."
        raise DataError(expected("merge", "runs", "to be finished", f"{folder}, which is not", remedy))
    files = (*manifest["results"].items(), *record.get("files", {}).items())
    if damaged := [name for name, entry in files if not is_whole(folder / name, entry)]:
        rule = "to be as they were written"
        raise DataError(expected("merge", "runs", rule, f"{folder}, where these are not ({some(damaged)})"))
    identity = dict(manifest["identity"])
    shard = {key.partition(".")[2]: identity.pop(key) for key in SHARD if key in identity}
    case_ids, *facts = (column.to_pylist() for column in read_case_facts(folder).columns)
    return Piece(
        folder=folder,
        command=command,
        identity=identity,
        shard=shard,
        cases=dict(zip(case_ids, zip(*facts, strict=True), strict=True)),
        inputs=manifest.get("inputs", {}),
        record=record,
        spec=None if command == "predict" else read_spec(folder),
    )


def check_pieces(pieces: Sequence[Piece], kind: Kind) -> None:
    """Refuse runs that are not parts of one run, with one line for each difference and each missing part.

    Raises
    ------
    InputError
        They differ in command, configuration, classes, checkpoint or data; or shards are missing, or differ in a case
        that they share; or folds are missing, or share a case or a checkpoint.
    """
    wanted = _compared(pieces[0], kind)
    problems = list[str]()
    for piece in pieces[1:]:
        values = _compared(piece, kind)
        for key in sorted(key for key in {*wanted, *values} if wanted.get(key) != values.get(key)):
            rule = f"to be the same in all runs, {wanted.get(key)!r} as in {pieces[0].name!r}"
            problems.append(expected("merge", key, rule, f"{values.get(key)!r} in {piece.name!r}"))
    problems = problems or (_shard_problems(pieces) if kind == "shards" else _fold_problems(pieces))
    if problems:
        raise InputError(problems)


def _compared(piece: Piece, kind: Kind) -> dict[str, Any]:
    values = {"command": piece.command, **ADDED, **piece.identity, "colours": piece.spec and piece.spec.colours}
    values.pop("threads", None)  # they affect only last bits, of which `merge` warns
    if kind == "folds":
        return {key: value for key, value in values.items() if key not in OF_A_FOLD}
    return {**values, **{key: piece.shard.get(key) for key in ("cases", "sha256")}, "data": piece.record.get("data")}


def _shard_problems(pieces: Sequence[Piece]) -> list[str]:
    if whole := [piece.name for piece in pieces if not piece.shard]:
        remedy = "Runs on other cases, such as folds, are joined by kind=folds."
        return [expected("merge", "runs", "to be shards, made with shard=", f"whole runs ({some(whole)})", remedy)]
    problems = list[str]()
    owners = dict[str, Piece]()
    differing = list[str]()
    for piece in pieces:
        for case_id in piece.cases:
            owner = owners.setdefault(case_id, piece)
            if piece.cases[case_id] != owner.cases[case_id]:  # rows are compared when they are read
                differing.append(f"{case_id} in {owner.name} and {piece.name}")
    total = pieces[0].shard["cases"]
    if len(owners) != total or hash_names(list(owners)) != pieces[0].shard["sha256"]:
        shards = {piece.shard["shard"] for piece in pieces}
        counts = {shard.partition("/")[2] for shard in shards}
        missing = [f"{n}/{count}" for count in counts for n in range(1, int(count) + 1) if f"{n}/{count}" not in shards]
        named = f", without shard {', '.join(missing)}" if len(counts) == 1 and missing else ""
        problems.append(expected("merge", "runs", f"to be all shards of {total} cases", f"{len(owners)} cases{named}"))
    if differing:
        problems.append(expected("merge", "runs", "to agree on the cases that they share", some(differing)))
    return problems


def _fold_problems(pieces: Sequence[Piece]) -> list[str]:
    problem = partial(expected, "merge")
    problems = list[str]()
    times = Counter(case_id for piece in pieces for case_id in piece.cases)
    if twice := [case_id for case_id, count in times.items() if count > 1]:
        problems.append(problem("runs", "to be folds without a common case", some(twice)))
    if shards := [piece.name for piece in pieces if piece.shard]:
        remedy = "Merge the shards of each fold first."
        problems.append(problem("runs", "to be whole folds", f"shards ({some(shards)})", remedy))
    hashes = [piece.identity.get("files.checkpoint_sha256") for piece in pieces]
    repeated = {sha256 for sha256 in hashes if sha256 and hashes.count(sha256) > 1}
    if shared := [piece.name for piece, sha256 in zip(pieces, hashes, strict=True) if sha256 in repeated]:
        rule = "to be folds, each of a checkpoint of its own"
        problems.append(problem("runs", rule, f"the same checkpoint in {some(shared)}"))
    folds = {piece.identity.get("data.fold") for piece in pieces}
    if folds == {None}:
        return problems
    numbers = {tuple(map(int, fold.split("/"))) for fold in folds if fold is not None}
    if None in folds or len({count for _, count in numbers}) > 1:
        return [*problems, problem("data.fold", "to be i/k with one k in all runs", some(map(str, folds)))]
    count = max(numbers)[1]
    if missing := [f"{n}/{count}" for n in range(1, count + 1) if (n, count) not in numbers]:
        problems.append(problem("runs", f"to be all {count} folds", f"none of fold {', '.join(missing)}"))
    if others := [piece.name for piece in pieces if piece.identity.get("data.split") != "val"]:
        rule = "to be val, the cases that a fold held out, in all runs"
        problems.append(problem("data.split", rule, f"others in {some(others)}"))
    return problems
