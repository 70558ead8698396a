# Two commands do everything: `make demo` and `make test`. The rest are their parts.
# The build folder honours CARGO_TARGET_DIR; by default it is one folder outside the clone, shared by all clones.
export CARGO_TARGET_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/platform-build
export CARGO_INCREMENTAL ?= 1

.PHONY: help demo test build packages packages-test check suite differential hostile hostile-inputs browser rollback-test schema-check bins lanes-long export-long unit tools readers lakehouse senders postgres-clients docs bench clean-demo
help:            ## this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: tools build ## install what is needed, build release, run the main job on real input, show its result
	@scripts/demo.sh

# One seed: what another one finds is a new defect, not a build that broke.
test: export SEED ?= 20261122
test: export PLATFORM_TEST_SEED ?= $(SEED)
test: tools check suite schema-check ## all tests, with formatting, lints and documentation

build:           ## both release binaries in dist/: platform (fully static) and platform-mixer
	@scripts/build-dist.sh

packages: build tools ## what is installed, in dist/packages: Debian packages, container images, the Helm chart, bills of materials, checksums
	@scripts/build-deb.sh
	@scripts/build-images.sh
	@scripts/build-chart.sh
	@cd dist/packages && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum > SHA256SUMS

# Each says what it lacks: root; runc and openssl; npm, for helm; promtool. mmdebstrap and lintian are installed where they are missing.
packages-test:   ## tests of what `make packages` made: installed, used, upgraded, removed; chart and alerts (as root; apt-get install runc openssl npm prometheus)
	@scripts/package-test.sh
	@scripts/image-test.sh
	@scripts/chart-test.sh
	@scripts/rules-test.sh

check: tools     ## formatting, lints, documentation, all without warnings; the page's types; the supply chain
	cargo fmt --all --check
	find gear-spec/src rack/src/gears -name '*.rs' -exec rustfmt --edition 2024 --check {} + # modules that a macro declares
	scripts/check-page.sh
	cargo clippy --workspace --all-targets --locked -- -D warnings
	scripts/check-dependencies.sh
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked --quiet

# With the features that the unit tests ask for: our crates are compiled once for both.
bins:            ## the debug binaries that the integration tests start
	cargo build --workspace --bins --locked --features platform-durable-fs/fault-injection,platform-model/fuzz

suite: tools bins ## unit and integration tests
	@scripts/with-nextest.sh
	cargo nextest run --workspace --locked

schema-check: tools bins ## the API of a running Mixer against its OpenAPI document: make schema-check CASES=100 SEED=7
	@scripts/schema-check.sh

# Kills of Mixer, bus and Racks, every fifth fault a partition; MESSAGES lines at the least, and as many as come meanwhile.
lanes-long: export PLATFORM_TEST_LANE_KILLS = $(or $(FAULTS),25)
lanes-long: export PLATFORM_TEST_LANE_ROWS = $(or $(MESSAGES),100000)
lanes-long: tools bins ## lane guaranteed in its long form: make lanes-long FAULTS=25 MESSAGES=100000 SEED=7
	@scripts/with-nextest.sh
	$(if $(SEED),PLATFORM_TEST_SEED=$(SEED)) cargo nextest run --workspace --locked -j1 -E 'test(lanes) & test(through_faults)' --no-capture

# Kills of Mixer and collector by turns, and a collector that is away for AWAY seconds; both print what was lost and doubled.
export-long: export EXPORT_ROUNDS = $(or $(ROUNDS),20)
export-long: export EXPORT_AWAY_SECONDS = $(or $(AWAY),3600)
export-long: export EXPORT_BATCH = $(or $(BATCH),1000)
export-long: tools bins ## telemetry to a collector in its long form: make export-long ROUNDS=20 AWAY=3600 BATCH=1000 SEED=7
	@scripts/with-nextest.sh
	$(if $(SEED),PLATFORM_TEST_SEED=$(SEED)) cargo nextest run --profile long --workspace --locked -j1 -E 'test(export::nothing_acknowledged_is_lost) | test(export::every_row_comes)' --no-capture

