# Everything a developer needs; each target sets up what it uses.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LISTEN ?= 127.0.0.1:10400

.PHONY: run test check bench golden generate tools format clean

run: $(VENV)/run.done ## serve a simulated GPU node on $(LISTEN)
	@echo "A simulated GPU node: open http://$(LISTEN)/ or curl http://$(LISTEN)/metrics (Ctrl-C ends it)"
	@exec $(BIN)/gputally serve --machine simulated --web.listen-address $(LISTEN)

test: $(VENV)/dev.done tools ## run all tests, four at a time: most of them wait for daemons
	$(BIN)/pytest -n 4 --dist loadfile $(ARGS)

check: $(VENV)/dev.done ## format, lint, types, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/generate.py --check
	$(BIN)/python -m tools.dashboards --check

bench: $(VENV)/bench.done ## measure CPU, memory and start beside nvitop-exporter, over the C fake
	$(BIN)/python -m bench.cost

golden: $(VENV)/dev.done ## rewrite the expected output of the recorded machines; the diff is the review
	$(BIN)/python -m tools.golden

generate: $(VENV)/dev.done ## write the reference pages and the dashboards
	$(BIN)/python tools/generate.py
	$(BIN)/python -m tools.dashboards

format: $(VENV)/dev.done
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

tools: ## prometheus and promtool, from Debian where they are missing and can be installed
	@sh tools/install.sh

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gputally needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/%.done: requirements/%.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: check-deploy manifests
check-deploy: $(VENV)/dev.done tools ## chart, manifests, units, image and scripts, with the tools that read them
	$(BIN)/python tools/deploy.py --check
	$(BIN)/pytest tests/deploy $(ARGS)

manifests: $(VENV)/dev.done ## write the plain manifests, and the copies of rules and dashboards in the chart
	$(BIN)/python tools/deploy.py
