PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all test-slow test-fuzz test-commands test-rooms lint fuzz docs bench gpu dist clean

demo: $(VENV)/.installed ## train, evaluate, predict and report on the built-in data
	$(BIN)/segmeter demo

test: $(VENV)/.installed-dev ## linters, types, import contracts, tests
	$(MAKE) --jobs 2 test-commands test-rooms lint

test-all: $(VENV)/.installed-dev ## what CI runs
	$(MAKE) --jobs 2 test-slow test-commands test-rooms test-fuzz docs lint # the longest first

# The tests in two halves that take about as long, as a run in one process uses one core most of the time
COMMANDS := tests/cli tests/faults tests/distributed tests/deploy tests/remote
test-commands: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(COMMANDS) $(wildcard tests/test_*.py)

test-rooms: $(VENV)/.installed-dev
	$(BIN)/python -m pytest $(COMMANDS:%=--ignore=%) --ignore-glob='tests/test_*.py'

# What takes minutes: kills, faults, engines, browsers, encoders, several processes; to read the other files takes half
# a minute
files-with = $(shell grep --recursive --files-with-matches --include='test_*.py' 'mark\.$(1)' tests)
test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow $(call files-with,slow)

# A sample of random cases
test-fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m fuzz $(call files-with,fuzz)

fuzz: $(VENV)/.installed-dev ## every random case, with its record in benchmarks/results/fuzz.json
	SEGMETER_FUZZ=whole $(BIN)/python -m pytest -m fuzz $(call files-with,fuzz)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 src scripts hatch_build.py # encodings that Windows would choose by country
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/check_words.py

docs: $(VENV)/.installed-dev ## the site, in docs/_build; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build

bench: $(VENV)/.installed-dev ## the speed tables
	for script in $(filter-out benchmarks/gpu%.py benchmarks/same_figures%.py benchmarks/record.py benchmarks/harness.py benchmarks/camvid_seeds.py benchmarks/small_data.py,$(wildcard benchmarks/*.py)); do $(BIN)/python $$script || exit 1; done

gpu: $(VENV)/.installed-dev ## all that only a GPU can show, in stages of nine minutes; what is done stays done
	for stage in 1 2 3 4 5 6; do $(BIN)/python benchmarks/gpu.py || exit 1; done

$(VENV)/.pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "pip>=25.1"
	touch $@

$(VENV)/.installed: $(VENV)/.pip pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[zarr,nifti,tensorboard,wandb,mlflow,optuna,slurm,joblib,dask,s3,onnx,hf,coco,itk,dicom]' --group dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps --upgrade --target $(VENV)/peers --group bare-peers
	touch $@

dist: $(VENV)/.installed-dev ## the wheels of segmeter and of segmeter-score, without torch
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m build --no-isolation --wheel --outdir dist packaging/score

clean:
	rm -rf $(VENV) runs data/cells-* dist docs/_build docs/api docs/decisions docs/metric
