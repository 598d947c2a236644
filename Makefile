# `make run` sets everything up and runs a first scenario; `make test` sets up and runs all tests;
# `make test-pretend` those of the CUDA path, with PyTorch's CUDA build on a GPU that is not there.

PYTHON = python3
VENV = .venv
PRETEND = .venv-pretend
CARD = h100_sxm
WORKERS = 2

BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: run test test-pretend lint docs bench clean

run: $(VENV)/ready-to-run
	$(BIN)/vdnnsim run scenarios/vgg416.yaml

# Files in the order of their names: those of few and long tests come early, and short ones of `unit` fill both workers.
# A worker that a timeout ended is not replaced, for pytest-xdist (3.8, its issues 784 and 1323) then waits without end.
test: lint
	$(BIN)/python -m slipcover --dont-wrap-pytest \
		-m pytest --numprocesses $(WORKERS) --max-worker-restart 0 --dist loadfile --no-loadscope-reorder
	$(BIN)/python -m tests.covered

# Copies move their bytes when they end, so that a missing wait is seen. A process for each file, for what libraries keep
# of a GPU once they were used would count in the next; only of those that have such tests, for pytest fails at none. A
# session's limit would be by the clock of the pretended GPU; a test's is by the host's, and whole networks take longer.
test-pretend: $(PRETEND)/ready
	grep -l mark.pretend tests/gpu/test_*.py tests/pretend/test_*.py | xargs -n 1 -P $(WORKERS) \
		$(PRETEND)/bin/python -m calibration.pretend --hardware $(CARD) --copies delayed -- \
		$(PRETEND)/bin/python -m pytest -q -m "pretend and not thorough" --timeout 300 -o session_timeout=1e9

lint: $(VENV)/ready-to-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	git ls-files -z | xargs -0 $(BIN)/codespell

# Every block of code in them is run by `make test`.
docs: $(VENV)/ready-for-docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "read docs/_build/html/index.html"

bench: $(VENV)/ready-to-test
	$(BIN)/python -m pytest tests/benchmarks -m benchmark

clean:
	rm -rf $(VENV) $(PRETEND) build dist docs/_build docs/reference/generated .coverage.json .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find calibration reports tests vdnnsim -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps make a second call quick; each is written last, so that an interrupted set-up is done again.
$(VENV)/created:
	$(PYTHON) -m venv --clear $(VENV)
	touch $@

$(VENV)/ready-to-run: $(VENV)/created pyproject.toml constraints.txt
	@echo "Installing vdnnsim into $(VENV)"
	$(PIP) install -c constraints.txt -e .
	touch $@

$(VENV)/ready-to-test: $(VENV)/created pyproject.toml constraints.txt
	@echo "Installing vdnnsim, torch and the tools for tests into $(VENV)"
	$(PIP) install -c constraints.txt -e '.[calibrate,test]'
	touch $(VENV)/ready-to-run $@

$(VENV)/ready-for-docs: $(VENV)/created pyproject.toml constraints.txt
	@echo "Installing vdnnsim and the tools for documentation into $(VENV)"
	$(PIP) install -c constraints.txt -e '.[docs]'
	touch $(VENV)/ready-to-run $@

# Not bound by constraints.txt, which names the CPU build: the package index has PyTorch for CUDA.
$(PRETEND)/ready: pyproject.toml
	@echo "Installing PyTorch for CUDA and the tools for tests into $(PRETEND): about 6 GB"
	$(PYTHON) -m venv --clear $(PRETEND)
	$(PRETEND)/bin/python -m pip --disable-pip-version-check --quiet install -e '.[calibrate,cudnn,test]' \
		'torch>=2.11,<2.15' torchvision timm transformers accelerate
	touch $@
