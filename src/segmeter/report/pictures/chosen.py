"""Chooses the cases that get a picture, and the pictures that fit into a page."""

import base64
import hashlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import quote

from pydantic import Field

from segmeter.files import safe_id
from segmeter.metrics.summary.scoreboard import Scoreboard
from segmeter.records import Form, read_json, read_own
from segmeter.report.config import ReportConfig
from segmeter.report.pictures.layers import FOLDER, NOTES, PLANE, layers_path

_MOST_CLASSES = 64  # The worst case of at most this many classes is drawn.


class _Map(Form):
    """A map in the notes of a picture; its file is in the same folder."""

    file: Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
    small: Annotated[str, Field(pattern=r"^\w[\w.-]*$")] | None = None
    role: str


class _Notes(Form):
    """The notes of a picture."""

    case: str
    shown: list[int]
    maps: list[_Map]


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The cases of a run in the order in which a reader wants to see them.

    Parameters
    ----------
    case_ids
        All cases. For a run without references, the other fields are empty.
    worst
        Cases with a headline score, the worst first.
    of_classes
        The worst case of each class that occurs.
    headline
        The name of the score, "" without one.
    scores
        The headline of each case; NaN is undefined.
    """

    case_ids: Sequence[str]
    worst: Sequence[str] = ()
    of_classes: Sequence[str] = ()
    headline: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, board: Scoreboard) -> Self:
        """Rank the cases of a scoreboard."""
        ids = board.run.case_ids
        worst_of_class = [board.worst_first(f"iou/{name}")[:1] for name in board.spec.names[:_MOST_CLASSES]]
        return cls(
            case_ids=ids,
            worst=[ids[i] for i in board.worst_first()],
            of_classes=[ids[i] for indices in worst_of_class for i in indices],
            headline=board.headline,
            scores=dict(zip(ids, board.values(board.headline).tolist(), strict=True)),
        )


def choose_cases(ranking: Ranking, config: ReportConfig) -> set[str]:
    """Choose the worst cases, the worst case of each class, and a random sample."""
    if config.overlays < 0:
        return set(ranking.case_ids)
    if not config.overlays:
        return set()
    worst = min(config.worst, config.overlays)
    sample = sorted(ranking.case_ids, key=_draw)[: config.overlays - worst]
    return {*ranking.worst[:worst], *sample, *ranking.of_classes}


def take_turns(ranking: Ranking) -> list[str]:
    """Order cases for a page: alternate between the worst cases, the worst of each class, and a random sample."""
    lists = (ranking.worst, ranking.of_classes, sorted(ranking.case_ids, key=_draw))
    return list(dict.fromkeys(name for names in itertools.zip_longest(*lists) for name in names if name is not None))


def _draw(case_id: str) -> str:
    """Return the sort key of the random sample. It depends only on the case id, so the sample is reproducible."""
    return hashlib.sha256(case_id.encode("utf-8", "surrogateescape")).hexdigest()


def choose_pictures(
    folders: Sequence[Path], order: Sequence[str], config: ReportConfig, *, page: Path
) -> tuple[list[dict[str, Any]], list[str]]:
    """Load the layers of the same cases from one run or several, until the page is full.

    Only the first run with a picture of a case keeps its image and target. With a single run, tiles of large cases fill
    the rest of the page.

    Parameters
    ----------
    folders
        The folders of the runs.
    order
        The cases, the most important first.
    config
        Whether pictures are embedded, and the limit of their bytes.
    page
        The folder of the page, to which the paths of linked pictures are relative.

    Returns
    -------
    list of dict
        For each run, the notes of the layers by case, with ``files``, the content in Base64 or the path of each file by
        name, and ``tiles``, the same for each tile.
    list of str
        Cases whose pictures would make the page too large.
    """
    free_bytes = int(config.picture_mb * 2**20)
    left_out = list[str]()
    linked_from = page if config.pictures == "link" else None
    pictured = [{path.parent.name for path in (folder / FOLDER).glob(f"*/{NOTES}")} for folder in folders]
    by_run: list[dict[str, Any]] = [{} for _ in folders]

    for name in order if any(pictured) else ():
        runs = [number for number, names in enumerate(pictured) if safe_id(name) in names]
        pictures = {number: _load(layers_path(folders[number], name), linked_from) for number in runs}
        for picture in pictures.values() if len(folders) > 1 else ():
            picture.pop("planes", None)  # runs are compared by one plane
        for picture in [*pictures.values()][1:]:
            picture["maps"] = [entry for entry in picture["maps"] if entry["role"] != "target"]
            files = _files_of(picture["maps"])
            picture["files"] = {file: picture["files"][file] for file in files if file in picture["files"]}
        free_bytes -= 0 if linked_from else sum(len(json.dumps(picture)) for picture in pictures.values())
        if free_bytes >= 0:
            for number, picture in pictures.items():
                by_run[number][name] = picture
        elif runs:
            left_out.append(name)
    for name, picture in by_run[0].items() if len(folders) == 1 else ():
        picture["tiles"] = []
        for tile_folder in sorted(layers_path(folders[0], name).glob("tile-*"), key=lambda path: int(path.name[5:])):
            tile = _load(tile_folder, linked_from)
            free_bytes -= 0 if linked_from else len(json.dumps(tile))
            if free_bytes < 0:
                return by_run, left_out
            picture["tiles"].append(tile)
    return by_run, left_out


def read_notes(case_folder: Path) -> dict[str, Any]:
    """Read the notes in a case's folder, with ``case``, its id.

    Raises
    ------
    InputError
        They are damaged.
    """
    return read_json(case_folder / NOTES, _Notes)


def _load(folder: Path, linked_from: Path | None) -> dict[str, Any]:
    """Load the notes of a case's layers with their files, embedded or linked."""
    notes = read_notes(folder)
    names = ["image.webp", *_files_of(notes["maps"])]
    source_names = notes.pop("files", None)
    if linked_from is not None:
        path = folder.resolve()
        with suppress(ValueError):  # on another drive of Windows, the path stays absolute
            path = Path(os.path.relpath(path, linked_from.resolve()))
        address = path.as_uri() if path.is_absolute() else quote(os.fsencode(path.as_posix()))
        files = {name: f"{address}/{name}" for name in names}
    else:
        present = (name for name in names if (folder / name).is_file())
        files = {name: base64.b64encode(read_own(folder / name)).decode() for name in present}
    planes = [_load(plane_folder, linked_from) for plane_folder in sorted(folder.glob(f"{PLANE}*"))]
    notes |= {"planes": planes} if planes else {}
    return notes | {"files": files} | ({"names": source_names} if source_names else {})


def _files_of(maps: Sequence[Mapping[str, Any]]) -> list[str]:
    return [entry[key] for entry in maps for key in ("file", "small") if entry.get(key)]
