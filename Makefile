# Every target sets up its own virtual environment from nothing: the tested versions of constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INSTALLED := .venv-installed

.PHONY: help demo test check docs installed style bench notebooks pictures clean

help:
	@echo "make demo       judge rendered parts with the embedded model; writes ideal-demo/index.html"
	@echo "make test       run the tests, with branch coverage"
	@echo "make check      lint, formatting, types, import boundaries"
	@echo "make docs       build the site of docs/ into site/; open site/index.html"
	@echo "make installed  install the package without extras into an empty environment, and use it"
	@echo "make style      format the code and apply safe lint fixes"
	@echo "make bench      measure scoring against the backbone; writes benchmarks.json"
	@echo "make notebooks  execute the notebooks and keep what they show"
	@echo "make pictures   make the pictures of README and docs/ anew; needs chromium"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(READY)
	HF_HUB_OFFLINE=1 $(BIN)/ideal demo --out ideal-demo

test: $(READY)
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest --numprocesses=auto --maxprocesses=4 --cov --cov-report=term

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY)
	$(BIN)/zensical build --clean --strict

installed:
	rm -rf build $(INSTALLED)
	$(PYTHON) -m venv $(INSTALLED)
	$(INSTALLED)/bin/pip install --quiet --constraint constraints.txt .
	HF_HUB_OFFLINE=1 $(INSTALLED)/bin/python tests/installed.py

style: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python -m tests.benchmarks --out benchmarks.json

notebooks: $(READY)
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.notebooks

pictures: $(READY)
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.docs_pictures

clean:
	rm -rf $(VENV) $(INSTALLED) build site .cache *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage
