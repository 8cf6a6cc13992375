# Each target sets itself up: a fresh clone needs Python 3.11 or newer, make and a network.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Containers often run as root, which Jupyter allows only with an option.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)
# Pairs of Spark and Delta other than the laptop's; each is an extra in pyproject.toml.
PAIRS := spark-3-5 spark-4-0 spark-4-1
COMPAT_TESTS := $(addprefix tests/,log plan execute history vacuum sinklog interop \
	test_java.py test_files.py test_predicate.py test_session.py test_table.py test_verify.py)

.PHONY: help tour lab page book book-links test test-all test-long knocks compat bench lint dist dist-files dist-tour upgrade clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 11

tour: $(VENV)/tour.installed  ## run the whole job on the flights, without a browser; leaves tour.html
	@$(QUICK_JVM) $(BIN)/python notebooks/tour.py

lab: $(VENV)/notebooks.installed  ## open the workbench in JupyterLab
	$(BIN)/jupyter lab $(AS_ROOT) --LabApp.default_url=/lab/tree/notebooks/workbench.ipynb

page: $(VENV)/notebooks.installed  ## open the workbench as a page of its own, by Voilà
	$(BIN)/voila notebooks/workbench.ipynb

book: $(VENV)/book.installed  ## build course, reference and gallery as a site in .book/html; fails on a dead link
	$(BOOK) -b html docs/book .book/html

book-links: $(VENV)/book.installed  ## check the book's links to other sites (needs a network)
	$(BOOK) -b linkcheck docs/book .book/links

test: $(VENV)/dev.installed lint  ## run the tests: unit, Spark, notebooks, browser
	$(PYTEST)

test-all: $(VENV)/dev.installed lint  ## run these and the nightly tests: other pairings, other places
	$(PYTEST) --nightly

test-long: $(VENV)/dev.installed  ## look further for bugs: thousands of random and damaged tables, for hours
	$(PYTEST) --long -m "long or nightly"

knocks: $(VENV)/dev.installed  ## kill runs, race them, break tables; prints the table of RELIABILITY.md
	$(QUICK_JVM) $(BIN)/python -m tests.knocks

compat: $(addprefix compat-,$(PAIRS))  ## run the tests of the package's core with older pairs of Spark and Delta

compat-%: .venv-compat/%/tests.installed
	$(QUICK_JVM) .venv-compat/$*/bin/python -m pytest $(IN_TWO) --nightly \
		--override-ini addopts=--strict-markers $(COMPAT_TESTS)

bench: $(VENV)/dev.installed  ## run every benchmark; `python -m benchmarks` compares the engines alone
	@for name in $(basename $(notdir $(filter-out benchmarks/__%,$(wildcard benchmarks/*.py)))); do echo "== $$name"; $(BIN)/python -m benchmarks.$$name || exit 1; done

lint: $(VENV)/dev.installed  ## check style, types and which way imports go
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports --no-cache

dist: dist-files $(addprefix dist-,$(PAIRS) spark-4-2) dist-tour  ## build sdist and wheel, check them, and try the wheel with each extra

dist-files: $(VENV)/release.installed
	rm -rf dist build
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

dist-tour: .venv-dist/notebooks
	@$(QUICK_JVM) $</bin/python -P notebooks/tour.py

dist-spark-%: .venv-dist/spark-%
	@$(QUICK_JVM) $</bin/python -P tools/try_wheel.py

.PRECIOUS: .venv-dist/%
.venv-dist/%: dist-files
	rm -rf $@
	$(INSTALL) $@ "$$(ls dist/*.whl)[$*]"

upgrade: $(VENV)/release.installed  ## renew the versions in constraints.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-annotate --no-header \
		--extra dev --extra book --extra release $(addprefix --no-emit-package ,$(PAIRED)) \
		--output-file constraints.txt pyproject.toml

clean:  ## remove what the targets made
	rm -rf $(VENV) .venv-compat .venv-dist dist build .book docs/book/api docs/book/notebooks docs/book/[CR]*.md tour.html .mypy_cache .ruff_cache .pytest_cache .hypothesis

BOOK = $(BIN)/python -m sphinx -W --keep-going -q -d .book/doctrees
# Use the JVM's first compiler only: tests and the tour run each statement a few times, so the second compiler
# costs more than it saves. Without the second, the first needs more space for code. Collect garbage with one
# thread, because there is a JVM for each core. Start with a large heap and metaspace: growing them step by step
# triggers hundreds of collections. Don't verify Spark's classes, which takes an eighth of a JVM's start.
QUICK_JVM := JDK_JAVA_OPTIONS="-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC \
	-XX:InitialRAMPercentage=5 -XX:NewRatio=1 -XX:MetaspaceSize=300m \
	-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"

# Byte code halves the time in which a new process loads its modules.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(QUICK_JVM) $(BIN)/python -m pytest $(IN_TWO)
IN_TWO := --numprocesses 2 --dist loadfile --no-loadscope-reorder

# Left out of constraints.txt: pyproject.toml pins these for each pair, and pyspark pins py4j.
PAIRED := pyspark delta-spark py4j

INSTALL = @$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	"Python 3.11 or newer is needed: make PYTHON=python3.11 …")' && $(PYTHON) tools/environment.py

# The environment gets each target's extra when needed: `make tour` needs fewer packages than `make test`.
$(VENV)/%.installed: pyproject.toml constraints.txt
	$(INSTALL) $(VENV) --editable '.[$*]'
	@touch $@

.PRECIOUS: .venv-compat/%/tests.installed
.venv-compat/%/tests.installed: pyproject.toml constraints.txt
	$(INSTALL) .venv-compat/$* --editable '.[tests,$*]'
	@touch $@
