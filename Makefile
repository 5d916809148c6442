# Tenon. `make` builds, `make demo` runs the main job, `make test` runs the tests; the last two install what is missing.
# BUILD=dir keeps several builds apart (gcc, clang, sanitizers); kernels for GPUs are compiled where nvcc and a GPU are found (CUDA=1: where
# nvcc is, CUDA=0: never). A folder remembers its options in BUILD/options: other options compile everything in it anew.
# `make help` lists the rest.
BUILD   ?= build
CC      := $(if $(filter default undefined,$(origin CC)),gcc,$(CC))
OPT     ?= -O3
TARGET  := $(shell $(CC) -dumpmachine)
VERSION := $(shell cat VERSION 2>/dev/null || echo 0.0.0)

# -fno-math-errno and -fno-trapping-math keep NaN semantics; flags that assume finite numbers are never used.
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wundef -Wvla -Wmissing-prototypes $(if $(WERROR),-Werror) \
           $(if $(findstring clang,$(CC)),-Wno-pass-failed)
STRICT  := -Wconversion -Wno-sign-conversion

# Libraries. Targets that compile stop here when one is missing; the others install it (deps, demo, test) or need none.
PKGS      := yaml-0.1 jansson libxxhash zlib libzstd libpcre2-8 sqlite3
NO_BUILD  := clean deps demo test test-long test-cuda format lint help
GOALS     := $(filter-out $(NO_BUILD),$(or $(MAKECMDGOALS),all))
ifneq ($(GOALS),)
NEEDS     := build $(if $(filter %unit,$(GOALS)),unit)
DEPS_OK   := $(shell scripts/install-deps --check $(NEEDS) >&2 && echo yes)
ifneq ($(DEPS_OK),yes)
$(error packages are missing: run `make deps`)
endif
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS))
PKG_LIBS   := $(shell pkg-config --libs $(PKGS))
TEST_LIBS  := $(if $(filter unit,$(NEEDS)),$(shell pkg-config --libs cmocka))
endif

# CUDA: kernels (NAME_cuda.cu) and src/backend/cuda, where nvcc is found. The runtime is linked in; the driver and cuBLASLt
# are looked for when a GPU is asked for, so that the program runs where they are not. CUDA_ARCHS: what GPUs it is for.
CUDA       ?= $(if $(NVCC),$(if $(wildcard /dev/nvidia[0-9]* /dev/dxg),1,0),0)
NVCC       := $(shell PATH="$$PATH:/usr/local/cuda/bin" command -v nvcc)
CUDA_ARCHS ?= 90 80 120
CUDA_DIR   :=
ifeq ($(CUDA),1)
CUDA_DIR   := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_FLAGS := -DTN_HAVE_CUDA -isystem $(CUDA_DIR)/include
CUDA_LIBS  := -L$(CUDA_DIR)/lib64 -lcudart_static -lrt
NVCC_FLAGS := -O3 -std=c++17 --fmad=true -Xcompiler -fPIC,-Wall,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics -Iinclude -I$(BUILD)/include -Isrc -DTN_HAVE_CUDA -t 0 \
              -Xcudafe --diag_suppress=177 $(NVCC_EXTRA)
# Files named NAME_hopper_cuda.cu use instructions that only sm_90a has, which runs on what sm_90 does.
NVCC_ARCHS  = $(foreach a,$(if $(filter %_hopper_cuda.cu,$<),$(CUDA_ARCHS:90=90a),$(CUDA_ARCHS)),-gencode arch=compute_$(a),code=sm_$(a))
endif

CFLAGS  ?= $(OPT) -g
ALL_CFLAGS = -std=gnu11 $(CFLAGS) -fno-math-errno -fno-trapping-math -ffp-contract=fast -fPIC \
             $(WARN) -Iinclude -I$(BUILD)/include -Isrc -Itests -DTN_VERSION='"$(VERSION)"' $(PKG_CFLAGS) $(CUDA_FLAGS) $(SAN)
LDLIBS  := $(PKG_LIBS) $(CUDA_LIBS) -lm -lpthread -ldl

# What objects depend on, so that a folder never mixes two ways of compiling. Tests read the line of libraries (tests/interpose, tests/perf).
define OPTIONS
compiler $(CC) $(filter-out -Werror,$(ALL_CFLAGS))
cuda $(if $(CUDA_DIR),$(NVCC) $(NVCC_FLAGS) $(CUDA_ARCHS),none)
libs $(LDLIBS)
endef