differential: tools bins ## random SQL against a real PostgreSQL, with what differs: PLATFORM_TEST_STATEMENTS=20000 PLATFORM_TEST_SEED=7
	@scripts/with-nextest.sh
	cargo nextest run --workspace --locked --ignore-default-filter -E 'test(random_statements)' --no-capture

hostile: tools bins ## generated statements within their bounds of memory and time
	@scripts/with-nextest.sh
	cargo nextest run -p platform-query --locked --ignore-default-filter -E 'test(hostile_statements_are_answered_or_refused)' --no-capture

# PROFILE=dev takes what is built for the tests: slower inputs, and no build of half an hour.
hostile-inputs: export BENCH_INPUTS = $(or $(INPUTS),50000000)
hostile-inputs: export BENCH_SEED = $(or $(SEED),20261129)
hostile-inputs:  ## changed inputs for every parser of foreign bytes: make hostile-inputs INPUTS=50000000 SEED=20261129 [TARGET=wire.message]
	cargo run --locked --package platform-benches --features hostile-inputs --bin bench-hostile-inputs --profile $(or $(PROFILE),checked) -- $(TARGET) $(INPUT)

browser: tools bins ## a page of another site in a real browser (Chromium) against the API and http_in
	@scripts/with-nextest.sh
	cargo nextest run --workspace --locked --ignore-default-filter -E 'test(browser::)' --no-capture

rollback-test: export PLATFORM_TEST_OLD ?= $(OLD)
rollback-test: tools bins ## back to the release before and forward again: make rollback-test OLD=FOLDER (an absolute path, with its programs)
	@scripts/with-nextest.sh
	cargo nextest run --workspace --locked --ignore-default-filter -E 'test(upgrade::rollback)' --no-capture

unit: tools      ## unit tests of one room: make unit ROOM=engine
	cargo nextest run --workspace --locked -E 'package(platform-$(ROOM))'

tools:           ## pinned, hash-checked helpers in .tools/
	@scripts/install-tools.sh

readers: tools bins ## the outside readers from Python over a live store (1.2 GB once installed)
	@scripts/install-readers.sh
	@scripts/with-nextest.sh
	cargo nextest run --workspace --locked -E 'test(readers_from_python)' --no-capture

# Tests with Spark, Sail, Daft and ClickHouse too; ENGINES="spark duckdb" takes some of them. Spark needs Java 17.
lakehouse: export LAKEHOUSE_ENGINES = $(or $(ENGINES),pyiceberg duckdb polars daft sail spark chdb)
lakehouse: export PLATFORM_TEST_LAKEHOUSE_SCANS = $(or $(SCANS),200)
lakehouse: export PLATFORM_TEST_LAKEHOUSE_ROWS = $(or $(ROWS),600000)
lakehouse: tools bins ## engines that read the Iceberg catalogue, as a table, and scans while files change: make lakehouse ROWS=600000 SCANS=200 (3.1 GB once installed)
	@scripts/install-readers.sh
	@scripts/install-lakehouse.sh all
	@scripts/with-nextest.sh
	cargo nextest run --profile long --workspace --locked -j1 -E 'test(/^lakehouse::/)' --no-capture

senders: tools bins ## applications and agents as their makers ship them against a Mixer and a Rack, as a table; SDKs through faults too (400 MB once installed)
	@scripts/install-senders.sh
	@scripts/with-nextest.sh
	cargo nextest run --workspace --locked --ignore-default-filter -E 'test(/^senders::/)' --no-capture

postgres-clients: tools bins ## psql, and drivers of PostgreSQL for Python, JavaScript and Java, against a Mixer and PostgreSQL (750 MB once installed)
	@scripts/install-postgres-clients.sh
	@scripts/with-nextest.sh
	cargo nextest run --workspace --locked --no-capture \
	  -E 'test(clients_of_postgresql) | test(questions_of_drivers_and_tools) | test(what_clients_ask_when_they_connect) | test(postgres::grafana::)'

docs: bins       ## write the generated reference pages anew (one test after another: two write one file)
	@scripts/with-nextest.sh
	UPDATE=1 cargo nextest run --workspace --locked -j1 -E 'test(reference_page)'

bench: build     ## the release benches; see benches/README.md
	@benches/run.sh

clean-demo:      ## stop a demo that was left running with KEEP=1 and remove its folder
	@scripts/demo.sh stop
