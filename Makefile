# The two commands to begin with are `make demo` and `make test`; each installs what is missing first.
MESON := $(firstword $(wildcard /usr/bin/meson) meson)
NINJA := $(firstword $(wildcard /usr/bin/ninja) ninja)
PREFIX ?= /usr/local
BUILD := build
SANITIZED := build-sanitized

.PHONY: all setup demo test check bench bench-peers soak install clean

all: $(BUILD)/build.ninja
	@$(NINJA) -C $(BUILD) --quiet

setup:
	@scripts/setup

$(BUILD)/build.ninja: | setup
	@$(MESON) setup $(BUILD) >/dev/null

$(SANITIZED)/build.ninja: | setup
	@$(MESON) setup $(SANITIZED) -Db_sanitize=address,undefined -Db_lundef=false >/dev/null

demo: setup all
	@scripts/demo $(BUILD)

# All tests, then all of them again under AddressSanitizer and UndefinedBehaviorSanitizer, then the checks of the text itself.
test: setup all $(SANITIZED)/build.ninja
	@scripts/test $(BUILD) $(SANITIZED)

check: setup all
	@scripts/check $(BUILD)

bench: setup all
	@bench/run $(BUILD)

bench-peers:
	@bench/peers

soak: setup all
	@tests/soak $(BUILD)

# The library finds its modules, and pkg-config its files, beside themselves: what was built can be put anywhere.
install: all
	@rm -rf $(BUILD)/stage
	@DESTDIR=$(abspath $(BUILD))/stage $(MESON) install -C $(BUILD) --no-rebuild --quiet
	@mkdir -p $(PREFIX)
	@cp -a $(BUILD)/stage/usr/local/. $(PREFIX)/
	@rm -rf $(BUILD)/stage

clean:
	@rm -rf $(BUILD) $(SANITIZED)
