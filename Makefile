# darknet-fsdp. `make help` lists the targets. Every combination of switches builds in its own folder.

.DEFAULT_GOAL := all
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

ASAN ?= 0
TSAN ?= 0
WERROR ?= 0
V ?= 0
NP ?= 1 2 3 4
FAR_SEEDS ?= 1 2 3
PREFIX ?= /usr/local

ifneq ($(filter-out 0 1,$(ASAN) $(TSAN) $(WERROR) $(V)),)
$(error switches are 0 or 1: ASAN=$(ASAN) TSAN=$(TSAN) WERROR=$(WERROR) V=$(V))
endif

CONFIG := release
ifeq ($(ASAN),1)
CONFIG := asan
endif
ifeq ($(TSAN),1)
CONFIG := tsan
endif
ifeq ($(WERROR),1)
CONFIG := $(CONFIG)-werror
endif
# ONEDNN=DIR: the oneDNN (2 or 3) of DIR/include and DIR/lib instead of Debian's, in a build folder of its own
ONEDNN ?=
ifneq ($(ONEDNN),)
CONFIG := $(CONFIG)-onednn
endif
B ?= build/$(CONFIG)
Q := $(if $(filter 1,$(V)),,@)

CC := gcc
# A plugin runs only in a program that was built from the same headers, those that plugin.h includes: their hash, in a header of its own.
HEADERS_H := src/plugin/headers.h
HEADERS_HASH := $(shell $(CC) -MM -MG -Isrc src/plugin/plugin.h | tr -s ' \\\n' '\n' | grep '^src/.*\.h$$' | grep -vx $(HEADERS_H) | \
	LC_ALL=C sort -u | xargs sha256sum | sha256sum | cut -c1-16)
ifneq ($(shell grep -so '"$(HEADERS_HASH)"' $(HEADERS_H)),"$(HEADERS_HASH)")
$(shell printf '/* Made by make: a hash of the headers that plugin.h includes. */\n#define DN_HEADERS "%s"\n' $(HEADERS_HASH) > $(HEADERS_H).tmp && \
	mv $(HEADERS_H).tmp $(HEADERS_H))
endif
WARN := -Wall -Wextra -Wshadow -Wvla -Wpointer-arith -Wmissing-prototypes -Wno-unused-parameter $(if $(filter 1,$(WERROR)),-Werror)
OPT := -O2 -ftree-vectorize -g -fno-omit-frame-pointer
CFLAGS_ALL := -std=gnu11 $(WARN) $(OPT) -fPIC -fvisibility=hidden -fopenmp -ffp-contract=off -fno-trapping-math -march=x86-64-v2 \
	-Isrc
ifeq ($(ASAN),1)
CFLAGS_ALL += -fsanitize=address,undefined -fno-sanitize-recover=undefined
LDFLAGS_ALL += -fsanitize=address,undefined
TEST_LDFLAGS := -Wl,-u,plugin_keep_loaded     # src/plugin/keep.c
endif
ifeq ($(TSAN),1)
CFLAGS_ALL += -fsanitize=thread
LDFLAGS_ALL += -fsanitize=thread
endif
ifneq ($(ONEDNN),)
CFLAGS_ALL += -I$(abspath $(ONEDNN))/include
LDFLAGS_ALL += -L$(abspath $(ONEDNN))/lib -Wl,-rpath,$(abspath $(ONEDNN))/lib
endif
LIBS := -ldnnl -lcjson -lxxhash -lz -lgomp -ldl -lpthread -lm

# A missing library is an error that names its Debian package, never a silent change.
need = $(if $(wildcard $(1)),,$(error $(1) is missing: install the Debian package $(2), or run scripts/setup.sh))
NO_LIBS := help clean format format-check uninstall
ifneq ($(if $(MAKECMDGOALS),$(filter-out $(NO_LIBS),$(MAKECMDGOALS)),all),)
ifeq ($(ONEDNN),)
$(call need,/usr/include/oneapi/dnnl/dnnl.h,libdnnl-dev)
else ifeq ($(and $(wildcard $(ONEDNN)/include/oneapi/dnnl/dnnl.h),$(wildcard $(ONEDNN)/lib/libdnnl.so)),)
$(error ONEDNN=$(ONEDNN): include/oneapi/dnnl/dnnl.h and lib/libdnnl.so are not both there)
endif
$(call need,/usr/include/cjson/cJSON.h,libcjson-dev)
$(call need,/usr/include/xxhash.h,libxxhash-dev)
$(call need,/usr/include/zlib.h,zlib1g-dev)
$(call need,/usr/include/stb/stb_image.h,libstb-dev)
$(if $(shell command -v mpicc),,$(error mpicc is missing: install the Debian package libopenmpi-dev, or run scripts/setup.sh))
endif

