# Everything runs in .venv, made and filled on first use and again only when pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help run test check fuzz bench bench-ogc bench-least bench-peaks bench-resources bench-overhead bench-backward bench-budget bench-thesis pictures docs clean

help:
	@echo "make run              set up and show a real network trained with and without a plan"
	@echo "make test             set up and run the tests"
	@echo "make check            format, lint, types"
	@echo "make bench            every benchmark; bench-ogc, -least, -peaks, -resources, -overhead, -backward, -budget: one of them"
	@echo "make bench-thesis     the experiments of the thesis, into thesis-results/ (lowtide bench thesis)"
	@echo "make docs             the documentation, into out/site; any warning is an error"
	@echo "make pictures         screenshots and figures of the documentation (needs Chromium)"
	@echo "make fuzz             random models and plans against the plain step"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[vision]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.run

run: $(VENV)/.run
	$(BIN)/lowtide verify torchvision:densenet121 --input 4x3x128x128

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n 2

check: $(VENV)/.dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright --pythonpath $(BIN)/python

fuzz: $(VENV)/.dev
	$(BIN)/python -m benchmarks.fuzz

bench: bench-ogc bench-least bench-peaks bench-resources bench-overhead bench-backward bench-budget

bench-ogc bench-least bench-peaks bench-resources bench-overhead bench-backward bench-budget: bench-%: $(VENV)/.dev
	$(BIN)/python -m benchmarks.$*

bench-thesis: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/lowtide bench thesis

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

pictures: $(VENV)/.dev
	$(BIN)/python -m docs.pictures.make

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
