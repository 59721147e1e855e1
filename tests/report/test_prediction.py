"""A folder of predictions: the cases that have a picture, and the classes that occur in them."""

from segmeter.report.config import ReportConfig
from segmeter.report.html import prediction_values

from .conftest import unpack_page, write_picture


def test_cases_and_classes_are_those_of_the_pictures(tmp_path, rng, spec):
    for case_id in ("b", "../a"):
        write_picture(tmp_path, case_id, rng, spec, referenced=False)
    page = unpack_page(prediction_values(tmp_path, ReportConfig())["explorer"]["data"])
    assert page["columns"][0]["values"] == ["../a", "b"]
    assert (page["classes"], page["task"]) == (list(spec.names), "multiclass")


def test_a_folder_without_pictures_has_no_cases(tmp_path):
    assert prediction_values(tmp_path, ReportConfig())["explorer"] is None
