"""The fault table: every number has tests that exist, and docs/reliability.md shows the same table."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVERY = "faults/test_every_operation.py::test_a_fault_at_any_operation"
BELOW = "faults/test_below_python.py::test_a_fault_of_the_system_at_any_call"
RANDOM = "faults/test_random_signals.py::test_signals_at_random_moments"
BAD = "faults/test_bad_inputs.py::test_a_bad_input_is_answered_as_promised"
CHECKPOINTS = "training/test_checkpointing.py::test_"
RESUME = "cli/commands/test_score_resume.py::test_"
FOLDER = "cli/runs/test_run_folder.py::test_"
SIGNALS = "training/test_signals.py::test_"
PREDICTOR = "inference/test_predictor.py::test_"
READER = "data/files/test_reader_process.py"
FUZZED = "data/files/fuzzed/test_fuzzed.py"
MEMORY = "evaluation/test_memory.py::test_"

FAULTS: dict[int, tuple[str, tuple[str, ...]]] = {
    1: ("SIGKILL while a checkpoint is written", (EVERY, f"{SIGNALS}a_killed_process_leaves_a_run_that_goes_on")),
    2: ("a crash between write and rename", (EVERY,)),
    3: ("a crash between the files of a checkpoint", (EVERY, f"{CHECKPOINTS}the_newest_whole_one_is_taken_up")),
    4: ("a full disk at a checkpoint", (EVERY, BELOW)),
    5: (
        "a full disk at a prediction",
        (EVERY, "export/test_writer.py::test_a_file_size_limit_of_the_system_stops_with_the_case"),
    ),
    6: ("a full disk at a report or table", (EVERY, "report/test_html.py::test_a_failed_write_keeps_the_old_report")),
    7: ("a folder that can't be written", (f"{FOLDER}a_root_that_is_a_file_is_refused_before_any_work", BAD)),
    8: (
        "PermissionError while a checkpoint is saved",
        (f"{CHECKPOINTS}a_disk_that_is_full_or_closed_is_an_error_that_names_what_stays",),
    ),
    9: ("SIGTERM in training", (f"{SIGNALS}a_signal_saves_and_raises_with_its_exit_code", RANDOM)),
    10: ("SIGTERM while a checkpoint is saved", (f"{SIGNALS}a_signal_within_a_save_waits_until_it_is_complete",)),
    11: ("a second SIGTERM", (f"{SIGNALS}a_second_signal_ends_the_process_at_once",)),
    12: ("SIGUSR1", (f"{RESUME}a_signal_ends_with_its_code_one_line_and_a_true_state", RANDOM)),
    13: ("Ctrl-C", (f"{RESUME}a_signal_ends_with_its_code_one_line_and_a_true_state", RANDOM)),
    14: (
        "a signal for the whole process group",
        ("faults/test_random_signals.py::test_a_signal_for_the_whole_group_gives_one_line",),
    ),
    15: (
        "a worker process that is killed",
        ("test_parallel.py::test_a_killed_worker_gives_one_line_with_the_cases_that_it_may_have_had",),
    ),
    16: (
        "a read that never ends",
        (
            "faults/test_hanging_reads.py::test_16_a_read_that_never_ends_is_named_and_the_run_can_go_on",
            "data/test_in_time.py::test_every_way_of_reading_a_case_is_limited",
            "test_parallel.py::test_what_takes_very_long_is_named",
            BAD,
        ),
    ),
    17: ("a worker that raises", ("training/data/test_batches.py::test_an_error_in_a_file_comes_out_with_its_name",)),
    18: (
        "memory that runs out",
        (
            f"{PREDICTOR}18_a_batch_that_does_not_fit_is_halved_and_gives_the_same",
            f"{PREDICTOR}18_what_never_fits_ends_with_advice",
            f"{PREDICTOR}18_memory_that_runs_out_beside_the_forward_pass_names_the_case",
            "training/test_trainer.py::test_memory_that_runs_out_in_a_step_names_the_batch_and_what_to_set",
        ),
    ),
    19: ("the system ends the process for its memory", (EVERY, f"{MEMORY}what_can_not_fit_is_refused_before_the_work")),
    20: (
        "a loss that is NaN",
        ("training/test_trainer.py::test_a_loss_that_is_not_finite_stops_the_run_and_the_best_stays",),
    ),
    21: (
        "logits that are NaN or infinite",
        (f"{PREDICTOR}21_a_case_without_finite_logits_is_named_and_those_before_it_are_kept",),
    ),
    22: (
        "a NaN gradient of a finite loss",
        ("training/test_divergence.py::test_a_gradient_that_is_not_finite_is_an_error_though_the_loss_is_fine",),
    ),
    23: ("a metric that is NaN", (f"{CHECKPOINTS}nan_is_never_best_and_a_tie_stays_with_the_older",)),
    24: (
        "a truncated PNG",
        (BAD, "data/files/test_png.py::test_a_damaged_file_is_never_accepted_unless_pillow_gives_the_same"),
    ),
    25: (
        "a flipped byte in a PNG",
        ("data/files/test_png.py::test_a_damaged_file_is_never_accepted_unless_pillow_gives_the_same",),
    ),
    26: ("an image bomb", (BAD, "data/files/test_png.py::test_a_size_over_the_limit_is_not_inflated")),
    27: (
        "a TIFF of absurd shape",
        ("data/files/test_opened_bounds.py::test_a_tiff_of_absurd_shape_is_refused_by_its_tags",),
    ),
    28: ("a mask of another size", (BAD,)),
    29: (
        "a label out of range",
        (BAD, "losses/test_checks.py::test_labels_out_of_range_are_refused_with_values_and_places"),
    ),
    30: (
        "every pixel ignored",
        (BAD, "losses/test_focal.py::test_all_ignored_is_0_with_a_connected_zero_gradient"),
    ),
    31: (
        "strides, byte order, read-only arrays",
        ("bridge/test_arrays.py::test_to_torch_takes_every_array_and_comes_back",),
    ),
    32: (
        "a label that uint8 can't hold",
        (BAD, "export/test_writer.py::test_300_classes_are_written_as_uint16_and_not_wrapped"),
    ),
    33: (
        "half precision, gradients, meta tensors",
        (
            "bridge/test_arrays.py::test_to_numpy_keeps_value_dtype_and_layout",
            "bridge/test_refused.py::test_to_numpy_refuses_what_has_no_dense_values",
        ),
    ),
    34: (
        "a checkpoint that is empty, cut or HTML",
        (BAD, "models/checkpoints/test_weights.py::test_spoilt_weights_in_a_checkpoint_are_refused"),
    ),
    35: ("a flipped bit in a checkpoint", (BAD,)),
    36: (
        "a malicious pickle",
        (BAD, "models/checkpoints/test_weights.py::test_45_a_pickle_that_runs_a_command_is_refused_and_runs_nothing"),
    ),
    37: (
        "a checkpoint of another architecture",
        ("models/checkpoints/test_checkpoint.py::test_another_architecture_lists_at_most_ten_of_each_difference",),
    ),
    38: (
        "exactness of a resume",
        ("training/test_resume.py::test_a_run_that_is_stopped_and_resumed_ends_with_the_same_bits",),
    ),
    39: (
        "a resume with other settings or data",
        (
            "training/test_trainer.py::test_resuming_with_another_configuration_or_other_data_is_refused_with_the_difference",
        ),
    ),
    40: ("a damaged newest checkpoint", (f"{CHECKPOINTS}a_damaged_newest_one_is_said_and_the_one_before_is_taken_up",)),
    41: ("two runs in one folder", (f"{FOLDER}a_folder_in_use_is_refused_with_its_process",)),
    42: ("the lock of a killed process", (f"{FOLDER}the_lock_of_a_killed_process_is_free",)),
    43: (
        "runs of the same second",
        (
            f"{FOLDER}eight_processes_of_the_same_second_get_eight_folders",
            f"{FOLDER}an_empty_folder_of_this_second_is_left_to_who_made_it",
        ),
    ),
    44: (
        "SIGKILL while many images are evaluated",
        (
            f"{RESUME}a_killed_run_goes_on_to_the_same_bytes",
            "evaluation/test_evaluate_resume.py::test_a_killed_run_ends_with_the_same_bytes",
        ),
    ),
    45: (
        "a file that vanishes or changes",
        (
            "data/verification/test_verify.py::test_a_file_that_changes_after_the_check_is_refused_when_it_is_read",
            f"{RESUME}masks_that_change_before_they_are_drawn_or_read_again_are_refused",
        ),
    ),
    46: (
        "a link planted at an output",
        (
            f"{FOLDER}a_link_in_a_resumed_folder_is_never_written_through",
            "faults/test_planted_links.py::test_no_writer_follows_a_planted_link",
        ),
    ),
    47: (
        "hostile names",
        (
            BAD,
            "report/test_html.py::test_hostile_names_stay_text",
            "metrics/cases/test_table.py::test_text_that_a_spreadsheet_would_run_is_made_harmless_in_the_csv_only",
        ),
    ),
    48: (
        "a closed or full standard output",
        ("cli/test_streams.py::test_the_run_is_done_whatever_became_of_its_output",),
    ),
    49: (
        "time zones, locales, undecodable names",
        (
            "cli/runs/test_resume.py::test_auto_is_the_run_that_started_last_whatever_its_name_says",
            "cli/test_streams.py::test_the_run_is_done_whatever_became_of_its_output",
            "faults/test_states.py::test_names_that_are_no_text",
        ),
    ),
    50: ("any write, rename or sync that fails", (EVERY, BELOW)),
    51: (
        "a file that crashes or hangs a library",
        (
            f"{READER}::test_a_crash_is_one_line_with_the_files_name",
            f"{READER}::test_a_decoder_that_never_ends_is_ended",
            f"{READER}::test_the_memory_of_a_process_is_bounded",
            f"{READER}::test_a_reader_ends_with_a_parent_that_is_killed",
            f"{FUZZED}::test_damaged_files_are_read_as_they_are_or_refused_in_one_line",
        ),
    ),
    52: (
        "damage that a library reads without a word",
        (
            "data/files/test_medical.py::test_pixels_that_itk_makes_up_are_refused",
            "data/files/test_zarr_chunks.py::test_a_blosc_chunk_of_another_length_is_refused",
            f"{FUZZED}::test_damaged_files_are_read_as_they_are_or_refused_in_one_line",
        ),
    ),
}


def test_the_table_is_complete() -> None:
    assert list(FAULTS) == list(range(1, 53))
    assert all(tests for _, tests in FAULTS.values())


@pytest.mark.parametrize("number", FAULTS)
def test_its_tests_exist(number: int) -> None:
    for test in FAULTS[number][1]:
        path, _, name = test.partition("::")
        assert name in _names(path), test


@cache
def _names(path: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_page_shows_the_same_table() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    missing = [line for line in table() if line not in page]
    assert not missing, "\n".join(table())


def table() -> list[str]:
    """The rows as the page has them: number, fault, and the modules of its tests."""
    rows = []
    for number, (fault, tests) in FAULTS.items():
        modules = dict.fromkeys(test.partition("::")[0] for test in tests)
        rows.append(f"| {number} | {fault} | {', '.join(f'`{module}`' for module in modules)} |")
    return rows
