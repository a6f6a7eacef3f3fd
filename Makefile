# build  builds the commands into ./bin, first the helpers for the platforms in HELPERS, which the commands embed
# test   installs what tests need (on Debian, as root), builds, lints, builds for every system, and runs every contract and scenario
#        once, with a Docker daemon of their own; on Linux a test that lacks a tool fails instead of being skipped
# test-full  the same with the race detector, all combinations, long faults, the soak and the fuzz corpora
#        Both print each skipped test with its reason, and fail if the tests leave files, processes or mounts.
# lint   runs the linters, built from source at a pinned version
# bench  prints the benchmarks that docs/benchmarks.md quotes
# fuzz   runs each fuzz target for FUZZTIME

GO            ?= go
FUZZTIME      ?= 20s
LINT_VERSION  := v2.15.0
CACHE         := $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(if $(HOME),$(HOME)/.cache,/tmp))/sandboxagent-build
# The generator of manual pages, which nothing here uses, costs each start a millisecond.
TAGS          := urfave_cli_no_docs
# platforms of the helpers that the commands embed
HELPERS       ?= linux/amd64 linux/arm64
HELPER_DIR    := env/internal/helper/bin
SUM_VERSION   := v1.13.0
GOTESTSUM     := $(CACHE)/gotestsum-$(SUM_VERSION)
# prints a line for each package, the failures, and the skipped tests with their reasons; "make cross" runs go vet
SUM           := $(GOTESTSUM) --format pkgname-and-test-fails -- -vet=off
RACE          := ./env/internal/wire/... ./env/remote/... ./env/sandboxd ./runtime/agent ./runtime/event ./runtime/batch
LINT          := $(CACHE)/golangci-lint-$(LINT_VERSION)
VERSION       := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT        := $(shell git rev-parse HEAD 2>/dev/null)

# Programs that tests run, and the Debian packages that have them.
NEEDS         := git rg gcc bash setsid dockerd ip iptables busybox debootstrap nsenter tar ssh sshd dropbear bwrap /usr/lib/cni/bridge
PACKAGES      := git ripgrep gcc libc6-dev bash util-linux docker.io iptables iproute2 busybox-static debootstrap debian-archive-keyring tar openssh-client openssh-server dropbear-bin bubblewrap containernetworking-plugins

ifeq ($(shell uname -s),Linux)
export SANDBOXAGENT_REQUIRE ?= envtest,local,docker,ssh,sandbox
endif

.PHONY: build test test-full deps short full withdaemons cross lint bench fuzz

# The same source gives the same helpers, byte for byte: they contain nothing of the checkout or the machine, and helpers of
# earlier builds are removed first. Cryptography comes with net/http and is hardly used: compiling it for size saves 250 KB.
build:
	@rm -f $(HELPER_DIR)/sandboxd-* && mkdir -p bin
	@for platform in $(HELPERS); do \
		os=$${platform%/*} arch=$${platform#*/} && \
		echo "building the helper for $$platform" && \
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch GOAMD64=v1 GOARM64=v8.0 $(GO) build -trimpath -buildvcs=false \
			-gcflags='crypto/...=-l' -gcflags='vendor/...=-l' -gcflags='encoding/asn1=-l' -gcflags='math/big=-l' -gcflags='mime/...=-l' \
			-gcflags='net/url=-l' -gcflags='net/textproto=-l' \
			-ldflags '-s -w -buildid= -funcalign=16' -o bin/sandboxd-$$os-$$arch ./cmd/sandboxd || exit 1; \
	done
	@for platform in $(HELPERS); do \
		name=sandboxd-$${platform%/*}-$${platform#*/} && \
		digest=$$({ sha256sum || shasum -a 256; } <bin/$$name 2>/dev/null | cut -d ' ' -f 1) && test -n "$$digest" && \
		gzip -9n <bin/$$name >$(HELPER_DIR)/$$name-$$digest.gz || exit 1; \
	done
	CGO_ENABLED=0 $(GO) build -tags $(TAGS) -trimpath -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o bin/ ./cmd/...

test: deps build lint cross short

test-full: deps build lint cross full

deps:
	@for need in $(NEEDS); do command -v $$need >/dev/null || missing="$$missing $$need"; done; \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && apt-get install -y -qq --no-install-recommends $(PACKAGES); \
		else \
			echo "tests that need$$missing will be skipped or fail: install them"; \
		fi; \
	fi
	@command -v npm >/dev/null || $(MAKE) -s install WHAT=npm
	@python3 -c 'import venv, ensurepip' 2>/dev/null || $(MAKE) -s install WHAT=python3-venv

# Apart from PACKAGES: Debian's npm and Python may conflict with others.
.PHONY: install
install:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends $(WHAT); \
	else \
		echo "tests that need $(WHAT) will be skipped or fail: install it"; \
	fi

