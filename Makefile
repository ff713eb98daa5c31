# `make test` installs the prerequisites of the tests and runs all of them. `make check` runs what the continuous
# integration runs. `make dist` builds the binaries that are deployed, into target/dist.

.PHONY: setup test strict lint doc deny dist bench peers cost bench-peers counted cost-check cost-baseline fuzz screenshots check

setup:
	@sh deploy/setup.sh

# Most tests wait for servers and for time rather than for a processor: more of them than cores run side by side.
export RUST_TEST_THREADS ?= 4

test: setup
	cargo test --locked --all-targets
	cargo test --locked --doc

# Asserts times as well: on an idle machine only, so the continuous integration does not run it.
strict: setup
	KEYGATE_STRICT=1 cargo test --locked --test integration redis_away -- --test-threads 1
	KEYGATE_STRICT=1 cargo test --locked --test process hostile -- --test-threads 1

lint:
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps

deny:
	sh deploy/deny.sh

# The profile of deployments: slower to build than `--release`, faster to run.
dist:
	cargo build --locked --profile dist --bins

# The bench profile has the same settings as `dist`.
bench:
	cargo bench --locked

# The peers of the benchmarks, of which none may start as a service.
PEERS = haproxy nginx libnginx-mod-http-ndk libnginx-mod-http-lua lua-resty-core lua-resty-lrucache lua-nginx-redis

peers: setup
	@missing=""; for package in $(PEERS); do dpkg -s $$package >/dev/null 2>&1 || missing="$$missing $$package"; done; \
	  [ -z "$$missing" ] || env RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $$missing

# Counts instructions, system calls, allocations and bytes for each request, of the gateway and its peers.
cost: peers
	cargo bench --locked --bench cost

# CPU time of a request to that of the peers, in several scenarios; text, JSON and a plot, in benches/figures.
bench-peers: peers
	cargo bench --locked --bench end_to_end -- --out $(CURDIR)/benches/figures

# A build to count, for which only this crate is compiled again: optimized, with the libraries of the tests' build.
COUNTED = $(foreach setting,opt-level=2 debug=false debug-assertions=false overflow-checks=false incremental=false \
  codegen-units=16,--config profile.dev.package.keygate.$(setting))

counted:
	cargo build --locked $(COUNTED) --bin keygate
	mkdir -p target/counted && cp target/debug/keygate target/counted/keygate

# Fails when a request costs more than benches/cost/baseline.json says.
cost-check: setup counted
	KEYGATE_BINARY=$(CURDIR)/target/counted/keygate cargo test --locked --bench cost -- --baseline

# Writes that file, after a change that is meant to cost more, or that costs less.
cost-baseline: setup counted
	KEYGATE_BINARY=$(CURDIR)/target/counted/keygate cargo test --locked --bench cost -- --baseline --write

# Takes the screenshots of the documentation: the pages of a demo, in Chromium.
screenshots: setup
	cargo test --locked --test browser pictures -- --ignored

FUZZ_SECONDS ?= 600
FUZZ_TARGETS ?= sanitizer head bearer proxy_header cookie return_path cursor config journal

# Memory sanitizers are off: the crate has no unsafe code, and the targets check properties. Coverage needs nightly options,
# which RUSTC_BOOTSTRAP enables in the stable compiler.
fuzz:
	@command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked
	cd fuzz && for target in $(FUZZ_TARGETS); do \
	  mkdir -p found/$$target && RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir . -s none $$target found/$$target corpus/$$target \
	    -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -print_final_stats=1 || exit 1; \
	done

check: lint doc test deny
