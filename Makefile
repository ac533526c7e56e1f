# Every target sets up its own virtual environment from nothing: the tested versions of constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INSTALLED := .venv-installed
AUDIT := .venv-audit
MINIMUM := .venv-minimum
# Those that need no extra.
MINIMUM_TESTS ?= $(addprefix tests/test_,model.py references_file.py image_processing.py errors.py)
# The main job.
PYTHON_TESTS := $(MINIMUM_TESTS) $(addprefix tests/test_,pipeline.py fuzz.py detection.py calibration.py)

.PHONY: help demo test check docs installed style bench notebooks pictures fuzz faults wheel lock audit minimum python clean

help:
	@echo "make demo       judge rendered parts with the embedded model; writes ideal-demo/index.html"
	@echo "make test       run the tests, with branch coverage"
	@echo "make check      lint, formatting, types, import boundaries"
	@echo "make docs       build the site of docs/ into site/; open site/index.html"
	@echo "make installed  install the package without extras into an empty environment, and use it"
	@echo "make style      format the code and apply safe lint fixes"
	@echo "make bench      measure scoring against the backbone; writes benchmarks.json"
	@echo "make fuzz       10,000 cases of bad input through every way in; says what it found"
	@echo "make faults     kill every kind of writer 50 times; says whether anything was half-written or lost"
	@echo "make wheel      build the wheel twice and compare the bytes"
	@echo "make lock       write requirements.lock, the tested versions with their hashes"
	@echo "make audit      look for known weaknesses in these versions; needs the network"
	@echo "make minimum    run some tests with the lowest versions that pyproject.toml admits"
	@echo "make python     run the tests of the main job; with PYTHON=python3.13 VENV=.venv-3.13 on another Python"
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

fuzz: $(READY)
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.fuzz --cases 10000

faults: $(READY)
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.faults --kills 50

wheel: $(READY)
	$(BIN)/python -m tests.wheel

lock: $(READY)
	$(BIN)/python -m tests.lock

audit:
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/pip install --quiet pip-audit
	$(AUDIT)/bin/pip-audit --strict --disable-pip --no-deps --requirement requirements.lock

# LEFT_OUT=torch where its lowest version cannot be had; that of constraints.txt is then taken.
minimum:
	$(PYTHON) -m venv $(MINIMUM)
	$(PYTHON) tests/minimum.py $(LEFT_OUT) > $(MINIMUM)/lowest.txt
	$(MINIMUM)/bin/pip install --quiet --constraint $(MINIMUM)/lowest.txt \
		$(if $(LEFT_OUT),$$(grep "^$(LEFT_OUT)==" constraints.txt)) . pytest hypothesis scipy
	HF_HUB_OFFLINE=1 $(MINIMUM)/bin/python -m pytest $(MINIMUM_TESTS)

python: $(READY)
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest $(PYTHON_TESTS)

pictures: $(READY)
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.docs_pictures

clean:
	rm -rf $(VENV) $(INSTALLED) $(AUDIT) $(MINIMUM) build site .cache *.egg-info .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .coverage
