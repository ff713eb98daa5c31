# `make test` sets up what the tests need and runs them all. `make check` is what the continuous integration runs.

.PHONY: setup test lint doc deny bench fuzz screenshots check

setup:
	@sh deploy/setup.sh

test: setup
	cargo test --locked --all-targets
	cargo test --locked --doc

lint:
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps

deny:
	sh deploy/deny.sh

bench:
	cargo bench --locked

# The pictures of the documentation: the pages of a demo, in Chromium.
screenshots: setup
	cargo test --locked --test browser pictures -- --ignored

FUZZ_SECONDS ?= 600
FUZZ_TARGETS ?= sanitizer head bearer proxy_header cookie return_path cursor config journal

# The sanitizers of memory are left out: this code has no unsafe blocks, and what is sought is a property that fails. They
# and coverage need nightly's options, which RUSTC_BOOTSTRAP allows the stable compiler.
fuzz:
	@command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked
	cd fuzz && for target in $(FUZZ_TARGETS); do \
	  mkdir -p found/$$target && RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir . -s none $$target found/$$target corpus/$$target \
	    -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -print_final_stats=1 || exit 1; \
	done

check: lint doc test deny
