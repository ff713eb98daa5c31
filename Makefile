# `make test` sets up what the tests need and runs them all. `make check` is what the continuous integration runs.

.PHONY: setup test lint doc deny bench check

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

check: lint doc test deny
