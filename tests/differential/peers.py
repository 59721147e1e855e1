"""Other tools as they are installed: a module, or a skip that says why there is none."""

import importlib
import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from itertools import accumulate, chain
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

# What asks for packages that we can't have beside ours is installed here, alone (see the Makefile).
BARE = Path(sys.prefix) / "peers"
# What those packages import at their top and need for reading, plotting or training, not for measuring.
STAND_INS = {
    "panoptica": ("pandas", "plotly.express", "plotly.graph_objects", "ruamel.yaml", "cc3d"),
    "nnunetv2": (
        *("batchgenerators.utilities.file_and_folder_operations", "acvl_utils.cropping_and_padding.bounding_boxes"),
        *("dynamic_network_architectures.building_blocks.helper", "SimpleITK"),
    ),
    "cityscapesscripts": ("pyquaternion",),
    "seg-metrics": ("pandas", "medutils.medutils"),
    "picai_eval": ("SimpleITK",),
    "brats-evaluation": ("pandas",),
    "cellpose": ("cv2", "fastremap", "fill_voids"),
    "ultralytics": ("cv2",),
    "label-studio-sdk": ("appdirs", "jwt", "ijson", "lxml", "nltk.tokenize.treebank"),
    "datumaro": (
        *("cv2", "defusedxml", "json_stream.base", "json_stream.writer", "lxml", "orjson", "pandas"),
        "shapely.geometry.base",
    ),
}

if BARE.is_dir() and str(BARE) not in sys.path:
    sys.path.append(str(BARE))  # last: nothing there hides a module of the environment


def load(module: str, package: str | None = None) -> ModuleType:
    """Import a peer's module; skip where the package is not installed. Its own warnings at import are not ours."""
    package = package or module.partition(".")[0]
    find_peer(package)
    with quiet(), lent_modules(package), settings_kept():
        return importlib.import_module(module)


def find_peer(package: str) -> Distribution:
    """Find a peer; skip where it is not installed."""
    try:
        return distribution(package)
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed: it comes with `make test` (groups peers and bare-peers)")


def installed(package: str) -> str:
    """Name and version, for messages."""
    return f"{package} {version(package)}"


@contextmanager
def quiet() -> Iterator[None]:
    """Let a peer warn, without that being an error here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def settings_kept() -> Iterator[None]:
    """Undo what a peer sets for the whole process: ultralytics prints arrays its way and replaces `torch.save`.

    It also counts the threads of torch anew, and would use the network: to install packages and to report itself.
    """
    threads, offline = torch.get_num_threads(), {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false"}
    with np.printoptions(), mock.patch.dict(os.environ, offline), mock.patch.object(torch, "save", torch.save):
        yield
    torch.set_num_threads(threads)


@contextmanager
def lent_modules(package: str) -> Iterator[None]:
    """Give a peer stand-ins for what it imports and does not need here."""
    names = (accumulate(name.split("."), "{}.{}".format) for name in STAND_INS.get(package, ()))  # and their parents
    missing: dict[str, Any] = {}
    for name in chain(*names):  # parents come first
        if name.rpartition(".")[0] in missing or importlib.util.find_spec(name) is None:
            missing[name] = stand_in(name)
    with mock.patch.dict(sys.modules):
        sys.modules.update(missing)
        yield
        kept = {name: module for name, module in sys.modules.items() if name not in missing}
    sys.modules.update(kept)


def stand_in(name: str) -> mock.MagicMock:
    """A module of anything, with a loader, which datumaro asks for."""
    return mock.MagicMock(__spec__=ModuleSpec(name, mock.Mock(**{"create_module.return_value": None})))


@contextmanager
def exact_quantile() -> Iterator[None]:
    """Let MONAI's percentiles find their rank in float64; in float32, 0.95 (n - 1) is off by up to 1e-7 n points."""
    quantile = torch.quantile
    with mock.patch.object(torch, "quantile", lambda values, *given, **more: quantile(values.double(), *given, **more)):
        yield


def tensors(*maps: Any) -> list[torch.Tensor]:
    """Label maps with a batch axis, as torchmetrics, SMP and Ultralytics want them."""
    return [torch.from_numpy(one[None].astype(np.int64)) for one in maps]


def one_hot(case: Any) -> list[torch.Tensor]:
    """Prediction and target of a case (1, K, ...), as MONAI wants them."""
    classes = np.arange(case.num_classes).reshape(-1, *[1] * case.target.ndim)
    return [torch.from_numpy((one == classes)[None].astype(np.float32)) for one in (case.labels, case.target)]


def nnunet_on_arrays(
    maps: Mapping[str, Any], names: Iterable[str], regions: Sequence[Any], ignored: int | None = None
) -> tuple[dict[str, Any], str]:
    """Call nnU-Net's evaluation of folders, with arrays by "ref/name" and "pred/name" in place of files.

    Returns its result and the text of the file that it would write.
    """
    peer, names, written = load("nnunetv2.evaluation.evaluate_predictions", "nnunetv2"), list(names), []
    pool = SimpleNamespace(starmap=lambda call, given: [call(*each) for each in given])
    context = SimpleNamespace(Pool=lambda _: nullcontext(pool))
    with (
        mock.patch.object(peer, "subfiles", return_value=names),
        mock.patch.object(peer, "join", lambda folder, name: f"{folder}/{name}"),
        mock.patch.object(peer.multiprocessing, "get_context", return_value=context),
        mock.patch.object(peer, "save_json", lambda content, _, **given: written.append((content, given))),
    ):
        reader = SimpleNamespace(read_seg=lambda name: (maps[name], {}))
        found = peer.compute_metrics_on_folder("ref", "pred", "x.json", reader, "", list(regions), ignored)
    (content, given) = written[0]
    return found, json.dumps(content, indent=4, **given)
