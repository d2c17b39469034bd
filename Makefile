# The two commands are `make quickstart` and `make test`; each does all its own set-up in .venv.

VENV ?= .venv
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null && echo $$p && break; done)
BIN := $(VENV)/bin
PACKAGES := . plugins/roll_ascend plugins/roll_cuda plugins/roll_transferqueue
SEED ?= 0

# One thread per process: with several worker processes on few cores, more threads make all of them slower.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1

.PHONY: install quickstart test test-slow test-transferqueue-016 lint bench wheels clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt $(wildcard plugins/*/pyproject.toml)
	@test -n "$(PYTHON)" || { echo "roll-core needs Python 3.11 or 3.12: none found on PATH (set PYTHON=...)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		-e ".[dev,plot]" $(foreach package,$(filter-out .,$(PACKAGES)),-e $(package))
	@touch $@

quickstart: install
	$(BIN)/python examples/quickstart/run.py --seed $(SEED)

test: install lint
	$(BIN)/python -m pytest -q -m "not slow and not device and not registry and not vllm"

test-slow: install
	$(BIN)/python -m pytest -q -m "slow"

# The documented version of TransferQueue needs numpy<2 and cannot share an environment with the newest engines.
test-transferqueue-016:
	$(PYTHON) -m venv .venv-transferqueue-016
	.venv-transferqueue-016/bin/python -m pip install --quiet --disable-pip-version-check \
		torch==2.13.0 ray==2.60.0 pytest pytest-timeout "TransferQueue==0.1.6" "pyarrow<26" -e . -e plugins/roll_transferqueue
	.venv-transferqueue-016/bin/python -m pytest -q plugins/roll_transferqueue/tests

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/rollout.py
	$(BIN)/python benchmarks/rlvr_step.py
	$(BIN)/python benchmarks/memory_plan.py
	$(BIN)/python benchmarks/tiled_mlp.py

wheels: install
	for package in $(PACKAGES); do $(BIN)/python -m build --wheel --outdir dist $$package || exit 1; done

clean:
	rm -rf $(VENV) dist build output
