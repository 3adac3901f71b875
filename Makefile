# Everything one does with this repository, by name. The scripts do the work; this file knows what must be
# installed first. A stamp in .venv remembers what is installed, so a second run starts at once.

.DEFAULT_GOAL := help
.PHONY: help ui ui-if-possible install install-test install-bench demo test soak check bench docs look lock protos clean

VENV := .venv
INSTALL_INPUTS := pyproject.toml requirements-build.lock scripts/install scripts/find-uv

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

# Side by side: they wait for different servers.
install: $(VENV)/.uv ## make .venv with what phalanx needs to run
	@$(MAKE) --no-print-directory -j2 $(VENV)/.installed ui-if-possible
install-test: $(VENV)/.uv ## the same, with what the tests and checks need
	@$(MAKE) --no-print-directory -j3 $(VENV)/.servers $(VENV)/.installed-test ui-if-possible
install-bench: $(VENV)/.installed-bench ## the same, with the schedulers we compare with

$(VENV)/.uv: requirements-uv.lock scripts/find-uv
	@bash scripts/find-uv >/dev/null || true
	@mkdir -p $(VENV) && touch $@

$(VENV)/.installed: requirements.lock $(INSTALL_INPUTS)
	bash scripts/install requirements.lock
	@touch $@

$(VENV)/.installed-test: requirements-test.lock requirements-browser.lock $(INSTALL_INPUTS)
	bash scripts/install requirements-test.lock requirements-browser.lock
	@touch $@ $(VENV)/.installed $(VENV)/.installed-browser

$(VENV)/.servers: scripts/servers
	bash scripts/servers
	@touch $@

$(VENV)/.installed-bench: requirements-bench.lock $(INSTALL_INPUTS)
	bash scripts/install requirements-bench.lock
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: requirements.lock requirements-docs.lock $(INSTALL_INPUTS)
	bash scripts/install requirements.lock requirements-docs.lock
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-browser: requirements-browser.lock $(INSTALL_INPUTS) | $(VENV)/.installed
	bash scripts/install requirements-browser.lock
	@touch $@

ui: ## build the dashboard, with Node from PyPI; quick when nothing changed
	bash scripts/ui

ui-if-possible:
	@bash scripts/ui --if-possible

demo: install ## a working cluster on this machine, shown step by step
	bash scripts/demo

test: install-test ## every test
	bash scripts/test

soak: install-test ## what takes longer than a test may: seeds, kills, hostile users, chaos, systemd, cgroup v2; SEEDS, FROM, ATTEMPTS and MINUTES say how much
	bash scripts/simulate --seeds $(or $(SEEDS),10000) --from $(or $(FROM),100)
	$(VENV)/bin/python -m tests.e2e.truth --attempts $(or $(ATTEMPTS),5000)
	$(VENV)/bin/python -m tests.e2e.elastic_defaults
	KILLS=50 $(VENV)/bin/pytest -q tests/e2e/test_survival.py tests/e2e/test_gang_survival.py -k kills
	RUNNER_KILLS=30 $(VENV)/bin/pytest -q tests/e2e/test_runner_kills.py tests/e2e/test_isolation.py -k "killed or outlive"
	bash scripts/node-runner
	bash scripts/hostile --minutes $(or $(MINUTES),5)
	bash scripts/chaos --minutes $(or $(MINUTES),20)
	bash scripts/systemd
	bash scripts/overlay $(or $(ROUNDS),20)
	bash scripts/cgroup-v2

check: install-test ## format, lint, types, tidy, unit, property: under two minutes
	bash scripts/check

bench: install-bench ## measure, and compare; ARGS=--quick only shows that it works
	bash scripts/bench $(ARGS)

docs: $(VENV)/.installed-docs ## the documentation as a site and as man pages, in build/docs
	bash scripts/docs

look: docs $(VENV)/.installed-browser ## open every page of the site in Chromium, and take pictures (needs chromium)
	$(VENV)/bin/python -m docs.site.look

lock: ## resolve the lock files again from pyproject.toml (needs uv)
	bash scripts/lock

protos: install-test ## compile proto/ again after a change
	bash scripts/protos

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist ui/node_modules src/phalanx/dashboard/static .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
