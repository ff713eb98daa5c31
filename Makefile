# `make test` installs the prerequisites of the tests and runs all of them. `make check` runs what the continuous
# integration runs.

.PHONY: setup test test-integration test-others test-models strict soak lint doc deny bench peers pingora cost bench-peers fleet prove cost-check cost-baseline size fuzz screenshots check release release-test release-check

setup:
	@sh deploy/setup.sh

# Most tests wait for servers and for time rather than for a processor: more of them than cores run side by side.
export RUST_TEST_THREADS ?= 3

# The tools of the tests are fetched while the tests are built: one waits for the network, the other for the processor.
test:
	@sh deploy/setup.sh packages
	@sh deploy/setup.sh tools & tools=$$!; \
	  cargo test --locked --lib --bins --tests --bench fleet --bench exhaustive --no-run; built=$$?; \
	  wait $$tools && exit $$built
	$(MAKE) --no-print-directory --keep-going --jobs=3 test-integration test-others test-models
	cargo test --locked --doc

# Test programs run side by side. Of the integration tests more run at a time than there are cores on a small machine:
# most of them wait for servers and for time.
test-integration:
	sh deploy/run_tests.sh 2400 cargo test --locked --test integration -- --test-threads 5

test-others:
	sh deploy/run_tests.sh 2400 cargo test --locked --no-fail-fast --lib --bins --test browser --test fuzz --test pages --test process

# These compute, and wait for nothing: they have the time of the processors that the other tests leave.
test-models:
	nice -n 19 sh deploy/run_tests.sh 2400 cargo test --locked --no-fail-fast --bench fleet --bench exhaustive --test threads

# Asserts times as well: on an idle machine only, so the continuous integration does not run it.
strict: setup
	KEYGATE_STRICT=1 cargo test --locked --test integration state_contract::redis_outages -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test integration refusals -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test integration dashboard_api::limits -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test integration state_contract::redis_sessions -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test integration state_contract::gateways -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test integration black_hole_costs_each_request_one -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test integration state_contract::redis_failovers -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test integration state_contract::redis_shares -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test integration revoked_exchanges::over_redis -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test integration configuration_of_fifty_thousand_endpoints -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test integration discovery::shares -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test integration slow_response_times_out_after_ten_seconds -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test browser key_is_created_used_monitored_and_revoked -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test process hostile -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test integration decisions::verdicts -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test integration proxies::streams -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test process envoys:: -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test process leaked_keys:: -- --test-threads 1

SOAK_MINUTES ?= 30

# Attacks three gateways that share a Redis, while they are reloaded, replaced and killed. On an idle machine.
soak: setup
	KEYGATE_SOAK_MINUTES=$(SOAK_MINUTES) cargo test --locked --profile $(SOAK_PROFILE) --test process soak:: -- --ignored --nocapture

# The profile of deployments, for what is found in half an hour; `dev` builds faster.
SOAK_PROFILE ?= release

lint:
	! git grep -nE '^(<<<<<<<|>>>>>>>) '
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps

deny:
	sh deploy/deny.sh

# Static programs, archive, Debian package, SBOM and checksums, in target/artifacts. PROFILE=dev builds
# faster, to try the packaging.
PROFILE ?= release
release:
	@sh deploy/setup.sh release
	PROFILE=$(PROFILE) sh deploy/release.sh

# Tries target/artifacts: the programs in an empty root, the package in a copy of this system that ends with the test.
release-test:
	sh deploy/release_test.sh target/artifacts

# Builds the commit once more in another directory: every file must have the same bytes.
release-check:
	PROFILE=$(PROFILE) sh deploy/release_check.sh target/artifacts

# The bench profile has the settings of the release.
bench:
	cargo bench --locked

# The programs that benchmarks compare the gateway with.
peers:
	@sh deploy/setup.sh peers

# The smallest proxy on Pingora, a workspace of its own, which takes minutes to build.
pingora:
	@cargo build --locked --release --manifest-path benches/peers/pingora/Cargo.toml --target-dir target/peers || \
	  echo "The proxy on Pingora cannot be built: the scenarios with Redis leave it out." >&2

# Counts instructions, system calls, allocations and bytes for each request, of the gateway and its peers.
cost: peers
	cargo bench --locked --bench cost

# CPU time of a request to that of the peers, in several scenarios; text, JSON and a plot, in benches/figures.
bench-peers: peers pingora
	cargo bench --locked --bench end_to_end -- --out $(CURDIR)/benches/figures

# The build that is counted is one of its own, for which only the crates of the workspace are compiled again: optimized,
# with the libraries of the tests' build.
COUNTED = $(foreach package,keygate $(notdir $(wildcard crates/*)),$(foreach setting,opt-level=2 \
  debug=false debug-assertions=false overflow-checks=false incremental=false codegen-units=4,\
  --config profile.dev.package.$(package).$(setting)))

# Fails when a request costs more than benches/cost/baseline.json says.
cost-check:
	@sh deploy/setup.sh packages
	cargo test --locked $(COUNTED) --bench cost -- --baseline

# Writes that file, after a change that is meant to cost more, or that costs less.
cost-baseline:
	@sh deploy/setup.sh packages
	cargo test --locked $(COUNTED) --bench cost -- --baseline --write

# Lines of code by room: a figure to watch, which fails nothing.
size:
	@sh deploy/size.sh

# Simulates 1,000 gateways on 100 Redis shards in virtual time, and checks the promised bounds (docs/capacity.md).
fleet:
	cargo test --locked $(COUNTED) --bench fleet -- --runs 3

# Optimized, with the assertions of the product.
PROVED = $(foreach package,keygate $(notdir $(wildcard crates/*)),--config profile.dev.package.$(package).opt-level=2)

# Searches every history of two gateways to a depth, finds the mutants, and runs all interleavings of threads in two
# places: ten minutes on two cores (docs/development/design/proved.md).
prove:
	cargo test --locked $(PROVED) --bench exhaustive -- --whole
	cargo test --locked --test threads

# Takes the screenshots of the documentation: the pages of a demo, in Chromium.
screenshots: setup
	cargo test --locked --test browser pictures -- --ignored

FUZZ_SECONDS ?= 600
FUZZ_TARGETS ?= sanitizer head bearer credential proxy_header cookie return_path cursor config journal

# Memory sanitizers are off: the crate has no unsafe code, and the targets check properties. Coverage needs nightly options,
# which RUSTC_BOOTSTRAP enables in the stable compiler.
fuzz:
	@command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked
	cd fuzz && for target in $(FUZZ_TARGETS); do \
	  mkdir -p found/$$target && RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir . -s none $$target found/$$target corpus/$$target \
	    -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -print_final_stats=1 || exit 1; \
	done

check: lint doc test deny cost-check