LIB_SRC := $(filter-out src/cli/main.c,$(wildcard src/*/*.c src/*/*/*.c))
LIB_OBJ := $(LIB_SRC:%.c=$(B)/obj/%.o)
LIB := $(B)/lib/libdarknet.a
PROG := $(B)/bin/darknet
PLUGINS := $(notdir $(patsubst %/,%,$(wildcard plugins/*/)))
PLUGIN_SO := $(PLUGINS:%=$(B)/plugins/%.so)

# plugins/NAME/plugin.mk may set NAME_CFLAGS and NAME_LIBS
-include $(wildcard plugins/*/plugin.mk)

.PHONY: all lib plugins tests test test-long test-far test-asan test-tsan check-all demo asan tsan tidy format format-check golden bench fuzz \
	install uninstall help clean
all: $(PROG) $(PLUGIN_SO) $(if $(filter $(B),build/release),darknet) ## program and plugins; ./darknet is a link to the program
lib: $(LIB) ## the library alone
plugins: $(PLUGIN_SO) ## the plugins alone

darknet: $(PROG)
	$(Q)ln -sfn $(PROG) $@

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	@$(if $(filter 1,$(V)),,echo "  CC    $<")
	$(Q)$(CC) $(CFLAGS_ALL) $(EXTRA_CFLAGS) -MMD -MP -c $< -o $@

$(LIB): $(LIB_OBJ)
	@mkdir -p $(@D)
	@$(if $(filter 1,$(V)),,echo "  AR    $@")
	$(Q)rm -f $@ && ar rcs $@ $^

# The whole library goes in: plugins use what DN_EXPORT marks, called by the program or not.
$(PROG): $(B)/obj/src/cli/main.o $(LIB)
	@mkdir -p $(@D)
	@$(if $(filter 1,$(V)),,echo "  LD    $@")
	$(Q)$(CC) $(LDFLAGS_ALL) -rdynamic -o $@ $< -Wl,--whole-archive $(LIB) -Wl,--no-whole-archive $(LIBS)

define plugin_rules
$(1)_OBJ := $$(patsubst %.c,$(B)/obj/%.o,$$(wildcard plugins/$(1)/*.c plugins/$(1)/*/*.c))
$$($(1)_OBJ): EXTRA_CFLAGS += $$($(1)_CFLAGS)
$(B)/plugins/$(1).so: $$($(1)_OBJ)
	@mkdir -p $$(@D)
	@$$(if $$(filter 1,$$(V)),,echo "  LD    $$@")
	$$(Q)$$(CC) $$(LDFLAGS_ALL) -shared -o $$@ $$^ $$($(1)_LIBS)
-include $$($(1)_OBJ:.o=.d)
endef
$(foreach p,$(PLUGINS),$(eval $(call plugin_rules,$(p))))

