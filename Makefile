# `make test` installs the prerequisites of the tests and runs all of them. `make check` runs what the continuous
# integration runs. `make dist` builds the binaries that are deployed, into target/dist.

.PHONY: setup test strict lint doc deny dist bench cost fuzz screenshots check

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

# Counts instructions, system calls and bytes for each request; counts repeat where times scatter.
cost:
	@for tool in valgrind strace haproxy; do command -v $$tool >/dev/null 2>&1 || missing="$$missing $$tool"; done; \
	  [ -z "$$missing" ] || env RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $$missing
	cargo bench --locked --bench cost

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
