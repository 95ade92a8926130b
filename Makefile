# PYTHON=… names the interpreter for `make setup`; otherwise the first suitable one is taken.
PYTHON ?=
export PYTHON

# mkfs and its like live where an ordinary user's PATH does not look.
export PATH := $(PATH):/usr/sbin:/sbin

MAKEFLAGS += --no-print-directory
python := .venv/bin/python

.PHONY: help setup run test bench prove fix clean system-packages
.DEFAULT_GOAL := help

help:
	@echo "make setup                             .venv with holdfast and the tools in it"
	@echo "make run                               a fleet that lives: open the link it prints"
	@echo "make test [AREA=…] [SEED=…] [TIER=ci]  lint, types, layers, tests, harnesses; in 5 minutes"
	@echo "make bench [NAME=…]                    measure against raw limits and peers"
	@echo "make prove [NAME=…] [TIER=quick|ci|full] [SEED=…]    the fault harnesses"
	@echo "make fix                               format, repair lint, regenerate docs"
	@echo "make clean                             remove everything that was built"

setup:
	@tools/setup.sh

system-packages:
	@tools/system_packages.sh

# The page comes first; what it does not need is installed while it is up.
run:
	@tools/setup.sh --core
	@$(python) examples/living.py --then tools/setup.sh

test: setup system-packages
	@$(python) tools/run_tests.py $(if $(TIER),--tier '$(TIER)') $(if $(SEED),--seed '$(SEED)') $(AREA)

bench: setup
	@$(python) -m bench $(NAME)

prove: setup system-packages
	@$(python) -m prove $(if $(NAME),--name '$(NAME)') $(if $(TIER),--tier '$(TIER)') $(if $(SEED),--seed '$(SEED)')

fix: setup
	@.venv/bin/ruff check --fix
	@.venv/bin/ruff format
	@if [ -f tools/generate_docs.py ]; then $(python) tools/generate_docs.py; fi

clean:
	rm -rf .venv build dist prove/tmp bench/tmp .coverage .coverage.* htmlcov
	rm -rf .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
