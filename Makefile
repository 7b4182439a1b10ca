# Two commands matter: `make demo` and `make test`. Each makes .venv on first use; the rest is for maintainers.
PYTHON ?= python3
BIN := .venv/bin
# Two test processes with one thread each: more threads gain nothing at these sizes and slow one another down.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --nbmake
READY := .venv/.ready

.PHONY: demo test test-all stress bench tunnels clean

demo: $(READY)
	$(BIN)/interp run

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check --summary=none
	$(PYTEST) -m "not slow and not stress" tests examples/first-look.ipynb

test-all: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check --summary=none
	$(PYTEST) -m "not stress" tests examples

# Injected faults and many worlds: minutes of waiting for processes that are killed on purpose, so beside the others.
stress: $(READY)
	$(PYTEST) -m stress tests

# In an environment of its own, with the libraries that are compared; nnterp needs an older nnsight, beside the other.
bench: .venv-bench/.ready
	.venv-bench/bin/python -m benchmarks

tunnels: $(READY)
	$(BIN)/interp tunnel rebuild

# torch is installed by its exact version: that finds a CPU build where one is at hand, a bare `torch` does not.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "interp needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(READY)

.venv-bench/.ready: pyproject.toml constraints.txt benchmarks/constraints.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-bench/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -c benchmarks/constraints.txt \
		-e ".[bench]"
	.venv-bench/bin/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .venv-bench/nnterp \
		nnterp==1.3.0 nnsight==0.6.3
	touch .venv-bench/.ready

clean:
	rm -rf .venv .venv-bench .venv-fuzz runs dist .pytest_cache .ruff_cache .hypothesis
