# build  builds the command into ./bin
# test   installs what tests need (on Debian, as root), lints, builds for every system, and runs all tests with the race
#        detector; on Linux a test that lacks a tool fails there instead of being skipped
# lint   runs the linters, built from source at a pinned version
# bench  prints the benchmarks that docs/benchmarks.md quotes
# fuzz   runs each fuzz target for FUZZTIME

GO            ?= go
FUZZTIME      ?= 20s
LINT_VERSION  := v2.15.0
CACHE         := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(if $(HOME),$(HOME)/.cache,/tmp))/sandboxagent-build
LINT          := $(CACHE)/golangci-lint-$(LINT_VERSION)
VERSION       := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Programs that tests run, and the Debian packages that have them.
NEEDS         := git gcc bash setsid
PACKAGES      := git gcc libc6-dev bash util-linux

ifeq ($(shell uname -s),Linux)
export SANDBOXAGENT_REQUIRE ?= envtest,local
endif

.PHONY: build test deps unit cross lint bench fuzz

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/...

test: deps lint cross unit

deps:
	@for need in $(NEEDS); do command -v $$need >/dev/null || missing="$$missing $$need"; done; \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && apt-get install -y -qq --no-install-recommends $(PACKAGES); \
		else \
			echo "tests that need$$missing will be skipped or fail: install them"; \
		fi; \
	fi

unit:
	$(GO) test -race -timeout 20m ./...

cross:
	@for os in linux darwin windows; do \
		echo "go vet for $$os" && CGO_ENABLED=0 GOOS=$$os $(GO) build ./... && CGO_ENABLED=0 GOOS=$$os $(GO) vet ./... || exit 1; \
	done

lint: $(LINT)
	$(LINT) run ./...
	$(LINT) fmt --diff

$(LINT):
	@mkdir -p $(CACHE)
	GOBIN=$(CACHE)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv $(CACHE)/bin/golangci-lint $@

bench:
	$(GO) test -run '^$$' -bench '^Benchmark(Version|FirstRequest|Exec)$$' -benchtime 100x ./integration
	$(GO) test -run '^$$' -bench '^BenchmarkTurn$$' -benchtime 20x ./integration
	$(GO) test -run '^$$' -bench '^Benchmark(GiB|IdleSessions)$$' -benchtime 5x ./integration

fuzz:
	@$(GO) list ./... | while read -r pkg; do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$target" && $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done
