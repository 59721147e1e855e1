from pathlib import Path

from segmeter.data.sample import Pair


def test_files_are_the_image_and_then_each_mask_in_the_order_of_the_classes():
    masks = (Path("b/1.png"), Path("a/1.png"))
    assert Pair(case_id="1", image=Path("1.png"), masks=masks).files == (Path("1.png"), *masks)
    assert Pair(case_id="1", image=Path("1.png")).files == (Path("1.png"),)
