# The verbs. Each one first makes .venv (and Java, where Spark is needed) ready, so that all
# of them work in a fresh clone. Pass more arguments with ARGS: make test ARGS="-k windows".

.DEFAULT_GOAL := help
.PHONY: help demo test check installed chaos models evolution corpus logstress damage soak bench
.PHONY: docs kafka clean

READY := sh tools/bootstrap.sh
SPARK := sh tools/bootstrap.sh --java
BIN := .venv/bin
ARGS ?=

help: ## list the verbs
	@awk -F ': .*## ' '/^[a-z]+:.* ## / { printf "make %-10s%s\n", $$1, $$2 }' Makefile

demo: ## the fire alarm on Spark, live in the terminal (about a minute)
	@$(SPARK) $(BIN)/python -m examples.demo $(ARGS)

test: check ## everything that must hold: style, types, tests
	@echo "headrace: pytest (starts Spark once)"
	@$(SPARK) $(BIN)/python -m $(if $(ARGS),pytest $(ARGS),tools.run_tests)

check: ## style and types only (no Java, seconds)
	@$(READY) echo "headrace: ruff, mypy"
	@$(READY) $(BIN)/ruff check
	@$(READY) $(BIN)/ruff format --check
	@$(READY) $(BIN)/mypy

installed: ## the wheel in empty environments on Python 3.11, 3.12 and 3.13 (a quarter of an hour)
	@$(SPARK) $(BIN)/python -m tools.installed $(ARGS)

chaos: ## the long fault suites on Spark (an hour); then 1,000 drawn faults of every kind on five programs (an hour and a half); RANDOM=1: only these
ifndef RANDOM
	@$(SPARK) $(BIN)/python -m pytest chaos $(ARGS)
endif
	@$(SPARK) $(BIN)/python -m chaos $(if $(RANDOM),$(ARGS))

MODELS := windows/test_against_model.py ops/test_row_windows.py ops/test_coarse_panes.py
MODELS += patterns process/test_against_model.py joins streams testing/test_drawn_scripts.py sources/test_any_bytes.py
models: ## 500 drawn streams of every feature against its model (hours, no Spark); LARGE=1: 2 M rows on Spark against DuckDB
ifdef LARGE
	@$(SPARK) $(BIN)/python -m models $(ARGS)
else
	@$(READY) env HEADRACE_EXAMPLES=500 HEADRACE_CUTS=1,2,3 $(BIN)/python -m pytest -m "not spark" \
		$(addprefix tests/,$(MODELS)) $(ARGS)
endif

evolution: ## 2,000 chains of changed programs with crashes, against a model (about half an hour, no Spark)
	@$(READY) $(BIN)/python -m evolution $(ARGS)

corpus: ## ten thousand drawn expressions, as text, against Spark (about half an hour)
	@$(SPARK) env HEADRACE_EXAMPLES=10000 $(BIN)/python -m pytest \
		--capture=no tests/expr/test_corpus.py $(ARGS)

logstress: ## the log under kills, errors, a full disk, damage, power cuts (about ten minutes)
	@$(READY) $(BIN)/python -m stress $(ARGS)

damage: ## every kind of file of a whole job damaged, and doctor; a driver stopped at every point (hours); OUTPUTS=1: of each output
ifdef OUTPUTS
	@$(READY) env HEADRACE_LONG=1 $(BIN)/python -m pytest tests/sinks/test_contract.py tests/sinks/test_going_back.py $(ARGS)
else
	@$(READY) $(BIN)/python -m damage $(ARGS)
endif

soak: ## five million keys for ten minutes: does memory stay flat?
	@$(SPARK) $(BIN)/python -m soak $(ARGS)

bench: ## one table against hand-written PySpark, results checked equal
	@$(SPARK) $(BIN)/python -m bench $(ARGS)

docs: ## write the table of codes, draw the pictures, build the site; does every page print what it says, every link lead somewhere?
	@$(READY) $(BIN)/python -m tools.codes
	@for picture in docs/pictures/*.py; do $(READY) $(BIN)/python $$picture || exit 1; done
	@$(SPARK) $(BIN)/python -m pytest --quiet tests/test_docs.py tests/test_codes.py tests/test_site.py $(ARGS)
	@$(READY) $(BIN)/python -m tools.site

kafka: ## a Kafka broker on this machine until Ctrl-C (the first time it fetches 44 MB)
	@$(SPARK) $(BIN)/python -m tools.kafka $(ARGS)

clean: ## remove caches and builds; keeps .venv and your data in .headrace
	@rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@rm -rf spark-warehouse metastore_db derby.log artifacts
	@find src tests -type d -name __pycache__ -prune -exec rm -rf {} +