# Tests: tests/test_ROOM.c links the library; tests/NAME/test_X.c links the plugin NAME's objects as well.
TEST_SRC := $(wildcard tests/test_*.c)
TEST_BIN := $(TEST_SRC:tests/%.c=$(B)/tests/%)
TEST_LIBS := -lcunit
PTEST_SRC := $(foreach p,$(PLUGINS),$(wildcard tests/$(p)/test_*.c))
PTEST_BIN := $(PTEST_SRC:tests/%.c=$(B)/tests/%)
# tests/mpi/test_X.c: linked like the fsdp suites, run by scripts/run-mpi.sh at every number of ranks in NP
MTEST_SRC := $(wildcard tests/mpi/test_*.c)
MTEST_BIN := $(MTEST_SRC:tests/%.c=$(B)/tests/%)
# tests/far: a back end for tests. It is part of every test program and of the program in $(B)/far/bin, and does nothing there
# without DARKNET_TEST_BACKEND=far.
FAR_SRC := $(filter-out $(wildcard tests/far/test_*.c),$(wildcard tests/far/*.c))
FAR_OBJ := $(FAR_SRC:%.c=$(B)/obj/%.o)
FAR_PROG := $(B)/far/bin/darknet
FTEST_SRC := $(wildcard tests/far/test_*.c)
FTEST_BIN := $(FTEST_SRC:tests/%.c=$(B)/tests/%)

$(B)/tests/test_%: $(B)/obj/tests/test_%.o $(FAR_OBJ) $(LIB)
	@mkdir -p $(@D)
	@$(if $(filter 1,$(V)),,echo "  LD    $@")
	$(Q)$(CC) $(LDFLAGS_ALL) $(TEST_LDFLAGS) -o $@ $< $(FAR_OBJ) $(LIB) $(TEST_LIBS) $(LIBS)

$(B)/tests/far/test_%: $(B)/obj/tests/far/test_%.o $(FAR_OBJ) $(LIB)
	@mkdir -p $(@D)
	@$(if $(filter 1,$(V)),,echo "  LD    $@")
	$(Q)$(CC) $(LDFLAGS_ALL) $(TEST_LDFLAGS) -o $@ $< $(FAR_OBJ) $(LIB) $(TEST_LIBS) $(LIBS)

$(FAR_PROG): $(B)/obj/src/cli/main.o $(FAR_OBJ) $(LIB)
	@mkdir -p $(@D)
	@$(if $(filter 1,$(V)),,echo "  LD    $@")
	$(Q)$(CC) $(LDFLAGS_ALL) -rdynamic -o $@ $< $(FAR_OBJ) -Wl,--whole-archive $(LIB) -Wl,--no-whole-archive $(LIBS)
	$(Q)ln -sfn ../plugins $(B)/far/plugins

define plugin_test_rules
$(B)/tests/$(1)/test_%: EXTRA_CFLAGS += -Iplugins/$(1)
$(B)/tests/$(1)/test_%: $(B)/obj/tests/$(1)/test_%.o $(FAR_OBJ) $$($(1)_OBJ) $(LIB)
	@mkdir -p $$(@D)
	@$$(if $$(filter 1,$$(V)),,echo "  LD    $$@")
	$$(Q)$$(CC) $$(LDFLAGS_ALL) $(TEST_LDFLAGS) -o $$@ $$< $(FAR_OBJ) $$($(1)_OBJ) $(LIB) $(TEST_LIBS) $(LIBS) \
		$$($(1)_LIBS)
endef
$(foreach p,$(PLUGINS),$(eval $(call plugin_test_rules,$(p))))
$(B)/obj/tests/fsdp/%.o $(B)/obj/tests/mpi/%.o: EXTRA_CFLAGS += -Iplugins/fsdp $(fsdp_CFLAGS)

$(B)/tests/mpi/test_%: $(B)/obj/tests/mpi/test_%.o $(FAR_OBJ) $(fsdp_OBJ) $(LIB)
	@mkdir -p $(@D)
	@$(if $(filter 1,$(V)),,echo "  LD    $@")
	$(Q)$(CC) $(LDFLAGS_ALL) $(TEST_LDFLAGS) -o $@ $< $(FAR_OBJ) $(fsdp_OBJ) $(LIB) $(TEST_LIBS) $(LIBS) $(fsdp_LIBS)
.SECONDARY:

# What `make bench` measures with: built with the tests, so that it keeps up with what it calls.
BENCH_BIN := $(patsubst tests/bench/%.c,$(B)/tests/bench/%,$(wildcard tests/bench/*.c))
$(B)/obj/tests/bench/%.o: EXTRA_CFLAGS += -Iplugins/fsdp $(fsdp_CFLAGS)
$(B)/tests/bench/%: $(B)/obj/tests/bench/%.o $(fsdp_OBJ) $(LIB)
	@mkdir -p $(@D)
	@$(if $(filter 1,$(V)),,echo "  LD    $@")
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< $(fsdp_OBJ) $(LIB) $(LIBS) $(fsdp_LIBS)

tests: $(TEST_BIN) $(PTEST_BIN) $(MTEST_BIN) $(FTEST_BIN) $(FAR_PROG) $(BENCH_BIN) ## build the test programs without running them

# What the suites that T names need, by the rule of scripts/run-suites.sh: NAME, or NAME-RANKS, has one of the words in it.
names_it = $(strip $(foreach w,$(T),$(findstring $(w),$(1) $(NP:%=$(1)-%))))
needs_mpi/test_shm := $(FAR_PROG)
needs_mpi/test_bench := $(BENCH_BIN)
NEEDED = $(foreach b,$(TEST_BIN) $(PTEST_BIN) $(MTEST_BIN) $(FTEST_BIN),$(if $(call names_it,$(b:$(B)/tests/%=%)),$(b))) \
	$(foreach s,$(patsubst tests/%.sh,%,$(wildcard tests/*/test_*.sh)),$(if $(call names_it,$(s)),$(needs_$(s))))

