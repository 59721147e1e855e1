"""Bad images, masks and data sets: numbers 55 to 110 of the list in test_bad_inputs.py."""

from pathlib import Path

import numpy as np
import tifffile

from tests.data.crafted import noise
from tests.faults import world
from tests.faults.bad import CHECK, FEW, IMAGE, LISTS, MASK, PREDICT, PROBS, SCORE, SOFT, TREE, Bad, each
from tests.faults.world import CASES, image, mask, png, put, save

IMAGES = [
    Bad(55, CHECK, "to hold an image, got an empty file (0 bytes). Copy it again.", lambda: put(IMAGE, "")),
    Bad(56, CHECK, "to be complete, got truncated or damaged data (...). Copy it again.", lambda: world.cut(IMAGE)),
    Bad(57, CHECK, "at most 200000000 pixels, got 50000 x 50000 ... or cut it into tiles.",
        lambda: png(IMAGE, 50000, 50000)),
    Bad(58, CHECK, "to be PNG, JPEG, BMP, TIFF or NPY, got text. Replace it by the image.",
        lambda: put(IMAGE, "hello")),
    Bad(59, CHECK, "`suffix` to fit the content, PNG, got '.jpg'. Rename the file to .png.",
        lambda: Path(IMAGE).rename("data/images/b.jpg")),
    Bad(60, CHECK, "to be gray or RGB, got CMYK (4 inks). Convert it to RGB ...", world.cmyk),
    Bad(61, CHECK, "to be opaque, got transparent pixels. Flatten it onto the background ...", world.rgba),
    Bad(62, f"{CHECK} data.in_channels=1", "│ uint16 │",
        each(lambda seed: noise(16, 16, None, seed=seed).astype(np.uint16) * 200), code=0),
    Bad(63, f"{CHECK} data.in_channels=1", "height x width", each(lambda seed: noise(16, 16, None) > 99 + seed),
        code=0),
    Bad(64, CHECK, "b.tif: expected `image` to be finite, got 768 NaN or infinite values. Replace them before.",
        lambda: save("data/images/b.tif", np.full((16, 16, 3), np.nan, np.float32), photometric="rgb")),
    Bad(65, CHECK, "to hold one page, got 4 pages. Save each page as its own file ...", world.pages),
    Bad(66, CHECK, "to hold one picture, got 3 frames. Save one frame per file.", world.animated),
    Bad(67, CHECK, "to be complete, got truncated or damaged data (...). Copy it again.", lambda: png(IMAGE, 16, 0)),
    Bad(67, f"{PREDICT} input={IMAGE}", "1 images", lambda: image(noise(1, 9)), code=0),
    Bad(68, CHECK, "to be 1 (upright), got 6. The mask isn't turned ... data.orientation=apply ...", world.turned),
    Bad(69, f"{PREDICT} input={IMAGE}", "1 images", lambda: image(noise(3, 2)), code=0),
    Bad(70, f"{CHECK} data.in_channels=1",
        "to have 1 channels, got rgb with 3 channels. Convert the image, or train with data.in_channels=3.", lines=2),
    Bad(71, CHECK, "height x width", lambda: image(noise(16, 16), icc_profile=b"rubbish"), code=0),
    *(
        Bad(
            72,
            CHECK,
            f"{shown}: expected `file` to hold an image, got an empty ...",
            lambda name=name: world.renamed(name),
        )
        for name, shown in {
            "a\nb": r"'data/images/a\nb.png'",
            "<img onerror>": "data/images/<img onerror>.png",
            "=HYPERLINK(": "data/images/=HYPERLINK(.png",
            "[red]": "data/images/[red].png",
            "x" * 250: "...xxx.png",
            "\x1b[31m": r"'data/images/\x1b[31m.png'",
        }.items()
    ),
    Bad(72, CHECK, "`images` to differ in more than upper and lower case or Unicode form, got 2: ... Rename one.",
        lambda: [image(noise(16, 16), f"data/images/{name}.png") for name in ("\u00e9", "e\u0301")], lines=2),
    Bad(73, CHECK, "a regular file, got a folder, FIFO, ... Put the file itself there.", lambda: world.fifo(IMAGE)),
    Bad(74, CHECK, "b.png: expected `file` to be readable, got Permission denied.", lambda: world.unreadable(IMAGE)),
]  # fmt: skip
MASKS = [
    Bad(75, CHECK, "to be stored exactly, got a lossy JPEG file. ... Save it as 8 or 16-bit PNG, ...", world.jpeg_mask),
    Bad(76, CHECK, """got rgb with 3 channels. Name the colours: 'data.label_map={"0,0,0": 0, ...""",
        lambda: mask(noise(16, 16))),
    Bad(77, CHECK, "masks with a palette; their indices are the labels, not their colours.", world.palette, code=0),
    Bad(78, CHECK,
        "to hold only 0 to 1, got 255 (... pixels). If 255 is the object, set 'data.label_map={0: 0, 255: 1}'; if ...",
        lambda: mask(noise(16, 16, None) % 2 * 255)),
    Bad(79, CHECK, "to hold only 0 to 1, got 7 (1 pixels). Name more classes ...", lambda: mask(FEW + world.DOT * 7)),
    Bad(80, CHECK, "to hold whole numbers, got ...",
        lambda: save("data/masks/b.tif", np.full((16, 16), 0.5, np.float32))),
    Bad(81, CHECK, "only 0 to 1, got -1 (256 pixels). Labels are never negative: name these values in data.label_map.",
        lambda: save("data/masks/b.tif", np.full((16, 16), -1, np.int16))),
    Bad(82, CHECK, "16 x 16, got 16 x 15 (height x width). ...nothing is resized.", lambda: mask(FEW[:, :15])),
    Bad(83, CHECK, "16 x 12, got 12 x 16 (height x width). Height and width are swapped: turn the mask ...",
        lambda: [image(noise(16, 12)), mask(FEW[:12])]),
    Bad(84, f"{CHECK} data.ignore_index=255", "every pixel is ignored; ...(1: b).", lambda: mask(FEW + 255), code=0),
    Bad(84, f"{SCORE} data.ignore_index=255", "IoU of class_1    n/a    n/a  0 of 6",
        lambda: [mask(FEW + 255, f"data/masks/{name}.png") for name in CASES], code=0),
    Bad(85, CHECK, "cases of ground only (1: b).", lambda: mask(FEW), code=0),
    Bad(86, CHECK, "only 0 to 1, got 300 (256 pixels). Name more classes ...", lambda: mask(FEW + np.uint16(300))),
    Bad(87, CHECK, "75 more values. ... anti-aliased or resampled edges: save the labels again, ...",
        lambda: mask(SOFT)),
    Bad(88, CHECK, f"`a mask` for every name, got none for 1: b. {TREE}...", lambda: Path(MASK).unlink()),
    Bad(89, CHECK, "`an image` for every name, got none for 1: z. Remove these ...",
        lambda: mask(FEW, "data/masks/z.png")),
    Bad(90, CHECK, "`masks` to have one file per name, as for 'b', got 2: b.png, b.tif. Move the others elsewhere.",
        lambda: tifffile.imwrite("data/masks/b.tif", FEW)),
]  # fmt: skip
DATA_SETS = [
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
        lambda: [image(noise(16, 16), "data/images/B.png"), mask(FEW, "data/masks/B.png")]),
    Bad(101, SCORE,
        "`a prediction` for every name, got none for 3: b, c, d. ... missing=as_background scores it as class 0 ...",
        lambda: [Path(f"labels/{name}.png").unlink() for name in "bcd"]),
    Bad(102, SCORE, "predictions without a reference in labels (1: z).", lambda: mask(FEW, "labels/z.png"), code=0),
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
        lambda: world.huge_zarr("labels/b.zarr")),
    Bad(107, PROBS, "to sum to 1 in every pixel, got a sum that is off by 0.4.", lambda: world.probs(0.7)),
    Bad(107, PROBS, "to lie between 0 and 1, got 1.5 to 1.5. Pass softmax or sigmoid.", lambda: world.probs(1.5)),
    Bad(108, PROBS, "to lie between 0 and 1, got nan to nan. Pass softmax or sigmoid.", lambda: world.probs(np.nan)),
    Bad(109, SCORE, "cases     runs/score/",
        lambda: [Path(f"{each}/b.png").rename(f"{each}/=HYPERLINK(1).png") for each in ("labels", "data/masks")],
        code=0),
    Bad(110, SCORE, "got JSON. Name a COCO file itself, as in data.masks=annotations.json; ...", world.run_lengths),
    *(
        Bad(
            110,
            SCORE.replace("predictions=labels", "predictions=coco.json"),
            f"coco.json/b: expected `file` to be complete, got ... (run lengths {fault}). ...",
            lambda counts=counts: world.coco_counts(counts),
        )
        for counts, fault in (
            *((wrong, "of another size than (16, 16)") for wrong in ([3, 4], [300], [-5, 261], "52203")),
            ("abc`", "as a text that ends within a number"),
        )
    ),
]  # fmt: skip
