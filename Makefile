# Two commands for everyone: make demo, make test. Each works in a fresh clone with Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
WORKERS ?= 2
FIGURES := epsilon_cost paper_regret linear_paper_regret lq_orders functional_curves
# One BLAS thread per worker: small matrices, and two workers on two cores.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1

.PHONY: help install demo test test-slow lint format public-api bench docs docs-figures release clean

help: ## show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP) ## make .venv with everything the tests need

$(CORE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tacit needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	@touch $(CORE)

$(STAMP): $(CORE)
	$(PIP) -e '.[dev]'
	$(BIN)/tacit doctor --compile
	@touch $(STAMP)

demo: $(CORE) ## a private agent learns from a million users, as a plot with its guarantee in words
	$(BIN)/python -m research.first_agent --output demo.png

lint: $(STAMP) ## ruff, mypy, and which room may use which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: $(STAMP) ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint ## lint, unit and property tests, doctests; what this machine lacks is skipped, and named
	$(BIN)/pytest -q -rs -n $(WORKERS)

test-slow: $(STAMP) ## the long statistical tests
	$(BIN)/pytest -q -n $(WORKERS) -m slow

public-api: $(STAMP) ## write down the public names again, after a change that was meant
	$(BIN)/python -m tests.public_api

bench: $(STAMP) ## every benchmark, one table
	$(BIN)/python -m benchmarks

.PHONY: peers
peers: .venv-peers/.installed ## make .venv-peers, with the libraries that benchmarks compare with

.venv-peers/.installed: constraints-peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-peers.txt rlberry-scool
	@touch $@

.PHONY: peers-sb3
peers-sb3: .venv-sb3/.installed ## make .venv-sb3, with Stable-Baselines3, which research.gymnasium runs beside ours

.venv-sb3/.installed: constraints-sb3.txt
	$(PYTHON) -m venv .venv-sb3
	.venv-sb3/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-sb3.txt torch==2.13.0 stable_baselines3 Box2D pygame
	@touch $@

.PHONY: secure-sum
secure-sum: .venv-flower/.installed ## thirty devices, Flower's secure sum, and the noise of joint DP
	.venv-flower/bin/python examples/secure_sum.py

.venv-flower/.installed: constraints-flower.txt
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-flower.txt -e . flwr
	@touch $@

.venv-docs/.installed: constraints.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt mkdocs-material 'mkdocstrings[python]' ruff
	@touch $@

docs: .venv-docs/.installed ## the site, in site/; a broken link or name is an error
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

.venv-release/.installed: constraints.txt
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build twine
	@touch $@

release: .venv-release/.installed ## wheels and sdist in dist/, checked, installed into an empty environment and run there
	rm -rf dist .venv-empty
	.venv-release/bin/python -m build --outdir dist .
	.venv-release/bin/python -m build --wheel --outdir dist clients/python
	.venv-release/bin/twine check --strict dist/*
	$(PYTHON) -m venv .venv-empty
	.venv-empty/bin/python -I -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/tacit_policies-*.whl
	cd dist && ../.venv-empty/bin/python -I -c 'import sys, tacit_policies; sys.exit("numba" in sys.modules)'
	.venv-empty/bin/python -I -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/tacit-*.whl
	cd dist && ../.venv-empty/bin/tacit doctor
	cd dist && ../.venv-empty/bin/tacit run --world riverswim --agent ucbvi --epsilon 1 --delta 1e-6 --users 1e5
	rm -rf .venv-empty
	@ls -l dist

docs-figures: $(STAMP) ## draw the pictures of the docs again
	for figure in $(FIGURES); do name=$$(echo $$figure | tr _ -); \
		$(BIN)/python -m research.$$figure --output docs/img/$$name.png || exit 1; done

clean: ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis demo.png build dist site .venv-docs .venv-release .venv-empty src/*.egg-info clients/python/build