TEMPLATE := $(sort $(wildcard src/cli/template/*))
SRC     := $(filter-out $(TEMPLATE) $(if $(CUDA_DIR),,src/backend/cuda/%),$(sort $(wildcard src/*/*.c src/*/*/*.c src/*/*/*/*.c)))
CUDASRC := $(if $(CUDA_DIR),$(sort $(wildcard src/*/*/*.cu)))
TESTSRC := $(filter %_test.c,$(SRC)) $(sort $(wildcard tests/unit/*.c tests/families/*.c))
LIBSRC  := $(filter-out %_test.c src/cli/%,$(SRC))
CLISRC  := $(filter-out %_test.c,$(filter src/cli/%,$(SRC)))
obj      = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
# x86-64 compiles the files that say TN_LEVELED two more times (backend/cpu/level.h); level.c asks for what is named here.
LEVELED := $(if $(filter x86_64%,$(TARGET)),$(shell grep -lsE '^TN_LEVELED' $(LIBSRC)))
LEVEL3  := -DTN_LEVEL=3 -mavx2 -mfma -mf16c
LEVEL4  := -DTN_LEVEL=4 -mavx2 -mfma -mf16c -mavx512f -mavx512vl -mavx512dq -mavx512bw -mprefer-vector-width=512
LIBOBJ  := $(call obj,$(LIBSRC) $(LEVELED:.c=.v3.c) $(LEVELED:.c=.v4.c)) $(CUDASRC:%.cu=$(BUILD)/obj/%.cu.o)
OPS     := $(shell sed -n 's/^TN_OP(\([a-z0-9_]*\)).*/\1/p' src/ops/ops.def 2>/dev/null)
GEN     := $(BUILD)/include/tenon/ops.h $(BUILD)/include/tenon_tests.def $(BUILD)/include/tenon_template.def

.PHONY: FORCE all unit deps demo demo-run test test-long test-cuda lint install uninstall clean format help
all: $(if $(CLISRC),$(BUILD)/tenon) $(BUILD)/libtenon.so $(BUILD)/libtenon.a

$(BUILD)/libtenon.a: $(LIBOBJ)
	@rm -f $@; ar rcs $@ $^
$(BUILD)/libtenon.so: $(LIBOBJ)
	$(CC) -shared -Wl,-soname,libtenon.so.0 -Wl,--version-script=scripts/exports.map $(SAN) -o $@ $^ $(LDLIBS)
# The command exports the library's symbols, so that a user's model.so finds them in it.
$(BUILD)/tenon: $(call obj,$(CLISRC)) $(BUILD)/libtenon.a
	$(CC) $(SAN) -rdynamic -o $@ $(call obj,$(CLISRC)) -Wl,--whole-archive $(BUILD)/libtenon.a -Wl,--no-whole-archive $(LDLIBS)
UNITOBJ := $(call obj,$(TESTSRC) $(filter-out src/cli/main.c,$(CLISRC)))
$(BUILD)/unit: $(UNITOBJ) $(BUILD)/libtenon.a
	$(CC) $(SAN) -rdynamic -o $@ $(UNITOBJ) -Wl,--whole-archive $(BUILD)/libtenon.a -Wl,--no-whole-archive $(LDLIBS) $(TEST_LIBS)

# The calls of all ops as one header for authors of models; the list of test files for the unit driver.
$(BUILD)/include/tenon/ops.h: src/ops/ops.def $(foreach o,$(OPS),src/ops/$(o)/$(o).h)
	@mkdir -p $(@D); { echo '/* Made by the Makefile from src/ops/NAME/NAME.h in the order of ops.def. */'; \
	  $(foreach o,$(OPS),cat src/ops/$(o)/$(o).h;) } > $@.tmp && mv $@.tmp $@
# Looked at in every run, so that a test file that went away is noticed; written only when it changed.
$(BUILD)/include/tenon_tests.def: FORCE
	@mkdir -p $(@D); for f in $(filter %_test.c,$(TESTSRC)); do echo "TN_TESTS($$(basename $$f _test.c))"; done > $@.tmp; \
	  if cmp -s $@.tmp $@; then rm $@.tmp; else mv $@.tmp $@; fi
FORCE:
$(BUILD)/options: FORCE
	@$(shell mkdir -p $(@D))$(file >$@.tmp,$(OPTIONS))if cmp -s $@.tmp $@; then rm $@.tmp; else mv $@.tmp $@; fi
# What `tenon new` writes: each file of the template as TN_TEMPLATE("its name", "its text").
$(BUILD)/include/tenon_template.def: $(TEMPLATE) Makefile
	@mkdir -p $(@D); for f in $(TEMPLATE); do echo "TN_TEMPLATE(\"$${f##*/}\","; \
	  sed 's/[\\"]/\\&/g; s/^/    "/; s/$$/\\n"/' $$f; echo ')'; done > $@.tmp && mv $@.tmp $@

STRICT_DIRS := base io data token tasks lab serve
define COMPILE
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(if $(filter $(STRICT_DIRS:%=src/%/%),$<),$(STRICT)) $(FILE_CFLAGS) -MMD -MP -c -o $@ $<
endef
$(call obj,$(LEVELED)): FILE_CFLAGS += -DTN_LEVELS
$(BUILD)/obj/%.o: %.c Makefile $(BUILD)/options | $(GEN)
	$(COMPILE)
$(BUILD)/obj/%.cu.o: %.cu Makefile $(BUILD)/options | $(GEN)
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) $(NVCC_ARCHS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
$(BUILD)/obj/%.v3.o: %.c Makefile $(BUILD)/options | $(GEN)
	$(COMPILE) $(LEVEL3)
$(BUILD)/obj/%.v4.o: %.c Makefile $(BUILD)/options | $(GEN)
	$(COMPILE) $(LEVEL4)
-include $(shell [ -d $(BUILD)/obj ] && find $(BUILD)/obj -name '*.d')

# Fresh machines: install first, then start make anew, so that it asks pkg-config again.
deps:
	@scripts/install-deps build test
demo:
	@scripts/install-deps build demo
	@+$(MAKE) --no-print-directory demo-run
# A TEN and a transformer of equal parameters on the same text, step for step, each at the best of four rates, then both at contexts
# up to 32,768. Sized for a minute of training and a minute of contexts on two quiet cores; the transformer's one step at the last
# costs most.
DEMO := dim=64 layers=3 heads=2 train.context=128 train.batch=8 train.steps=300 train.warmup=30 --lr=1e-3,2e-3,4e-3,8e-3 \
        train.eval_every=100 train.eval_batches=16 --parameters=first --sample=200 --contexts=1024..32768
demo-run: all $(BUILD)/demo/text.txt
	@rm -rf $(BUILD)/demo/race
	$(BUILD)/tenon race ten gpt data=$(BUILD)/demo/text.txt $(DEMO) --svg=$(BUILD)/demo/curves.svg run=$(BUILD)/demo/race
	@echo "(tenon is $(BUILD)/tenon; the curves are in $(BUILD)/demo/curves.svg)"
$(BUILD)/demo/text.txt:
	@scripts/demo-text $@

# Tests: run-tests says what they are; test-long runs tests/long/*.sh.
unit: $(BUILD)/unit
	$(BUILD)/unit
test:
	@scripts/install-deps build test python
	@BUILD=$(BUILD) CC='$(CC)' scripts/run-tests
test-long:
	@scripts/install-deps build test long
	@BUILD=$(BUILD) CC='$(CC)' scripts/run-tests --long
# By hand, on a machine with a GPU.
test-cuda:
	@+$(MAKE) --no-print-directory CUDA=1 $(BUILD)/tenon $(BUILD)/unit $(BUILD)/libtenon.so
	@for t in run models api sanitize; do BUILD=$(BUILD) tests/cuda/$$t.sh || exit 1; done
lint:
	@scripts/check-layers && scripts/check-size && scripts/check-words && scripts/check-format

# Installs below DESTDIR/PREFIX. The version in the library's file name is ours, the .so.0 in its links is the ABI's.
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
HEADERS  = $(wildcard include/tenon/*.h) $(BUILD)/include/tenon/ops.h
COMPLETE = $(DESTDIR)$(PREFIX)/share/bash-completion/completions/tenon
install: all $(GEN)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include/tenon
	install -m 644 $(HEADERS) $(DESTDIR)$(PREFIX)/include/tenon
	install -m 644 $(BUILD)/libtenon.a $(DESTDIR)$(LIBDIR)
	install -m 755 $(BUILD)/libtenon.so $(DESTDIR)$(LIBDIR)/libtenon.so.$(VERSION)
	ln -sf libtenon.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libtenon.so.0
	ln -sf libtenon.so.0 $(DESTDIR)$(LIBDIR)/libtenon.so
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|; s|@PKGS@|$(PKGS)|' scripts/tenon.pc.in \
	  > $(DESTDIR)$(LIBDIR)/pkgconfig/tenon.pc
	$(if $(CLISRC),install -m 755 $(BUILD)/tenon $(DESTDIR)$(PREFIX)/bin)
	@if [ -x $(BUILD)/tenon ] && $(BUILD)/tenon complete bash > $(BUILD)/completion.bash 2>/dev/null; then \
	  echo "install $(COMPLETE)"; install -D -m 644 $(BUILD)/completion.bash $(COMPLETE); fi
uninstall:
	rm -rf $(DESTDIR)$(PREFIX)/include/tenon
	rm -f $(DESTDIR)$(PREFIX)/bin/tenon $(DESTDIR)$(LIBDIR)/libtenon.* $(DESTDIR)$(LIBDIR)/pkgconfig/tenon.pc $(COMPLETE)

clean:
	rm -rf $(BUILD)
format:
	git ls-files '*.c' '*.h' '*.cu' '*.cuh' | xargs -P 4 -n 20 $$(command -v clang-format-14 || echo clang-format) -i
help:
	@printf '%s\n' 'make             build/tenon, build/libtenon.so and .a' 'make demo        install what is missing, train on real text' \
	  'make test        install what is missing, all tests of the short tier' 'make test-long   tests/long/*.sh' 'make test-cuda   every op on a GPU' \
	  'make unit        the unit tests (build/unit NAME runs some)' 'make lint        include order, file sizes, words' \
	  'make install     into DESTDIR/PREFIX (/usr/local)' 'make deps        what build and tests need, by apt-get' \
	  'make format      clang-format over all C files' 'make clean       remove build/'
