"""The 110 bad inputs: the line that is typed, how the files are spoilt before, and what is said."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import tifffile
import torch
from torch import nn

from tests.data.crafted import encoded, noise, png_bytes
from tests.faults import world
from tests.faults.world import CASES, put, save

DATA = "data=folder data.root=data data.task=binary data.classes=[ground,cell]"
NET = "model.encoder=tu-test_resnet model.depth=3 model.decoder_channels=[8,8,4] device=cpu"
TRAIN = f"train {DATA} {NET} data.val_fraction=0.3 training.batch_size=2 training.epochs=1"
OWN = "train --config-dir conf experiment=mine data=folder data.root=data data.task=binary"
CHECK = f"check {DATA} data.val_fraction=0.3 data.test_fraction=0.3"
LISTS = f"check {DATA} data.lists=. splits=[train]"
SCORE = "score predictions=labels references=data/masks data.num_classes=2 metrics.bootstrap=0 report.html=false"
PROBS = f"{SCORE} probs=probs"
PREDICT = "predict checkpoint=model input=data/images device=cpu report.html=false report.overlays=0"
WEIGHTS, IMAGE, MASK = "model/model.safetensors", "data/images/b.png", "data/masks/b.png"
LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(f"a{i}: &a{i} [{f'*a{i - 1},' * 9}]\n" for i in range(1, 9))
FEW = np.zeros((16, 16), np.uint8)
DOT = np.pad(np.ones((1, 1), np.uint8), ((3, 12), (4, 11)))
SOFT = np.uint8(np.clip(np.linspace(-1, 2, 256), 0, 1) * 255).reshape(16, 16)
TREE = "The expected layout under {here}/data is images/<name>.png and masks/<name>.png"


@dataclass(frozen=True)
class Bad:
    number: int
    line: str  # what is typed
    says: str  # one of the lines on standard error; with code 0, part of any output
    spoil: Callable[[], object] = lambda: None
    code: int = 2
    lines: int = 1

    def __str__(self) -> str:
        return f"{self.number}-{self.says[:40]}"


def puts(path: str, content: bytes | str | np.ndarray) -> Callable[[], object]:
    return lambda: put(path, content)


def own(text: str, name: str = "mine.yaml") -> Callable[[], object]:
    return puts(f"conf/experiment/{name}", f"# @package _global_\n{text}")


def probs(value: float) -> Callable[[], object]:
    return puts("probs/b.npy", np.full((2, 16, 16), value, np.float32))


def each(make: Callable[[int], np.ndarray]) -> Callable[[], object]:
    return lambda: [put(f"data/images/{name}.png", make(seed)) for seed, name in enumerate(CASES)]


HOSTILE = {
    "a\nb": r"'data/images/a\nb.png'",
    "<img onerror>": "data/images/<img onerror>.png",
    "=HYPERLINK(": "data/images/=HYPERLINK(.png",
    "[red]": "data/images/[red].png",
    "x" * 250: "...xxx.png",
    "\x1b[31m": r"'data/images/\x1b[31m.png'",
}
RUN_LENGTHS = [
    *((wrong, "of another size than (16, 16)") for wrong in ([3, 4], [300], [-5, 261], "52203")),
    ("abc`", "as a text that ends within a number"),
]
TABLE = [
    Bad(1, f"{TRAIN} model.dpth=3", "config: unknown key 'model.dpth'. Did you mean 'model.depth'? See: ..."),
    Bad(2, f"{TRAIN} model.depth=banana", "`model.depth` to be an integer >= 3 and <= 5, got 'banana'."),
    Bad(3, f"{TRAIN} model.depth=50", "`model.depth` to be an integer >= 3 and <= 5, got 50."),
    Bad(4, f"{TRAIN} model=unett", "`model` to be one of deeplabv3, ... upernet, got 'unett'. Did you mean 'unet'?"),
    Bad(5, f"{TRAIN} nosuch=x", "config: unknown key 'nosuch'. Known: allow_changes, augment, ..., training. See: ..."),
    Bad(6, f"{TRAIN} optimizer.lr=[1,", "can't read the override 'optimizer.lr=[1,' ... quote [ ] ...: 'key=[1,2]'."),
    Bad(7, "train -cn nope", "no configuration is named 'nope'. Known: agree, check, ..., tune."),
    Bad(8, f"{TRAIN} data.root=", "`data.root` to be given, got ''. Set data.root=/path/to/the/data."),
    Bad(9, "train data=camvid", "config: `data.root` is required. Set data.root=VALUE."),
    Bad(10, f"{TRAIN} data.root=no",
        "got no folder {here}/no (working folder {here}). Set data.root=/path/to/the/data."),
    Bad(11, f"{TRAIN} loss.gamma=-1", "expected `loss.gamma` to be a number >= 0, got -1."),
    Bad(12, f"{TRAIN} loss.gamma=nan", "expected `loss.gamma` to be a number >= 0, got nan."),
    Bad(13, f"{TRAIN} loss.alpha=1.5", "expected `loss.alpha` to be a number >= 0 and <= 1 or null, got 1.5."),
    Bad(14, f"{TRAIN} data.task=multiclass loss.class_weights=[1,2,3]",
        "`class_weights` to have 2 values, one for each of ground, cell, got (1.0, 2.0, 3.0)."),
    Bad(15, f"{TRAIN} training.batch_size=0", "`training.batch_size` to be an integer >= 1 ... or one of auto, got 0."),
    Bad(16, f"{TRAIN} optimizer.lr=0", "expected `optimizer.lr` to be a number > 0 and <= 10, got 0."),
    Bad(16, f"{TRAIN} optimizer.lr=1e30", "expected `optimizer.lr` to be a number > 0 and <= 10, got 1e+30."),
    Bad(17, f"{PREDICT} device=cuda",
        "expected `device` to be here, got 'cuda', with 0 GPUs found. This torch (...) is built ...or set device=cpu.",
        lambda: world.gpus(0)),
    Bad(18, f"{PREDICT} device=cuda:9", "got 'cuda:9', with 2 GPUs found. Use cuda:0 to cuda:1.",
        lambda: world.gpus(2)),
    Bad(19, f"{TRAIN} data.classes=[bg,bg]", "`data.classes` to be distinct, got ['bg', 'bg']. Twice: bg."),
    Bad(20, f"{TRAIN} data.classes=[]", "to name at least 2, got []. Set data.classes=[background,cell]."),
    Bad(20, f"{TRAIN} data.classes=[one]", "`data.classes` to name at least 2, got ['one']."),
    Bad(21, f"{PREDICT} export.dtype=uint8",
        "`dtype` to hold every label, got 'uint8' for labels up to 65535. Set export.dtype=uint16, ...",
        world.many_classes),
    Bad(22, f"{TRAIN} data.ignore_index=1", "to be null or between 2 and 65535, as it must not be a class, got 1."),
    Bad(23, f"{SCORE} metrics.measures=[surfaces]", "a registered name, got 'surfaces'. Did you mean 'surface'?"),
    Bad(24, f"{TRAIN} training.monitor=pq", "`training.monitor` to be one of auto, mean_iou, ..., dice/..., got 'pq'."),
    Bad(25, f"{TRAIN} run.name=${{nope}}",
        "can't resolve `run.name`: ... 'nope' not found. Write a value, or the path ..."),
    Bad(26, f"{TRAIN} run.name=${{oc.env:HOME_X}}",
        "only variables whose names start with SEGMETER_ ... not HOME_X. ..."),
    Bad(27, f"{TRAIN} +model._target_=os.system",
        "'model._target_' is not allowed: a configuration ... never names code..."),
    Bad(28, f"{TRAIN} +loss._target_=segmeter.models.os.system",
        "'loss._target_' is not allowed: ... never names code ..."),
    Bad(29, f"{TRAIN} +hydra.callbacks.x._target_=os.system", "'hydra.callbacks.x._target_' can't be set here. ..."),
    Bad(30, OWN, r"found character '\t' ...mine.yaml" + '", line 3, column 1. Indent with spaces.',
        own("a:\n\tb: 3\n")),
    Bad(31, OWN, "duplicate key seed ...mine.yaml" + '", line 3, column 1. Keep one ...', own("seed: 1\nseed: 2\n")),
    Bad(32, OWN, "mine.yml: is not read. Rename it to mine.yaml.", own("seed: 1\n", "mine.yml")),
    Bad(33, OWN, "its aliases (&name, *name) stand for more than 100000 values.", own(LAUGHS)),
    Bad(34, OWN, "to be text, got false. Write it in quotes....", own("data: {classes: [a, no]}\n")),
    Bad(35, OWN, "to be text, got 8. Write it in quotes....", own("data: {classes: [a, 010]}\n")),
    Bad(36, f"{TRAIN} hydra.run.dir=/", "can't be set here. Outputs go where run.root and run.name say; ..."),
    Bad(36, f"{SCORE} run.root=no", "to be a folder that can be written, got ... (Not a ...).", puts("no", "x")),
    Bad(37, f"{TRAIN} -m loss.gamma=choice()",
        "can't read the override 'loss.gamma=choice()' ... Write key=value, ..."),
    Bad(38, OWN + " data.classes=[a,b]", "`run.name` is [REDACTED], as ... Set it again.",
        own("run: {name: '[REDACTED]'}")),
    Bad(39, PREDICT, "model.safetensors: is empty (0 bytes): the copy or download broke off. Fetch it again.",
        puts(WEIGHTS, "")),
    Bad(40, PREDICT, "is truncated: 5 of ... bytes. Fetch it again.", puts(WEIGHTS, "hello")),
    Bad(41, PREDICT, "(looks like HTML, perhaps a login page). Download the file itself.",
        puts(WEIGHTS, "<!DOCTYPE html><html>")),
    Bad(42, PREDICT, "is a git-lfs pointer, not the file itself. Run `git lfs pull`.",
        puts(WEIGHTS, "version https://git-lfs...")),
    Bad(43, PREDICT, "is truncated: ... of ... bytes. Fetch it again.", lambda: world.cut(WEIGHTS)),
    Bad(44, PREDICT, "was changed or damaged ... (sha256 differs). Fetch it again.", lambda: world.flip(WEIGHTS)),
    Bad(45, f"{PREDICT} checkpoint=x.pt", "could run code; nothing ran. ... If you trust ...",
        puts("x.pt", pickle.dumps({"weights": world.Touch()}))),
    Bad(46, f"{PREDICT} checkpoint=x.pt",
        "holds more than the tensors of a state dict ... write `safetensors.torch.save_file(model.state_dict(), ...",
        lambda: torch.save(nn.Sequential(nn.Conv2d(1, 1, 1)), "x.pt")),
    Bad(47, f"{PREDICT} checkpoint=x.pt",
        "holds 1 bare tensors, without classes and normalisation. Train from it with model.weights=PATH, or name ...",
        lambda: torch.save({"module.conv.weight": torch.ones(2)}, "x.pt")),
    Bad(48, PREDICT, "does not fit ...segmentation_head.0.bias (7,) in the file, (1,) in the network. Take another ...",
        lambda: world.other_head(torch.zeros(7))),
    Bad(49, PREDICT,
        "1 tensors hold NaN or infinity: network.segmentation_head.0.bias. ... take an earlier checkpoint.",
        lambda: world.other_head(torch.tensor([torch.nan]))),
    Bad(50, PREDICT, "has format 2, from segmeter '9.0'; this ... reads up to 1. Upgrade segmeter.",
        world.newer_format),
    Bad(51, f"{PREDICT} checkpoint=data", "data: is a folder without a checkpoint (...). Give a run's folder or ..."),
    Bad(52, f"{PREDICT} checkpoint=x.safetensors",
        "is no checkpoint, or is damaged or truncated (...header too large). Fetch it again, or give ...",
        puts("x.safetensors", (2**40).to_bytes(8, "little") + b'{"a":' + b" " * 64)),
    Bad(53, f"{TRAIN} model.weights=x.pt training.epochs=null training.steps=1",
        "0 of 2 tensors of segmentation_head from x.pt; 2 other shape: segmentation_head",
        lambda: world.on_cuda("x.pt"), code=0),
    Bad(54, f"{PREDICT} checkpoint=one", "Too many levels of symbolic links). Point the link at a ...", world.circle),
    Bad(55, CHECK, "to hold an image, got an empty file (0 bytes). Copy it again.", puts(IMAGE, "")),
    Bad(56, CHECK, "to be complete, got truncated or damaged data (...). Copy it again.", lambda: world.cut(IMAGE)),
    Bad(57, CHECK, "at most 200000000 pixels, got 50000 x 50000 ... or cut it into tiles.",
        puts(IMAGE, png_bytes(b"\0", height=50000, width=50000))),
    Bad(58, CHECK, "to be PNG, JPEG, BMP, TIFF or NPY, got text. Replace it by the image.", puts(IMAGE, "hello")),
    Bad(59, CHECK, "`suffix` to fit the content, PNG, got '.jpg'. Rename the file to .png.",
        lambda: Path(IMAGE).rename("data/images/b.jpg")),
    Bad(60, CHECK, "to be gray or RGB, got CMYK (4 inks). Convert it to RGB ...", world.cmyk),
    Bad(61, CHECK, "to be opaque, got transparent pixels. Flatten it onto the background ...",
        puts(IMAGE, np.dstack([noise(16, 16), FEW + 254]))),
    Bad(62, f"{CHECK} data.in_channels=1", "│ uint16 │",
        each(lambda seed: noise(16, 16, None, seed=seed).astype(np.uint16) * 200), code=0),
    Bad(63, f"{CHECK} data.in_channels=1", "height x width", each(lambda seed: noise(16, 16, None) > 99 + seed),
        code=0),
    Bad(64, CHECK, "b.tif: expected `image` to be finite, got 768 NaN or infinite values. Replace them before.",
        lambda: save("data/images/b.tif", np.full((16, 16, 3), np.nan, np.float32), photometric="rgb")),
    Bad(65, CHECK, "to hold one page, got 4 pages. Save each page as its own file ...",
        lambda: save("data/images/b.tif", np.stack([noise(16, 16, None)] * 4), photometric="minisblack")),
    Bad(66, CHECK, "to hold one picture, got 3 frames. Save one frame per file.", world.animated),
    Bad(67, CHECK, "to be complete, got truncated or damaged data (...). Copy it again.",
        puts(IMAGE, png_bytes(b"\0", height=16, width=0))),
    Bad(67, f"{PREDICT} input={IMAGE}", "1 images", puts(IMAGE, noise(1, 9)), code=0),
    Bad(68, CHECK, "to be 1 (upright), got 6. The mask isn't turned ... data.orientation=apply ...", world.turned),
    Bad(69, f"{PREDICT} input={IMAGE}", "1 images", puts(IMAGE, noise(3, 2)), code=0),
    Bad(70, f"{CHECK} data.in_channels=1",
        "to have 1 channels, got rgb with 3 channels. Convert the image, or train with data.in_channels=3.", lines=2),
    Bad(71, CHECK, "height x width", puts(IMAGE, encoded(noise(16, 16), icc_profile=b"rubbish")), code=0),
    *(Bad(72, CHECK, f"{shown}: expected `file` to hold an image, got an empty ...", partial(world.renamed, name))
      for name, shown in HOSTILE.items()),
    Bad(72, CHECK, "`images` to differ in more than upper and lower case or Unicode form, got 2: ... Rename one.",
        lambda: [put(f"data/images/{name}.png", noise(16, 16)) for name in ("\u00e9", "e\u0301")], lines=2),
    Bad(73, CHECK, "a regular file, got a folder, FIFO, ... Put the file itself there.", lambda: world.fifo(IMAGE)),
    Bad(74, CHECK, "b.png: expected `file` to be readable, got Permission denied.", lambda: world.failing(IMAGE, 13)),
    Bad(74, CHECK, "to be readable, got Too many levels of symbolic links.", lambda: world.linked_to_itself(IMAGE)),
    Bad(74, SCORE, "to be readable, got Too many levels of symbolic links.",
        lambda: world.linked_to_itself("labels/b.png")),
    Bad(75, CHECK, "to be stored exactly, got a lossy JPEG file. ... Save it as 8 or 16-bit PNG, ...", world.jpeg_mask),
    Bad(76, CHECK, """got rgb with 3 channels. Name the colours: 'data.label_map={"0,0,0": 0, ...""",
        puts(MASK, noise(16, 16))),
    Bad(77, CHECK, "masks with a palette; their indices are the labels, not their colours.", world.palette, code=0),
    Bad(78, CHECK,
        "to hold only 0 to 1, got 255 (... pixels). If 255 is the object, set 'data.label_map={0: 0, 255: 1}'; if ...",
        puts(MASK, noise(16, 16, None) % 2 * 255)),
    Bad(79, CHECK, "to hold only 0 to 1, got 7 (1 pixels). Name more classes ...", puts(MASK, FEW + DOT * 7)),
    Bad(79, f"{SCORE} data.task=binary data.instances=true",
        "numbers of objects below 2^63, got 9223372036854775813. Number them from 1.",
        lambda: save("data/masks/b.npy", np.full((16, 16), 2**63 + 5, np.uint64))),
    Bad(80, CHECK, "to hold whole numbers, got ...",
        lambda: save("data/masks/b.tif", np.full((16, 16), 0.5, np.float32))),
    Bad(81, CHECK, "only 0 to 1, got -1 (256 pixels). Labels are never negative: name these values in data.label_map.",
        lambda: save("data/masks/b.tif", np.full((16, 16), -1, np.int16))),
    Bad(82, CHECK, "16 x 16, got 16 x 15 (height x width). ...nothing is resized.", puts(MASK, FEW[:, :15])),
    Bad(83, CHECK, "16 x 12, got 12 x 16 (height x width). Height and width are swapped: turn the mask ...",
        lambda: [put(IMAGE, noise(16, 12)), put(MASK, FEW[:12])]),
    Bad(84, f"{CHECK} data.ignore_index=255", "every pixel is ignored; ...(1: b).", puts(MASK, FEW + 255), code=0),
    Bad(84, f"{SCORE} data.ignore_index=255", "IoU of class_1    n/a    n/a  0 of 6",
        lambda: [put(f"data/masks/{name}.png", FEW + 255) for name in CASES], code=0),
    Bad(85, CHECK, "cases of ground only (1: b).", puts(MASK, FEW), code=0),
    Bad(86, CHECK, "only 0 to 1, got 300 (256 pixels). Name more classes ...", puts(MASK, FEW + np.uint16(300))),
    Bad(87, CHECK, "75 more values. ... anti-aliased or resampled edges: save the labels again, ...", puts(MASK, SOFT)),
    Bad(88, CHECK, f"`a mask` for every name, got none for 1: b. {TREE}...", lambda: Path(MASK).unlink()),
    Bad(89, CHECK, "`an image` for every name, got none for 1: z. Remove these ...", puts("data/masks/z.png", FEW)),
    Bad(90, CHECK, "`masks` to have one file per name, as for 'b', got 2: b.png, b.tif. Move the others elsewhere.",
        lambda: tifffile.imwrite("data/masks/b.tif", FEW)),
    Bad(91, CHECK, f"`images` to hold .bmp, ... files, got none. {TREE}...", lambda: world.only("data/images")),
    Bad(92, CHECK, f"`images` to hold .bmp, ... files, got none. {TREE}...",
        lambda: world.only("data/images", "._a.png", "Thumbs.db", ".ipynb_checkpoints/a.png")),
    Bad(93, f"{CHECK} data.root=data/images", "`images` to be a folder, ... under {here}/data/images is images/...",
        lines=2),
    Bad(94, f"{LISTS} splits=[train,val]", "`train and val` to share no case, got 1: b. Keep each in one split.",
        lambda: world.lists(train="a\nb\n", val="b\nc\n")),
    Bad(95, f"{LISTS} splits=[train,val]", "to share no image, got 1: a = f. ... Keep each in ...", world.equal_images),
    Bad(96, LISTS, "61.13 (2)", lambda: world.lists(train="\ufeffb.png\r\n\r\n  a \r\n"), code=0),
    Bad(97, LISTS,
        "none for 13: no00, no01, no02, no03, no04, no05, no06, no07, no08, no09 and 3 more. Correct the list, ...",
        lambda: world.lists(train="a\n" + "".join(f"no{index:02d}\n" for index in range(13)))),
    Bad(98, LISTS, "to hold names without a folder, got 1: ../a. Write file names only; ...",
        lambda: world.lists(train="../a")),
    Bad(99, CHECK, "links out of it (1: data/images/b.png). Set data.allow_links=true if ...", world.linked_out),
    Bad(100, CHECK, "`images` to differ in more than upper and lower case or Unicode form, got 2: B, b. Rename one.",
        lambda: [put("data/images/B.png", noise(16, 16)), put("data/masks/B.png", FEW)]),
    Bad(101, SCORE,
        "`a prediction` for every name, got none for 3: b, c, d. ... missing=as_background scores it as class 0 ...",
        lambda: [Path(f"labels/{name}.png").unlink() for name in "bcd"]),
    Bad(102, SCORE, "predictions without a reference in labels (1: z).", puts("labels/z.png", FEW), code=0),
    Bad(103, SCORE, "`dtype` to be numbers, got Python objects. Save a plain numeric array.",
        lambda: save("labels/b.npz", np.array([["a", None]], dtype=object))),
    Bad(104, f"{SCORE} data.max_pixels=1000000",
        "at most 1000000 pixels, got 15000 x 15000 ... If it is genuine, set data.max_pixels=225000000 ...",
        lambda: save("labels/b.npz", np.broadcast_to(np.uint8(0), (15_000, 15_000)))),
    Bad(105, SCORE, "to hold one array, got 2: mask, other. Name one ...",
        lambda: save("labels/b.npz", FEW, other=FEW)),
    Bad(105, f"{SCORE} data.key=x", "to hold the array 'x', got 1: mask. Known: mask.",
        lambda: save("labels/b.npz", FEW)),
    Bad(106, SCORE,
        "to have the size of its reference ..., got 1000000 x 1000000 (height x width). Nothing is resized.",
        world.huge_zarr),
    Bad(107, PROBS, "to sum to 1 in every pixel, got a sum that is off by 0.4.", probs(0.7)),
    Bad(107, PROBS, "to lie between 0 and 1, got 1.5 to 1.5. Pass softmax or sigmoid.", probs(1.5)),
    Bad(108, PROBS, "to lie between 0 and 1, got nan to nan. Pass softmax or sigmoid.", probs(np.nan)),
    Bad(109, SCORE, "cases     runs/score/",
        lambda: [Path(f"{each}/b.png").rename(f"{each}/=HYPERLINK(1).png") for each in ("labels", "data/masks")],
        code=0),
    Bad(110, SCORE, "got JSON. Name a COCO file itself, as in data.masks=annotations.json; ...", world.run_lengths),
    *(Bad(110, SCORE.replace("predictions=labels", "predictions=coco.json"),
          f"coco.json/b: expected `file` to be complete, got ... (run lengths {fault}). ...",
          partial(world.coco_counts, counts)) for counts, fault in RUN_LENGTHS),]  # fmt: skip