test: all $(if $(T),$(NEEDED),tests) ## build and run all suites; T=word only those with a word in their name (T="one two"); NP="1 2 3 4" numbers of ranks
	$(Q)NP="$(NP)" scripts/run-suites.sh $(B) $(T)

test-far: all tests ## suites over tests/far, a device out of the host's reach; FAR_SEEDS="1 2 3" orders of its work, T=word, NP
	$(Q)NP="$(NP)" FAR_SEEDS="$(FAR_SEEDS)" scripts/test-far.sh $(B) $(T)

check-all: ## set-up, build and every test, as scripts/test.sh does
	$(Q)scripts/test.sh

demo: all ## train the digits on two ranks, consolidate, evaluate, compare memory with the plan
	$(Q)scripts/demo.sh

asan: ## build/asan: program and plugins with AddressSanitizer and UndefinedBehaviorSanitizer
	$(Q)$(MAKE) --no-print-directory ASAN=1 all

test-asan: ## all suites over build/asan
	$(Q)ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.supp:print_suppressions=0 \
		UBSAN_OPTIONS=print_stacktrace=1 $(MAKE) --no-print-directory ASAN=1 NP="$(if $(filter file,$(origin NP)),1 2,$(NP))" \
		T="$(T)" test

tsan: ## build/tsan: program and plugins with ThreadSanitizer
	$(Q)$(MAKE) --no-print-directory TSAN=1 all

MOMENTS ?= 30
SEEDS ?= 5
test-long: all tests ## ranks stopped and killed at MOMENTS=30 moments of each kind and number of ranks in NP; accuracy at 16 bits, SEEDS=5
	$(Q)MOMENTS="$(MOMENTS)" SEEDS="$(SEEDS)" UPDATES= LIMIT=7200 NP="$(NP)" scripts/run-suites.sh $(B) mpi/test_moments mpi/test_accuracy

test-tsan: ## the suites that need no launcher over build/tsan (OpenMP's own runtime is not instrumented: one thread)
	$(Q)OMP_NUM_THREADS=1 $(MAKE) --no-print-directory TSAN=1 NP= T="$(T)" test

# Fuzzing: a program a reader of files, with seeds that it makes itself. FUZZ_SECONDS each; what fails stays in build/fuzz.
FUZZ_SECONDS ?= 60
FUZZ_DIR := build/fuzz
FUZZ_BIN := $(patsubst tests/fuzz/fuzz_%.c,$(FUZZ_DIR)/fuzz_%,$(wildcard tests/fuzz/fuzz_*.c))
# The readers run over the reference backend: cpu is left out, fuzz_net.h fills the gap.
FUZZ_SRC := $(filter-out src/cli/% src/plugin/% src/backend/cpu/%,$(LIB_SRC))
FUZZ_OBJ := $(FUZZ_SRC:%.c=$(FUZZ_DIR)/obj/%.o)
FUZZ_FLAGS := -std=gnu11 -g -O1 -march=x86-64-v2 -ffp-contract=off -Isrc -Itests/fuzz \
	-fsanitize=address,undefined -fno-sanitize-recover=undefined
FUZZ_LIBS := -lcjson -lxxhash -lz -ldl -lpthread -lm
$(FUZZ_DIR)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(Q)clang $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -Wno-unknown-pragmas -MMD -MP -c $< -o $@
$(FUZZ_DIR)/libfuzzed.a: $(FUZZ_OBJ)
	$(Q)rm -f $@ && ar rcs $@ $^
$(FUZZ_DIR)/fuzz_%: tests/fuzz/fuzz_%.c $(FUZZ_DIR)/libfuzzed.a
	@mkdir -p $(@D)
	@echo "  FUZZ  $<"
	$(Q)clang $(FUZZ_FLAGS) -fsanitize=fuzzer -MMD -MP -MF $@.d -MT $@ $< $(FUZZ_DIR)/libfuzzed.a -o $@ $(FUZZ_LIBS)
-include $(FUZZ_OBJ:.o=.d) $(FUZZ_BIN:=.d)

fuzz: $(FUZZ_BIN) ## build the fuzzers with clang and let each run for FUZZ_SECONDS=60; T=word only those with word in their name
	$(Q)FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz.sh $(if $(T),$(foreach b,$(FUZZ_BIN),$(if $(findstring $(T),$(notdir $(b))),$(b))),$(FUZZ_BIN))

