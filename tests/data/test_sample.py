from pathlib import Path

from segmeter.data.sample import Pair


def test_files_are_the_image_and_then_each_mask_in_the_order_of_the_classes():
    pair = Pair(case_id="1", paths=("1.png", "b/1.png", "a/1.png"))
    assert pair.image == Path("1.png")
    assert pair.masks == (Path("b/1.png"), Path("a/1.png"))
    assert pair.files == (pair.image, *pair.masks)
    assert Pair(case_id="1", paths=("1.png",)).masks == ()
