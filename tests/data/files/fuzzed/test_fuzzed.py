"""Damaged files of every format: each is read as another reader reads it, or is refused in one line of ours.

None of them crashes or hangs the process or takes more memory than is stated. `make fuzz` reads 4,000 of each format.
"""

import pickle
import shutil
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from segmeter.data.files import reader_process
from segmeter.data.files.reader_process import SECONDS, SPARE_BYTES
from segmeter.data.images import read_image
from segmeter.errors import DataError
from tests.data.crafted import noise, put
from tests.data.files import apart as work
from tests.data.files.fuzzed.mutations import in_bytes, of
from tests.data.files.fuzzed.readers import INSIDE, MOST_PIXELS, NAMED, compared, measured
from tests.data.files.fuzzed.seeds import FORMATS
from tests.deadline import deadline
from tests.fuzzing import record, rounds

ROOT = Path(__file__).parents[4]
WHOLE, SAMPLE = 4000, 120
MOST_SECONDS = 10  # of processor time for one of these small files
MOST_MEGABYTES = 64 + 64 * MOST_PIXELS / 2**20  # beside what the process had before
MOST_APART = (SPARE_BYTES + 24 * MOST_PIXELS) / 2**20 + 400  # the last: the libraries of a reader process
ENDLESS, MOST_BYTES = 60, 16 << 30  # seconds of processor time, and memory, with which the process is ended
DEADLINE = 300  # seconds in which a busy machine answers all the same

pytestmark = pytest.mark.fuzz


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    """The PNG decoder, whose compilation takes longer than a file may."""
    asked(read_image, put(tmp_path_factory.mktemp("compiled") / "a.png", noise()))


def asked(work, *arguments):
    """The result of a function in a process that is started anew where a file ended it."""
    reader = reader_process._idle.pop() if reader_process._idle else reader_process._Reader()
    with deadline(DEADLINE):
        return reader.ask(ROOT, pickle.dumps((ROOT, work, arguments, ENDLESS, MOST_BYTES)), ENDLESS)


def read_both(form, path, read=measured):
    """How our reader ended, and whether the other one finds the same; kind "crash" where the process ended."""
    try:
        outcome, values = asked(read, form, path)
    except (reader_process._Crashed, DataError) as error:
        return {"kind": "crash", "said": str(error), "seconds": 0, "peak": 0, "apart": 0}, ""
    try:
        return outcome, asked(compared, form, path, values)
    except (reader_process._Crashed, DataError):
        return outcome, "crashed"


def damaged_case(form, number, seeds, folder):
    """A sound case of a format with one file of it damaged: the path to read, and the damaged file."""
    rng = np.random.default_rng([zlib.crc32(form.encode()), number])
    chosen = of(rng, sorted(path for path in seeds.iterdir() if path.is_dir() == (form in ("zarr", "ome-zarr"))))
    target = folder / chosen.name
    if chosen.is_dir():
        shutil.copytree(chosen, target)
        file = of(rng, sorted(path for path in target.rglob("*") if path.is_file()))
    else:
        shutil.copy(chosen, target)
        beside = chosen.with_suffix("")  # the pictures of a panoptic file
        pictures = shutil.copytree(beside, folder / beside.name) if beside.is_dir() else None
        file = next(iter(pictures.iterdir())) if pictures and int(rng.integers(3)) == 0 else target
    content, known = file.read_bytes(), FORMATS[form].changes
    knows = file.suffix in (".json", ".geojson", "") or not chosen.is_dir()
    for _ in range(int(rng.integers(1, 3))):
        share = 12 if form in NAMED else 2  # any byte that is changed in JSON leaves mostly no JSON
        change = of(rng, known) if known and knows and int(rng.integers(share)) else in_bytes
        try:
            content = change(content, rng) or b"x"
        except Exception:  # a second change of what is no file of its format any more
            content = in_bytes(content, rng) or b"x"
    file.write_bytes(content)
    return (target / "x" if form in INSIDE else target), file


def fault_of(outcome, other, folder):
    """What is wrong with an outcome; empty where nothing is."""
    kind, said = outcome["kind"], outcome["said"]
    if kind in ("crash", "fault"):
        return f"{kind} {said}"
    if outcome["seconds"] > MOST_SECONDS or outcome["peak"] > MOST_MEGABYTES or outcome["apart"] > MOST_APART:
        return f"{outcome['seconds']:.1f} s, {outcome['peak']:.0f} MB, {outcome['apart']:.0f} MB apart: {said}"
    if kind == "refused" and (not said.isprintable() or not said.startswith(str(folder))):
        return f"no line that names the file: {said!r}"
    return other if other.startswith("differs") else ""


@pytest.mark.parametrize("form", FORMATS)
def test_damaged_files_are_read_as_they_are_or_refused_in_one_line(form, tmp_path):
    seeds, kept = tmp_path / "seeds", tmp_path / "kept"
    seeds.mkdir()
    FORMATS[form].write(seeds)
    found: Counter[str] = Counter()
    faults, seconds, peak, apart = [], [], [], []
    for number in range(rounds(SAMPLE, WHOLE)):
        folder = tmp_path / "case"
        folder.mkdir()
        path, _ = damaged_case(form, number, seeds, folder)
        outcome, other = read_both(form, path)
        late = "processor time" in outcome["said"]
        ended = "its decoder ended" in outcome["said"]
        found[f"{outcome['kind']}" + (" after its time" if late else " after a crash apart" if ended else "")] += 1
        found[f"other reader: {other.partition(':')[0].partition(' ')[0]}"] += outcome["kind"] == "read"
        seconds.append(outcome["seconds"] + SECONDS * late)
        peak.append(outcome["peak"])
        apart.append(outcome["apart"])
        fault = fault_of(outcome, other, folder)
        if fault:
            faults.append(f"{number} {path.name}: {fault[:300]}")
            shutil.copytree(folder, kept / str(number))
        shutil.rmtree(folder)
    record(
        f"files: {form}",
        files=sum(found[each] for each in found if not each.startswith("other")),
        outcomes={name: count for name, count in sorted(found.items()) if count},
        most_seconds=round(max(seconds), 2),
        most_megabytes=round(max(peak)),
        most_megabytes_apart=round(max(apart)),
        faults=len(faults),
    )
    assert found["read"] or form == "npz", found
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("form", FORMATS)
def test_sound_files_are_read_by_both_readers(form, tmp_path):
    """So that what is said of damaged ones means something."""
    FORMATS[form].write(tmp_path)
    folders = form in ("zarr", "ome-zarr")
    for path in sorted(each for each in tmp_path.iterdir() if each.is_dir() == folders):
        outcome, other = read_both(form, path / "x" if form in INSIDE else path)
        assert (outcome["kind"], outcome["said"]) == ("read", "")
        assert other in ("same", "not asked"), (path, other)


def test_a_crash_is_seen_and_the_next_file_is_read(tmp_path):
    assert read_both("npy", tmp_path, work.crash)[0]["kind"] == "crash"
    assert read_both("npy", tmp_path / "none.npy")[0]["kind"] == "refused"
