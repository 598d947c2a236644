# `make run` sets everything up and runs a first scenario; `make test` sets up and runs all tests.

PYTHON = python3
VENV = .venv
WORKERS = 2

BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check --quiet
COMPLETE = vdnnsim/plan/*,vdnnsim/policies/*,vdnnsim/engine/*,vdnnsim/analysis/*

.PHONY: run test lint bench clean

run: $(VENV)/ready-to-run
	$(BIN)/vdnnsim run scenarios/vgg416.yaml

test: lint
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --cov --cov-report=term --cov-fail-under=95
	$(BIN)/python -m coverage report --include='$(COMPLETE)' --fail-under=100

lint: $(VENV)/ready-to-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

bench: $(VENV)/ready-to-test
	$(BIN)/python -m pytest tests/benchmarks -m benchmark

clean:
	rm -rf $(VENV) build dist .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find calibration tests vdnnsim -name __pycache__ -type d -prune -exec rm -rf {} +

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
	$(PIP) install -c constraints.txt -e '.[calibrate,fit,test]'
	touch $(VENV)/ready-to-run $@