SRC_ALL := $(wildcard src/*/*.[ch] src/*/*/*.[ch] plugins/*/*.[ch] plugins/*/*/*.[ch] tests/*.[ch] tests/*/*.[ch])
TIDY_SRC := $(wildcard src/*/*.c src/*/*/*.c plugins/*/*.c plugins/*/*/*.c)
TIDY_FLAGS := -std=gnu11 -fopenmp -Isrc -Iplugins/fsdp $(fsdp_CFLAGS) -D_GNU_SOURCE
TIDY_BARE := src/base/status.c src/base/group.c        # define what scripts/tidy-models.h replaces

tidy: ## cppcheck, clang-tidy and the include rules; ends with an error on any finding
	$(Q)command -v cppcheck clang-tidy > /dev/null || { echo "tidy: run scripts/setup.sh --tidy" >&2; exit 1; }
	$(Q)scripts/check-includes.sh
	$(Q)cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
		--suppressions-list=.cppcheck -j $(shell nproc) -Isrc -Iplugins/fsdp $(TIDY_SRC)
	$(Q)clang-tidy --quiet $(TIDY_BARE) -- $(TIDY_FLAGS) 2> /dev/null
	$(Q)printf '%s\n' $(filter-out $(TIDY_BARE),$(TIDY_SRC)) | xargs -P $(shell nproc) -n 6 sh -c 'clang-tidy --quiet "$$@" -- \
		$(TIDY_FLAGS) -include scripts/tidy-models.h 2> /dev/null' sh
	@echo "tidy: clean"

format: ## let clang-format rewrite all sources
	$(Q)clang-format -i $(SRC_ALL)

format-check: ## which sources clang-format would rewrite
	$(Q)clang-format --dry-run -Werror $(SRC_ALL)

golden: all ## compare with Debian's darknet: fixtures, and live where it is installed; ALL=1 every stock cfg
	$(Q)B=$(abspath $(B)) DARKNET=$(abspath $(PROG)) scripts/golden.sh

bench: all $(BENCH_BIN) ## figures, one line each
	$(Q)scripts/bench.sh

MAN := $(B)/share/darknet.1
$(MAN): $(PROG) $(PLUGIN_SO)
	@mkdir -p $(@D)
	$(Q)$(PROG) help -man > $@.tmp && mv $@.tmp $@

LIBDIR := $(DESTDIR)$(PREFIX)/lib/darknet
install: all $(MAN) ## into PREFIX (default /usr/local), below DESTDIR if that is set
	$(Q)install -d $(LIBDIR)/bin $(LIBDIR)/plugins $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/darknet-fsdp/cfg \
		$(DESTDIR)$(PREFIX)/share/man/man1
	$(Q)install -m 755 $(PROG) $(LIBDIR)/bin/darknet
	$(Q)install -m 755 $(PLUGIN_SO) $(LIBDIR)/plugins
	$(Q)ln -sfn ../lib/darknet/bin/darknet $(DESTDIR)$(PREFIX)/bin/darknet
	$(Q)install -m 644 $(wildcard cfg/*.cfg) $(DESTDIR)$(PREFIX)/share/darknet-fsdp/cfg
	$(Q)install -m 644 $(MAN) $(DESTDIR)$(PREFIX)/share/man/man1/darknet.1
	@echo "installed: $(DESTDIR)$(PREFIX)/bin/darknet"

uninstall: ## remove what install put below PREFIX
	$(Q)rm -rf $(LIBDIR) $(DESTDIR)$(PREFIX)/share/darknet-fsdp
	$(Q)rm -f $(DESTDIR)$(PREFIX)/bin/darknet $(DESTDIR)$(PREFIX)/share/man/man1/darknet.1

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sort | sed 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/' | \
		awk -F'|' '{ printf "  %-14s %s\n", $$1, $$2 }'
	@echo
	@echo "Switches, 0 or 1: ASAN TSAN WERROR V. Others: B=folder T=suite NP=\"1 2\" PREFIX=/usr/local DESTDIR="

clean: ## remove build/ and the link
	$(Q)rm -rf build darknet $(HEADERS_H)

-include $(LIB_OBJ:.o=.d) $(B)/obj/src/cli/main.d $(TEST_SRC:tests/%.c=$(B)/obj/tests/%.d) $(PTEST_SRC:tests/%.c=$(B)/obj/tests/%.d) \
	$(MTEST_SRC:tests/%.c=$(B)/obj/tests/%.d) $(FTEST_SRC:tests/%.c=$(B)/obj/tests/%.d) $(FAR_OBJ:.o=.d)
