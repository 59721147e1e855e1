"""The words and crops of suspects."""

import io

import numpy as np
from PIL import Image

from segmeter.report.decisions import print_shown
from segmeter.report.labels import draw_crop, show_label_next, show_suspects, suspect_notes
from tests.data.crafted import BINARY

ROW = {"rank": 1, "case_id": "a", "kind": "missing", "given": "background", "suggested": "cell", "chance": 0.5}
ROW |= {"score": 0.7, "top": 0, "left": 30, "height": 6, "width": 8, "size": 40, "size_z": 0.1}


def test_a_crop_shows_the_suspect_at_the_edge_of_an_image() -> None:
    image, labels = np.zeros((40, 40, 3), np.uint8), np.zeros((40, 40), np.uint8)
    labels[0:6, 30:38] = 1
    picture = Image.open(io.BytesIO(draw_crop(image, np.zeros_like(labels), labels, ROW, BINARY)))
    assert picture.format == "WEBP"
    assert min(picture.size) > 100


def test_suspects_are_said_in_words_with_the_limits_of_their_chances(tmp_path, capsys):
    missing = {"found": 3, "expected": 1.5, "planted": 20, "recovered": 0.9}
    found = {"kinds": {"missing": missing}, "n_cases": 4, "runs": ["r"]}
    shown = show_suspects(found | {"suspects": [ROW]}, tmp_path)
    assert shown.tables[1].rows == [["1", "a", "missing cell", "0.50", "0", "30", "40", "+0.1"]]
    print_shown(shown, {})
    text = capsys.readouterr().out
    assert "missing cell" in text
    assert "if 5 % of the objects are wrong" in " ".join(suspect_notes(found))
    assert "too few objects" not in text
    missing |= {"planted": 0, "recovered": None}
    assert "errors of: missing" in suspect_notes(found)[0]
    assert "noise" in " ".join(show_label_next({"by": "entropy", "images": []}).notes)
