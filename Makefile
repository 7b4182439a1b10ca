# Two commands matter: `make demo` and `make test`. Each makes .venv on first use; the rest is for maintainers.
PYTHON ?= python3
BIN := .venv/bin
# Two test processes with one thread each: more threads gain nothing at these sizes and slow one another down. Bytecode is
# kept, whatever the shell says: the tests start many processes. Files are run in their order, the notebook first: xdist
# would leave files of one long test to the end, for one of the two processes.
PYTEST = OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --nbmake
FAST := -m "not slow and not stress" examples/first-look.ipynb tests
READY := .venv/.ready
TORCH ?= 2.13.0
# The model of the notebook `real-model`: what the variable names, else the small one beside the checkout, if it is there.
REAL_MODEL ?= $(or $(SMOLLM2),$(abspath $(wildcard ../shared/models/stories260K)))
export REAL_MODEL

.PHONY: demo docs test test-all test-lowest test-newest test-package stress mutants bench tunnels picture released clean

demo: $(READY)
	@$(BIN)/interp run

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 .   # text files are opened with an encoding
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check --summary=none
	$(PYTEST) $(FAST)

test-all: $(READY) docs
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 .   # text files are opened with an encoding
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check --summary=none
	CHECK_EVERY_CALL=1 $(PYTEST) -m "not stress" examples tests $(if $(REAL_MODEL),,--deselect examples/real-model.ipynb)
	@$(if $(REAL_MODEL),,echo "examples/real-model.ipynb was not run: REAL_MODEL names no model")

# The site, to be opened in a browser. A broken link, name or mark is an error; nothing is fetched from other hosts.
docs: .venv/.docs-ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --site-dir build/site
	@echo build/site/index.html

# Every library but torch at the oldest version that pyproject.toml allows; TORCH=2.8.0 where that can be had too.
test-lowest: BIN := .venv-lowest/bin
test-lowest: .venv-lowest/.ready
	$(PYTEST) $(FAST)

# Every library but torch at its newest version.
test-newest: BIN := .venv-newest/bin
test-newest: .venv-newest/.ready
	$(PYTEST) $(FAST)

# What others install: the sdist, the wheel that is built from it, and a run of that wheel in an environment of its own.
test-package:
	rm -rf dist .venv-package
	$(PYTHON) -m venv .venv-package
	.venv-package/bin/pip install --quiet --disable-pip-version-check torch==$(TORCH)
	.venv-package/bin/pip install --quiet --disable-pip-version-check -c constraints.txt build twine
	.venv-package/bin/python -m build
	.venv-package/bin/twine check --strict dist/*
	.venv-package/bin/pip install --quiet --disable-pip-version-check -c constraints.txt dist/interp-*.whl
	cd .venv-package && bin/interp list probes && bin/interp run --n-pool 100 --out runs

# Injected faults and many simulations: minutes of waiting for processes that are killed on purpose, so beside the others.
stress: $(READY)
	$(PYTEST) -m stress tests

# Small changes to the code, one at a time in a copy of the last commit: which do the tests not notice?
mutants: TREE := build/mutants
mutants: IN_TREE = cd $(TREE) && PYTHONPATH=$(abspath $(TREE)) OMP_NUM_THREADS=1 PATH=$(abspath $(BIN)):$$PATH
mutants: $(READY)
	rm -rf $(TREE) && git clone --quiet . $(TREE)
	$(PYTHON) -m venv $(TREE)/.venv && $(TREE)/.venv/bin/pip install --quiet --disable-pip-version-check cosmic-ray==8.7.0
	sed -i 's#CODE"#$(CODE)"#; s#TESTS"#$(TESTS)"#' $(TREE)/tests/mutants.toml
	$(IN_TREE) .venv/bin/cosmic-ray init tests/mutants.toml mutants.sqlite
	$(IN_TREE) .venv/bin/cosmic-ray baseline tests/mutants.toml   # unchanged, the tests pass
	$(IN_TREE) .venv/bin/cosmic-ray exec tests/mutants.toml mutants.sqlite
	$(IN_TREE) .venv/bin/cr-report --surviving-only --show-diff mutants.sqlite

# In an environment of its own, with the libraries that are compared; nnterp needs an older nnsight, beside the other.
bench: .venv-bench/.ready
	.venv-bench/bin/python -m benchmarks

# The picture of README and site: the first screen of the shipped page. Again whenever that page is drawn again.
picture: $(READY)
	mkdir -p build
	chromium --headless --no-sandbox --hide-scrollbars --window-size=1400,960 --virtual-time-budget=8000 \
		--screenshot=build/page.png examples/pages/smollm2-135m.html
	$(BIN)/python -c 'from PIL import Image; \
		Image.open("build/page.png").convert("RGB").quantize(64).save("examples/pictures/page.png", optimize=True)'

# Once, on the day of the first release: texts say `pip install interp` instead of "from a checkout".
released: $(READY)
	$(BIN)/python hatch_build.py

tunnels: $(READY)
	$(BIN)/interp tunnel rebuild

# torch is installed by its exact version: that finds a CPU build where one is at hand, a bare `torch` does not.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "interp needs Python 3.11 or newer: make PYTHON=python3.11")'
	@echo "Installing PyTorch $(TORCH), interp and what its tests need into .venv: up to 2.5 GB, some minutes, once."
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install -qq --disable-pip-version-check torch==$(TORCH)
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $(READY)

.venv/.docs-ready: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch .venv/.docs-ready

.venv-bench/.ready: pyproject.toml constraints.txt benchmarks/constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check torch==$(TORCH)
	.venv-bench/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -c benchmarks/constraints.txt \
		-e ".[bench]"
	.venv-bench/bin/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .venv-bench/nnterp \
		nnterp==1.3.0 nnsight==0.6.3
	touch .venv-bench/.ready

.venv-lowest/.ready: pyproject.toml tests/lowest.py
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) tests/lowest.py > .venv-lowest/lowest.txt
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check torch==$(TORCH)
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check -c .venv-lowest/lowest.txt -e ".[dev]"
	touch .venv-lowest/.ready

.venv-newest/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/pip install --quiet --disable-pip-version-check torch==$(TORCH)
	.venv-newest/bin/pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager -e ".[dev]" torch==$(TORCH)
	touch .venv-newest/.ready

clean:
	rm -rf .venv .venv-bench .venv-lowest .venv-newest .venv-package runs build dist .pytest_cache .ruff_cache .hypothesis
