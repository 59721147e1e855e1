"""Ten NIfTI volumes from `check` to label volumes on disk, measured again by tools that share no code with ours."""

import json
from contextlib import chdir, contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from segmeter.errors import SegmeterError
from segmeter.evaluation import predicted
from segmeter.metrics.cases.stored import read_cases
from segmeter.metrics.pixels.overlap import overlap_scores
from segmeter.training.data.sampling import SampleSource
from tests.cli.sharded import contents, done, listed, newest, run, run_shards, whole
from tests.volumes_made import EDGES, write_cases

nibabel = pytest.importorskip("nibabel")
sitk = pytest.importorskip("SimpleITK")
pytestmark = pytest.mark.slow
DATA = ["data=folder", "data.root=scans", "data.planes=auto", "data.classes=[background,organ,lesion]"]
DATA += ["data.group_until=_", "data.in_channels=1"]
NET = ["data.mean=auto", "data.std=auto", "model.encoder=tu-test_resnet", "model.depth=3"]
NET += ["model.decoder_channels=[16,16,8]", "model.weights=null", "optimizer.lr=0.01", "inference.precision=float32"]
QUIET = ["report.html=false", "report.overlays=0", "report.worst=0", "metrics.bootstrap=10"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Ten volumes, of which one patient has two, and a network that was trained on their planes."""
    folder = tmp_path_factory.mktemp("volumes")
    with chdir(folder):
        write_cases(Path("scans"), 10)
        net = ["data.context=1", "training.epochs=12", "training.batch_size=8", "run.name=net"]
        assert run("train", *DATA, *NET, *net) == 0
    return folder


@pytest.fixture
def in_world(world, monkeypatch):
    monkeypatch.chdir(world)
    (folder,) = Path("runs/train").glob("*_net")
    return f"checkpoint={folder}/checkpoints/best"


@contextmanager
def stopped(place, name, allowed):
    """Let a run fail where a function is called again after some calls that may be."""
    real, calls = getattr(place, name), []

    def stops(*given, **options):
        calls.append(given)
        if not allowed(calls):
            raise SegmeterError("stopped by the test")
        return real(*given, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, stops)
        yield


def test_check_says_what_the_volumes_hold(in_world, capsys):
    assert run("check", *DATA, "output=found.json") == 0
    found = json.loads(Path("found.json").read_text())["splits"]
    assert sum(split["cases"] for split in found.values()) == 10
    assert found["train"]["sizes"][0] | {"cases": 0} == {"height": 28, "width": 24, "cases": 0}
    assert "planes" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:Please import:DeprecationWarning")  # the peer's own
def test_volumes_are_measured_in_3d_as_nnunet_and_surface_distance_measure_the_files(in_world):
    surfaces = pytest.importorskip("surface_distance")
    measure = "metrics.measures=[{name: surface, surface: marching_cubes}]"
    folder, table = done("eval", in_world, "data.split=all", *QUIET, measure), {}
    rows = read_cases(folder)
    assert len(rows) == 10
    for row in rows:
        target, labels = (
            np.asarray(nibabel.load(root / f"{row.case_id}.nii.gz").dataobj)
            for root in (Path("scans/masks"), folder / "predictions/labels")
        )
        assert (row.depth, row.height, row.width) == target.shape[::-1]
        assert row.spacing == pytest.approx(EDGES[::-1])
        assert row.unit == "mm"
        for label, name in ((1, "organ"), (2, "lesion")):
            one, two = target == label, labels == label
            tp, fp, fn = ((a & b).sum() for a, b in ((one, two), (~one, two), (one, ~two)))
            dice = 2 * tp / (2 * tp + fp + fn)  # nnU-Net's compute_metrics
            assert overlap_scores(row.counts, task="multiclass").dice[label] == pytest.approx(dice, rel=1e-12)
            if not (one.any() and two.any()):
                continue  # where the peer asks NumPy for a name that it no longer has
            found = surfaces.compute_surface_distances(one, two, EDGES)
            wanted = surfaces.compute_robust_hausdorff(found, 95), surfaces.compute_surface_dice_at_tolerance(found, 1)
            given = (row.scores[f"{score}/{name}"] for score in ("hd95_marching_cubes", "nsd_marching_cubes@1"))
            np.testing.assert_allclose(list(given), wanted, rtol=1e-6)
            table[row.case_id, name] = dice
    assert len(table) >= 10, "compared surfaces"
    assert min(dice for (_, name), dice in table.items() if name == "organ") > 0.5, table


def test_the_exported_network_takes_planes_with_their_neighbours(in_world, capsys):
    pytest.importorskip("onnxruntime")
    assert run("export", in_world, "input=scans/images", "cases=2") == 0
    assert "labels     100.0000% of 1990 pixels of 2 images equal segmeter's" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["auto", "mha"])
def test_label_volumes_lie_where_their_images_lie(form, in_world):
    assert run("predict", in_world, "input=scans/images", f"export.labels_format={form}", *QUIET[:3]) == 0
    files = sorted((newest("runs/predict") / "predictions/labels").iterdir())
    assert len(files) == 10
    for path in files:
        source = Path("scans/images", path.name.partition(".")[0] + ".nii.gz")
        written, wanted = sitk.ReadImage(str(path)), sitk.ReadImage(str(source))
        assert written.GetSize() == wanted.GetSize()
        for name in ("GetSpacing", "GetOrigin", "GetDirection"):
            np.testing.assert_allclose(getattr(written, name)(), getattr(wanted, name)(), atol=1e-6)
        if form == "auto":
            one, two = nibabel.load(path), nibabel.load(source)
            np.testing.assert_array_equal(one.affine, two.affine)
            fields = ("qform_code", "sform_code", "xyzt_units", "pixdim")
            assert all(np.array_equal(one.header[name], two.header[name]) for name in fields)
            assert one.get_data_dtype() == np.uint8


def test_an_interrupted_eval_goes_on_to_the_same_bytes(in_world):
    line = ["eval", in_world, "data.split=all", *QUIET]
    whole = done(*line, "run.name=whole")
    with stopped(predicted, "predict_volume", lambda calls: len(calls) <= 4):
        assert run(*line, "run.name=cut") == 3
    cut = newest("runs/eval")
    assert run(*line, f"resume={cut}") == 0
    for path in sorted((whole / "predictions").rglob("*.nii.gz")):
        assert path.read_bytes() == (cut / path.relative_to(whole)).read_bytes()
    assert json.loads((whole / "metrics.json").read_text()) == json.loads((cut / "metrics.json").read_text())


def test_merged_shards_have_the_figures_and_the_files_of_the_whole(in_world):
    line = [in_world, "data.split=all", "metrics.measures=[surface]", "device=cpu", *QUIET]
    wanted = whole("eval", line)
    folders = run_shards("eval", 3, *line)
    assert run("merge", listed(folders), "run.name=merged", *QUIET[:3]) == 0
    assert contents(newest("runs/merge")) == wanted


@pytest.mark.parametrize(("option", "said"), [
    ("export.labels_format=png", "`labels_format=png` to be left out for volumes"),
    ("postprocess.steps=[{name: watershed}]", "`watershed` to be left out for volumes"),
    ("export.objects=[coco]", "`objects` to be left out for volumes"),
], ids=lambda each: each.partition("=")[0])  # fmt: skip
def test_what_volumes_can_not_have_is_refused_in_one_line(option, said, in_world, refused):
    error = refused("predict", in_world, "input=scans/images", option)
    (line,) = [line for line in error.splitlines() if "expected" in line]
    assert said in line


def test_an_interrupted_training_goes_on_to_the_same_weights(in_world):
    line = ["train", *DATA, *NET, "training.epochs=3", "training.batch_size=8", "device=cpu"]
    line += ["data.samples_per_epoch=32"]
    assert run(*line, "run.name=whole") == 0
    with stopped(SampleSource, "batch", lambda calls: calls[-1][1] != 2):  # of the third epoch
        assert run(*line, "run.name=cut") == 3
    whole, cut = (next(Path("runs/train").glob(f"*_{name}")) for name in ("whole", "cut"))
    assert run("train", f"resume={cut}") == 0
    one, two = (load_file(folder / "checkpoints/last/model.safetensors") for folder in (whole, cut))
    assert one.keys() == two.keys()
    assert all(one[name].equal(two[name]) for name in one)
