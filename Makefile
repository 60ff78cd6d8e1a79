# The two commands to begin with are `make demo` and `make test`. Each goal installs what is missing for it
# (scripts/setup), and configures what it builds (scripts/configure); meson and ninja are the ones that
# scripts/tool finds.
PREFIX ?= /usr/local
BUILD := build
SANITIZED := build-sanitized
NINJA_QUIET := scripts/tool ninja --quiet -C

.NOTPARALLEL:
.PHONY: all configured demo test check bench bench-peers soak fresh slurm-up slurm-down install uninstall clean

all:
	@scripts/setup build
	@scripts/configure "$(BUILD)" -Dexamples=enabled -Dpython=enabled
	@$(NINJA_QUIET) "$(BUILD)"

# Only what the training in C needs is installed and built.
demo:
	@scripts/setup demo
	@scripts/configure "$(BUILD)" -Dexamples=enabled
	@$(NINJA_QUIET) "$(BUILD)" demo
	@scripts/demo "$(BUILD)"

configured:
	@scripts/setup test
	@scripts/configure "$(BUILD)" -Dexamples=enabled -Dpython=enabled -Dtests=enabled

# All tests, then all of them again under AddressSanitizer and UndefinedBehaviorSanitizer, then the checks of
# the text itself.
test: configured
	@scripts/configure "$(SANITIZED)" -Db_sanitize=address,undefined -Db_lundef=false -Dexamples=enabled -Dtests=enabled
	@scripts/test "$(BUILD)" "$(SANITIZED)"

check: configured
	@$(NINJA_QUIET) "$(BUILD)"
	@scripts/check "$(BUILD)"

bench: configured
	@$(NINJA_QUIET) "$(BUILD)"
	@bench/run "$(BUILD)"

bench-peers:
	@bench/peers

soak: configured
	@$(NINJA_QUIET) "$(BUILD)"
	@tests/soak "$(BUILD)"

# `make demo` and `make test` on a bare Debian 12, as root and as a user, in a folder that is gone afterwards.
fresh:
	@scripts/fresh

# A Slurm of six nodes on this machine, to try `trainyard` on (scripts/slurm says what it has).
slurm-up:
	@scripts/setup test
	@scripts/slurm up

slurm-down:
	@scripts/slurm down

install:
	@scripts/setup demo
	@scripts/install "$(BUILD)" "$(PREFIX)" "$(DESTDIR)"

uninstall:
	@scripts/uninstall "$(DESTDIR)$(PREFIX)"

clean:
	@rm -rf "$(BUILD)" "$(SANITIZED)"
