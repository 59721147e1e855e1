"""Bad configurations and checkpoints: numbers 1 to 54 of the list in test_bad_inputs.py."""

import torch

from tests.faults import world
from tests.faults.bad import LAUGHS, OWN, PREDICT, SCORE, TRAIN, WEIGHTS, Bad, own, weights
from tests.faults.world import put

CONFIGURATION = [
    Bad(1, f"{TRAIN} model.dpth=3", "config: unknown key 'model.dpth'. Did you mean 'model.depth'? See: ..."),
    Bad(2, f"{TRAIN} model.depth=banana", "`model.depth` to be an integer >= 3 and <= 5, got 'banana'."),
    Bad(3, f"{TRAIN} model.depth=50", "`model.depth` to be an integer >= 3 and <= 5, got 50."),
    Bad(4, f"{TRAIN} model=unett", "`model` to be one of deeplabv3, ... upernet, got 'unett'. Did you mean 'unet'?"),
    Bad(5, f"{TRAIN} nosuch=x", "config: unknown key 'nosuch'. Known: allow_changes, augment, ..., training. See: ..."),
    Bad(6, f"{TRAIN} optimizer.lr=[1,", "can't read the override 'optimizer.lr=[1,' ... quote [ ] ...: 'key=[1,2]'."),
    Bad(7, "train -cn nope", "no configuration is named 'nope'. Known: agree, check, ..., tune."),
    Bad(8, f"{TRAIN} data.root=", "`data.root` to be given, got ''. Set data.root=/path/to/the/data."),
    Bad(9, "train data=camvid", "config: `data.root` is required. Set data.root=VALUE."),
    Bad(
        10, f"{TRAIN} data.root=no", "got no folder {here}/no (working folder {here}). Set data.root=/path/to/the/data."
    ),
    Bad(11, f"{TRAIN} loss.gamma=-1", "expected `loss.gamma` to be a number >= 0, got -1."),
    Bad(12, f"{TRAIN} loss.gamma=nan", "expected `loss.gamma` to be a number >= 0, got nan."),
    Bad(13, f"{TRAIN} loss.alpha=1.5", "expected `loss.alpha` to be a number >= 0 and <= 1 or null, got 1.5."),
    Bad(
        14,
        f"{TRAIN} data.task=multiclass loss.class_weights=[1,2,3]",
        "`class_weights` to have 2 values, one for each of ground, cell, got (1.0, 2.0, 3.0).",
    ),
    Bad(15, f"{TRAIN} training.batch_size=0", "`training.batch_size` to be an integer >= 1 ... or one of auto, got 0."),
    Bad(16, f"{TRAIN} optimizer.lr=0", "expected `optimizer.lr` to be a number > 0 and <= 10, got 0."),
    Bad(16, f"{TRAIN} optimizer.lr=1e30", "expected `optimizer.lr` to be a number > 0 and <= 10, got 1e+30."),
    Bad(
        17,
        f"{PREDICT} device=cuda",
        "expected `device` to be here, got 'cuda', with 0 GPUs found. This torch (...) is built ...or set device=cpu.",
        lambda: world.gpus(0),
    ),
    Bad(
        18, f"{PREDICT} device=cuda:9", "got 'cuda:9', with 2 GPUs found. Use cuda:0 to cuda:1.", lambda: world.gpus(2)
    ),
    Bad(19, f"{TRAIN} data.classes=[bg,bg]", "`data.classes` to be distinct, got ['bg', 'bg']. Twice: bg."),
    Bad(20, f"{TRAIN} data.classes=[]", "to name at least 2, got []. Set data.classes=[background,cell]."),
    Bad(20, f"{TRAIN} data.classes=[one]", "`data.classes` to name at least 2, got ['one']."),
    Bad(
        21,
        f"{PREDICT} export.dtype=uint8",
        "`dtype` to hold every label, got 'uint8' for labels up to 65535. Set export.dtype=uint16, ...",
        world.many_classes,
    ),
    Bad(22, f"{TRAIN} data.ignore_index=1", "to be null or between 2 and 65535, as it must not be a class, got 1."),
    Bad(23, f"{SCORE} metrics.measures=[surfaces]", "a registered name, got 'surfaces'. Did you mean 'surface'?"),
    Bad(24, f"{TRAIN} training.monitor=pq", "`training.monitor` to be one of auto, mean_iou, ..., dice/..., got 'pq'."),
    Bad(
        25,
        f"{TRAIN} run.name=${{nope}}",
        "can't resolve `run.name`: ... 'nope' not found. Write a value, or the path ...",
    ),
    Bad(
        26,
        f"{TRAIN} run.name=${{oc.env:HOME_X}}",
        "only variables whose names start with SEGMETER_ ... not HOME_X. ...",
    ),
    Bad(
        27,
        f"{TRAIN} +model._target_=os.system",
        "'model._target_' is not allowed: a configuration ... never names code...",
    ),
    Bad(
        28,
        f"{TRAIN} +loss._target_=segmeter.models.os.system",
        "'loss._target_' is not allowed: ... never names code ...",
    ),
    Bad(29, f"{TRAIN} +hydra.callbacks.x._target_=os.system", "'hydra.callbacks.x._target_' can't be set here. ..."),
    Bad(
        30, OWN, r"found character '\t' ...mine.yaml" + '", line 3, column 1. Indent with spaces.', own("a:\n\tb: 3\n")
    ),
    Bad(31, OWN, "duplicate key seed ...mine.yaml" + '", line 3, column 1. Keep one ...', own("seed: 1\nseed: 2\n")),
    Bad(32, OWN, "mine.yml: is not read. Rename it to mine.yaml.", own("seed: 1\n", "mine.yml")),
    Bad(33, OWN, "its aliases (&name, *name) stand for more than 100000 values.", own(LAUGHS)),
    Bad(34, OWN, "to be text, got false. Write it in quotes.", own("data: {classes: [a, no]}\n")),
    Bad(35, OWN, "to be text, got 8. Write it in quotes.", own("data: {classes: [a, 010]}\n")),
    Bad(36, f"{TRAIN} hydra.run.dir=/", "can't be set here. Outputs go where run.root and run.name say; ..."),
    Bad(36, f"{SCORE} run.root=no", "to be a folder that can be written, got ... (Not a ...).", lambda: put("no", "x")),
    Bad(
        37, f"{TRAIN} -m loss.gamma=choice()", "can't read the override 'loss.gamma=choice()' ... Write key=value, ..."
    ),
    Bad(
        38,
        OWN + " data.classes=[a,b]",
        "`run.name` is [REDACTED], as ... Set it again.",
        own("run: {name: '[REDACTED]'}"),
    ),
]
CHECKPOINTS = [
    Bad(
        39,
        PREDICT,
        "model.safetensors: is empty (0 bytes): the copy or download broke off. Fetch it again.",
        weights(""),
    ),
    Bad(40, PREDICT, "is truncated: 5 of ... bytes. Fetch it again.", weights("hello")),
    Bad(
        41,
        PREDICT,
        "(looks like HTML, perhaps a login page). Download the file itself.",
        weights("<!DOCTYPE html><html>"),
    ),
    Bad(
        42,
        PREDICT,
        "is a git-lfs pointer, not the file itself. Run `git lfs pull`.",
        weights("version https://git-lfs..."),
    ),
    Bad(43, PREDICT, "is truncated: ... of ... bytes. Fetch it again.", lambda: world.cut(WEIGHTS)),
    Bad(44, PREDICT, "was changed or damaged ... (sha256 differs). Fetch it again.", lambda: world.flip(WEIGHTS)),
    Bad(
        45, f"{PREDICT} checkpoint=x.pt", "could run code; nothing ran. If you trust ...", lambda: world.pickled("x.pt")
    ),
    Bad(
        46,
        f"{PREDICT} checkpoint=x.pt",
        "holds more than tensors and numbers, ... write `safetensors.torch.save_file(model.state_dict(), ...",
        lambda: world.whole_module("x.pt"),
    ),
    Bad(
        47,
        f"{PREDICT} checkpoint=x.pt",
        "holds 1 bare tensors, without classes and normalisation. Train from it with model.weights=PATH, or name ...",
        lambda: world.foreign_state("x.pt"),
    ),
    Bad(
        48,
        PREDICT,
        "does not fit ...segmentation_head.0.bias (7,) in the file, (1,) in the network. Take another ...",
        lambda: world.other_head(torch.zeros(7)),
    ),
    Bad(
        49,
        PREDICT,
        "1 tensors hold NaN or infinity: network.segmentation_head.0.bias. ... take an earlier checkpoint.",
        lambda: world.other_head(torch.tensor([torch.nan])),
    ),
    Bad(
        50, PREDICT, "has format 2, from segmeter '9.0'; this ... reads up to 1. Upgrade segmeter.", world.newer_format
    ),
    Bad(51, f"{PREDICT} checkpoint=data", "data: is a folder without a checkpoint (...). Give a run's folder or ..."),
    Bad(
        52,
        f"{PREDICT} checkpoint=x.safetensors",
        "is no checkpoint, or is damaged or truncated (...header too large). Fetch it again, or give ...",
        lambda: put("x.safetensors", (2**40).to_bytes(8, "little") + b'{"a":' + b" " * 64),
    ),
    Bad(
        53,
        f"{TRAIN} model.weights=x.pt training.epochs=null training.steps=1",
        "0 of 2 tensors of segmentation_head from x.pt; 2 other shape: segmentation_head",
        lambda: world.on_cuda("x.pt"),
        code=0,
    ),
    Bad(54, f"{PREDICT} checkpoint=one", "Too many levels of symbolic links). Point the link at a ...", world.circle),
]