# withdaemons starts a Docker daemon and a Kubernetes cluster for a command, fails if the command leaves a file, a process or a mount, and, unlike
# "go run", exits with its code.
WITH          := $(CACHE)/withdaemons --images

# Packages with their own concurrency run with the race detector. Three packages run beside each other, for most of their time
# is waiting; the one that takes the longest starts first. A slow machine needs more than the usual ten minutes for one.
short: $(GOTESTSUM) withdaemons
	$(WITH) --kube=10m -- sh -ec '$(SUM) -short -count=1 -race -timeout 30m $(RACE); \
		$(SUM) -short -count=1 -p 3 -timeout 60m ./integration $$($(GO) list ./... | grep -vxF "$$($(GO) list $(RACE))")'

# Under the race detector the soak, batches and their simulation have a tenth of their size, fewer helpers, sandboxes and pods are opened,
# large calls are smaller, few searches are compared with ripgrep, and memory has no bound: these tests run again without it.
full: $(GOTESTSUM) withdaemons
	SANDBOXAGENT_REQUIRE="$${SANDBOXAGENT_REQUIRE:+$$SANDBOXAGENT_REQUIRE,k8s}" $(WITH) --kube=2h -- sh -ec 'GORACE=atexit_sleep_ms=0 $(SUM) -race -count=1 -p 2 -timeout 120m ./integration ./...; \
		$(SUM) -count=1 -timeout 60m -run "^Test(Fault30|Faults\$$|GrepParity\$$|RipgrepMakesNoDifference\$$|SupervisedCycles\$$|InterruptedStarts\$$|Many\$$|Memory\$$|Simulation\$$|Batch(|On.*|OverSSH|Memory)\$$|Submit\$$|Rollback\$$)" \
			./integration ./env/k8s ./env/k8s/jobs ./env/local ./env/search'

withdaemons:
	$(GO) build -o $(CACHE)/withdaemons ./integration/withdaemons

cross:
	@for os in linux darwin windows; do \
		echo "go build and go vet for $$os" && CGO_ENABLED=0 GOOS=$$os $(GO) build ./... && CGO_ENABLED=0 GOOS=$$os $(GO) vet ./... || exit 1; \
	done

$(GOTESTSUM):
	@mkdir -p $(CACHE)
	GOBIN=$(CACHE)/bin $(GO) install gotest.tools/gotestsum@$(SUM_VERSION)
	mv $(CACHE)/bin/gotestsum $@

lint: $(LINT)
	$(LINT) run --allow-parallel-runners ./...
	$(LINT) fmt --diff

$(LINT):
	@mkdir -p $(CACHE)
	GOBIN=$(CACHE)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv $(CACHE)/bin/golangci-lint $@

bench: withdaemons
	$(GO) test -run '^$$' -bench '^Benchmark(Version|FirstRequest|Exec|Supervision)$$' -benchtime 100x ./integration
	$(GO) test -run '^$$' -bench '^BenchmarkTurn$$' -benchtime 20x ./integration
	$(GO) test -run '^$$' -bench '^BenchmarkPrompt$$' -benchtime 1x ./integration
	$(GO) test -run '^$$' -bench '^Benchmark(GiB|IdleSessions)$$' -benchtime 5x ./integration
	$(GO) test -run '^$$' -bench '^BenchmarkUnchanged$$' -benchtime 30x ./integration
	$(GO) test -run '^$$' -bench '^BenchmarkRoundTrips$$' -benchtime 200x ./env/internal/wire/client
	$(GO) test -run '^$$' -bench '^BenchmarkBulk$$' -benchtime 5x ./env/internal/wire/client
	$(WITH) -- $(GO) test -run '^$$' -bench . -benchtime 20x ./env/docker
	$(GO) test -run '^$$' -bench . -benchtime 50x ./env/ssh
	$(WITH) --kube=30m -- $(GO) test -run '^$$' -bench . -benchtime 10x ./env/k8s
	$(GO) test -run '^$$' -bench '^Benchmark(Decide|Writer)$$' ./policy ./policy/redact
	$(GO) test -run '^$$' -bench '^BenchmarkRecitation$$' ./runtime/agent
	$(GO) test -run '^$$' -bench . -benchtime 200x ./runtime/session
	$(GO) test -run '^$$' -bench Resume -benchtime 20x ./runtime/agent
	$(GO) test -run '^$$' -bench '^BenchmarkConfine$$' -benchtime 300x ./env/local
	$(WITH) --kube=30m -- $(GO) test -run '^$$' -bench '^BenchmarkBatch$$' -benchtime 3x ./integration
	$(GO) test -run '^$$' -bench '^BenchmarkGrep$$' -benchtime 7x ./env/search

fuzz:
	@$(GO) list ./... | while read -r pkg; do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$target" && $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done
