# Two commands matter: `make run` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help run test check audit chaos format lint types imports unit test-homeassistant bench-outpost system-packages lock test-lowest docs build app clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

run: $(VENV)/.run ## set everything up and start the bridge, with a private broker when none is configured
	$(BIN)/clusterllm-mqtt bridge $(ARGS)

test: system-packages check unit ## everything the tests need, then the checks and all tests

check: lint types imports ## format, lint, types and the rules of the house

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

# The lock is complete: without --no-deps, pip takes the newest of a package wanted with an extra and then misses its hash
$(VENV)/.run: $(VENV)/bin/python requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-dev.lock
	touch $@

system-packages: ## Debian packages of the tests: a real Mosquitto, network namespaces, AppArmor's parser, systemd's analyzer
	@PATH="$$PATH:/usr/sbin:/sbin"; missing=; \
	command -v mosquitto >/dev/null || missing="$$missing mosquitto"; \
	command -v mosquitto_sub >/dev/null || missing="$$missing mosquitto-clients"; \
	command -v ip >/dev/null || missing="$$missing iproute2"; \
	command -v apparmor_parser >/dev/null || missing="$$missing apparmor"; \
	command -v systemd-analyze >/dev/null || missing="$$missing systemd"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ]; then echo "The tests need:$$missing. Install them, for example: sudo apt-get install$$missing" >&2; exit 1; fi; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing

format: $(VENV)/.dev ## rewrite the code in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

unit: $(VENV)/.dev
	$(BIN)/pytest -n 2 --dist loadfile --cov --cov-report=term $(ARGS)

HOMEASSISTANT := $(CURDIR)/.homeassistant$(HOMEASSISTANT_SUITE:%=-%)

test-homeassistant: system-packages $(VENV)/.dev ## the tests in a real Home Assistant; HOMEASSISTANT_SUITE=forky takes the newest
	release=$$($(BIN)/python tests/homeassistant/install.py "$(HOMEASSISTANT)") && \
	HOMEASSISTANT_VENV="$(HOMEASSISTANT)" HOMEASSISTANT_PYTHON=installed HOMEASSISTANT_RELEASE=$$release \
	  $(BIN)/pytest -m homeassistant tests/homeassistant $(ARGS)

chaos: system-packages $(VENV)/.dev ## ten minutes of failing parts; ARGS="--seconds 60 --seed 7"
	$(BIN)/python tests/chaos/run.py $(ARGS)

bench-outpost: $(VENV)/.dev ## how far one Mosquitto and one outpost go, about 7 minutes
	$(BIN)/python benchmarks/outpost_scale.py $(ARGS)

lock: $(VENV)/bin/python ## pin anew what pyproject.toml allows
	$(BIN)/python -m pip install --quiet 'uv>=0.8'
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-annotate \
	  --python-version 3.11 --extra broker pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-annotate \
	  --python-version 3.11 --extra broker --extra dev pyproject.toml -o requirements-dev.lock

test-lowest: $(VENV)/.dev ## the tests on the lowest versions that pyproject.toml promises
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-lowest
	$(BIN)/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct --editable '.[dev,broker]'
	.venv-lowest/bin/pytest -n 2 --dist loadfile $(ARGS)

audit: $(VENV)/bin/python ## known vulnerabilities of what the locks pin; asks PyPI
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.9'
	$(BIN)/pip-audit --strict --disable-pip --requirement requirements.lock
	$(BIN)/pip-audit --strict --disable-pip --requirement requirements-dev.lock

build: $(VENV)/.dev ## wheel and source distribution in dist/
	rm -rf dist
	$(BIN)/uv build --quiet

app: build ## what the image of Home Assistant's app is built from
	rm -f homeassistant/app/wheels/*.whl
	cp dist/clusterllm_mqtt-*.whl requirements.lock homeassistant/app/wheels/

clean: ## remove everything that make made
	rm -rf $(VENV) .venv-lowest .homeassistant* dist homeassistant/app/wheels/*.whl homeassistant/app/wheels/*.lock .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
