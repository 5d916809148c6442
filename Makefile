# Tenon. `make` builds, `make demo` runs the main job, `make test` runs the tests; the last two install what is missing.
# BUILD=dir keeps several builds apart (gcc, clang, sanitizers). Kernels for GPUs are compiled where nvcc and a GPU are found (CUDA=1:
# where nvcc is, CUDA=0: never). A folder remembers its options in BUILD/options: other options compile everything in it anew.
# V=1 shows commands; all cores work unless -j says otherwise. `make help` lists the rest.
BUILD   ?= build
CC      := $(if $(filter default undefined,$(origin CC)),gcc,$(CC))
OPT     ?= -O3
TARGET  := $(shell $(CC) -dumpmachine 2>/dev/null)
VERSION := $(shell cat VERSION 2>/dev/null || echo 0.0.0)

# -fno-math-errno and -fno-trapping-math keep NaN semantics; flags that assume finite numbers are never used.
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wundef -Wvla -Wmissing-prototypes $(if $(WERROR),-Werror) \
           $(if $(findstring clang,$(CC)),-Wno-pass-failed)
STRICT  := -Wconversion -Wno-sign-conversion

# Libraries. Targets that compile stop here when one is missing; the others install it (deps, demo, test) or need none.
PKGS      := yaml-0.1 jansson libxxhash zlib libzstd libpcre2-8 sqlite3
NO_BUILD  := clean deps demo demo-flow test test-long test-cuda format lint help
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

# CUDA: kernels (NAME_cuda.cu) and src/backend/cuda, in a library of their own that is loaded when a GPU is asked for, with NVIDIA's
# runtime in it. The driver and cuBLASLt are looked for then. CUDA_ARCHS: for which GPUs, by default the one that is here (else 90).
NVCC       := $(shell PATH="$$PATH:/usr/local/cuda/bin" command -v nvcc)
CUDA       ?= $(if $(NVCC),$(if $(wildcard /dev/nvidia[0-9]* /dev/dxg),1,0),0)
CUDA_DIR   :=
ifeq ($(CUDA),1)
ifeq ($(NVCC)$(filter $(NO_BUILD),$(MAKECMDGOALS)),)
$(error CUDA=1 needs nvcc (in PATH or /usr/local/cuda/bin): install the CUDA toolkit, or leave it out)
endif
CUDA_DIR   := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
ifndef CUDA_ARCHS
CUDA_ARCHS := $(or $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | grep -x '[0-9][0-9]*' | sort -u),90)
endif
NVCC_FLAGS := -std=c++17 --fmad=true -Xcompiler -O1,-fPIC,-Wall,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics \
              -Iinclude -I$(BUILD)/include -Isrc -Xcudafe --diag_suppress=177 $(NVCC_EXTRA)
# Files named NAME_hopper_cuda.cu use instructions that only sm_90a has, which runs on what sm_90 does; other GPUs never launch them.
NVCC_ARCHS  = $(foreach a,$(or $(and $(filter %_hopper_cuda.cu,$<),$(filter 90a,$(CUDA_ARCHS:90=90a))),$(CUDA_ARCHS)),-gencode arch=compute_$(a),code=sm_$(a))
endif

# Lines and functions for stack traces (-g1): variables (CFLAGS='-O1 -g') take a third more time to compile.
CFLAGS  ?= $(OPT) -g1
# Multiply-adds are fused. clang does so by expression (on): with fast its vectors and the rest of a loop may fuse different products, and
# a number's bits would depend on its place.
CONTRACT := -ffp-contract=$(if $(findstring clang,$(CC)),on,fast)
ALL_CFLAGS = -std=gnu11 $(CFLAGS) -fno-math-errno -fno-trapping-math $(CONTRACT) -fPIC \
             $(WARN) -Iinclude -I$(BUILD)/include -Isrc -Itests -DTN_VERSION='"$(VERSION)"' $(PKG_CFLAGS) $(SAN)
LDLIBS  := $(PKG_LIBS) -lm -lpthread -ldl
# Debug information is nine tenths of what is linked.
LDFLAGS += -Wl,--compress-debug-sections=zlib

TEMPLATE := $(sort $(wildcard src/cli/template/*))
SRC     := $(filter-out $(TEMPLATE) $(if $(CUDA_DIR),,src/backend/cuda/%),$(sort $(wildcard src/*/*.c src/*/*/*.c src/*/*/*/*.c)))
CUDASRC := $(if $(CUDA_DIR),$(sort $(wildcard src/*/*/*.cu)) $(filter-out %_test.c,$(filter src/backend/cuda/% %_cuda.c,$(SRC))))
TESTSRC := $(filter %_test.c,$(SRC)) $(sort $(wildcard tests/unit/*.c tests/families/*.c))
LIBSRC  := $(filter-out %_test.c src/cli/% src/backend/cuda/% %_cuda.c,$(SRC))
CLISRC  := $(filter-out %_test.c,$(filter src/cli/%,$(SRC)))
# TESTBUILD=FOLDER: another build folder, objects of which this one takes over.
TESTBUILD := $(BUILD)
# OWN="PATTERN ...": only these objects of the library and the command are compiled; the others are those of TESTBUILD.
OWN     := %
obj      = $(foreach f,$(1),$(if $(filter $(OWN),$f),$(BUILD),$(TESTBUILD))/obj/$(f:.c=.o))
# x86-64 compiles the files that say TN_LEVELED two more times (backend/cpu/level.h); level.c asks for what is named here.
LEVELED := $(if $(filter x86_64%,$(TARGET)),$(shell grep -lsE '^TN_LEVELED' $(LIBSRC)))
LEVEL3  := -DTN_LEVEL=3 -mavx2 -mfma -mf16c
LEVEL4  := -DTN_LEVEL=4 -mavx2 -mfma -mf16c -mavx512f -mavx512vl -mavx512dq -mavx512bw -mprefer-vector-width=512
LIBOBJ  := $(call obj,$(LIBSRC) $(LEVELED:.c=.v3.c) $(LEVELED:.c=.v4.c))
CUDAOBJ := $(patsubst %.cu,%.cu.o,$(call obj,$(CUDASRC)))
CUDALIB := $(if $(CUDASRC),$(BUILD)/libtenon_cuda.so)
OPS     := $(shell sed -n 's/^TN_OP(\([a-z0-9_]*\)).*/\1/p' src/ops/ops.def 2>/dev/null)
GEN     := $(addprefix $(BUILD)/include/,tenon/ops.h tenon_tests.def tenon_template.def tenon_flows_page.def tenon_cuda_abi.h)

# Files that are looked at in every run and written when their text has changed: what objects depend on, so that a folder never mixes two
# ways of compiling (tests read the line of libraries: tests/interpose, tests/perf); the tests that exist; and a name for this program's
# tables of functions, which the library for GPUs has to share.
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
define OPTIONS
compiler $(CC) $(filter-out -Werror,$(ALL_CFLAGS))
libs $(LDLIBS)
endef
OPTIONS_CUDA = $(NVCC) $(NVCC_FLAGS) $(CUDA_ARCHS)
TESTS    = $(foreach f,$(filter %_test.c,$(TESTSRC)),TN_TESTS($(notdir $(f:_test.c=))))
ABI_FROM = $(sort $(wildcard include/tenon/*.h $(foreach d,src/* src/*/* src/*/*/*,$(d)/*.h $(d)/*.def)))
define ABI
#define TN_CUDA_ABI "$(VERSION)-$(shell cat $(ABI_FROM) | cksum | cut -d' ' -f1)"
#define TN_LIBDIR "$(LIBDIR:$(PREFIX)/%=%)"
endef
keep     = $(shell mkdir -p $(dir $1))$(file >$1.tmp,$2)$(shell cmp -s $1.tmp $1 && rm $1.tmp || mv $1.tmp $1)
KEEP     = $(call keep,$(BUILD)/options,$(OPTIONS))$(call keep,$(BUILD)/include/tenon_tests.def,$(TESTS))$(call \
           keep,$(BUILD)/include/tenon_cuda_abi.h,$(ABI))$(if $(CUDALIB),$(call keep,$(BUILD)/options.cuda,$(OPTIONS_CUDA)))
ifneq ($(GOALS),)
$(if $(KEEP),)
endif

# All cores, unless the user said -j; not where something is to be removed first.
ifeq ($(MAKELEVEL)$(filter -j% --jobserver%,$(MAKEFLAGS))$(filter clean uninstall,$(MAKECMDGOALS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
# $(call step,WHAT,NAME,command): a line for each, or the command (V=1). On a terminal they take turns in one line, numbered; a dry run
# counts them first. What a compiler says is shown whole.
ifneq ($(V),)
step = $3
else ifneq ($(TENON_COUNT),)
step = : tenon-step
else
ifneq ($(and $(MAKE_TERMOUT),$(GOALS)),)
STEPS := $(shell TENON_COUNT=1 MAKEFLAGS= MAKELEVEL= $(MAKE) -n $(MAKEOVERRIDES) $(MAKECMDGOALS) 2>/dev/null | grep -c '^: tenon-step')
clear := \r\033[K
say = $(eval DONE += x)printf '$(clear)\033[?7l[%4d/$(STEPS)] %-4s %s\033[?7h$(if $(filter LD AR,$1),\n)' $(words $(DONE)) $1 $2
else
say = printf '%-4s %s\n' $1 $2
endif
step = @$(say); text=$$($3 2>&1); code=$$?; [ -z "$$text" ] || printf '$(clear)%s\n' "$$text"; exit $$code
endif

.PHONY: all unit deps demo demo-run demo-flow demo-flow-run test test-long test-cuda lint install uninstall clean format help
all: $(if $(CLISRC),$(BUILD)/tenon) $(BUILD)/libtenon.so $(BUILD)/libtenon.a $(CUDALIB)

# What may be called from outside is what the public headers declare: in libtenon.so by programs, in the command by a user's model.so.
HEADERS   = $(wildcard include/tenon/*.h) $(BUILD)/include/tenon/ops.h
EXPORTS   = $(BUILD)/exports.map
$(EXPORTS): scripts/exports $(HEADERS)
	@CC='$(CC)' scripts/exports $(HEADERS) > $@.tmp && sed 's/.*/&;/; 1s/^/{ /; $$s/$$/ };/' $@.tmp > $(@:.map=.list) && \
	  sed 's/^{/{ global:/; s/};$$/local: *; };/' $(@:.map=.list) > $@
LINK_SO   = $(CC) -shared -Wl,-soname,libtenon.so.0 -Wl,--version-script=$(EXPORTS) $(SAN) $(LDFLAGS) -o $@ $(LIBOBJ) $(LDLIBS)
LINK      = $(CC) $(SAN) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--whole-archive $(BUILD)/libtenon.a -Wl,--no-whole-archive \
            -Wl,--dynamic-list=$(EXPORTS:.map=.list) $(LDLIBS)
LINK_CUDA = $(CC) -shared -Wl,-z,defs -Wl,--version-script=scripts/exports-cuda.map $(SAN) $(LDFLAGS) -o $@ $^ -L$(CUDA_DIR)/lib64 \
            -lcudart_static -lrt -lm -lpthread -ldl
$(BUILD)/libtenon.a: $(LIBOBJ)
	$(call step,AR,$@,rm -f $@; ar rcs $@ $^)
$(BUILD)/libtenon.so: $(LIBOBJ) $(EXPORTS)
	$(call step,LD,$@,$(LINK_SO))
$(BUILD)/tenon: $(call obj,$(CLISRC)) $(BUILD)/libtenon.a $(EXPORTS) | $(CUDALIB)
	$(call step,LD,$@,$(LINK))
# The tests of cuDNN's graphs need no GPU: what they look at is linked once more.
UNITSRC := $(filter-out src/cli/main.c,$(CLISRC)) $(if $(CUDALIB),$(wildcard $(addprefix src/backend/cuda/cudnn,.c _graph.c _sdpa.c)))
# The objects of tests are those of TESTBUILD, but for those that match TESTOWN: for a build that instruments the library and a few tests.
TESTOBJ   := $(foreach f,$(TESTSRC),$(if $(filter $(TESTOWN),$(notdir $f)),$(BUILD),$(TESTBUILD))/obj/$(f:.c=.o))
$(BUILD)/unit: $(TESTOBJ) $(call obj,$(UNITSRC)) $(BUILD)/libtenon.a $(EXPORTS) | $(CUDALIB)
	$(call step,LD,$@,$(LINK) $(TEST_LIBS))
$(BUILD)/libtenon_cuda.so: $(CUDAOBJ)
	$(call step,LD,$@,$(LINK_CUDA))

# The calls of all ops as one header for authors of models; the list of test files for the unit driver.
$(BUILD)/include/tenon/ops.h: src/ops/ops.def $(foreach o,$(OPS),src/ops/$(o)/$(o).h)
	@mkdir -p $(@D); { echo '/* Made by the Makefile from src/ops/NAME/NAME.h in the order of ops.def. */'; \
	  $(foreach o,$(OPS),cat src/ops/$(o)/$(o).h;) } > $@.tmp && mv $@.tmp $@
# What `tenon new` writes: each file of the template as TN_TEMPLATE("its name", "its text").
$(BUILD)/include/tenon_template.def: $(TEMPLATE) Makefile
	@mkdir -p $(@D); for f in $(TEMPLATE); do echo "TN_TEMPLATE(\"$${f##*/}\","; \
	  sed 's/[\\"]/\\&/g; s/^/    "/; s/$$/\\n"/' $$f; echo ')'; done > $@.tmp && mv $@.tmp $@

# The player of `tenon eval --flows --html` as one string.
$(BUILD)/include/tenon_flows_page.def: src/report/flows/page.js Makefile
	@mkdir -p $(@D); sed 's/[\\"]/\\&/g; s/^/"/; s/$$/\\n"/' $< > $@.tmp && mv $@.tmp $@

# Where `make clean all` has removed them.
$(BUILD)/options $(BUILD)/options.cuda $(BUILD)/include/tenon_tests.def $(BUILD)/include/tenon_cuda_abi.h:
	@$(if $(KEEP),):

STRICT_DIRS := base io data token tasks lab serve
COMPILE = $(call step,CC,$(@:$(BUILD)/obj/%=%),mkdir -p $(@D); $(CC) $(ALL_CFLAGS) $(if $(filter $(STRICT_DIRS:%=src/%/%),$<),$(STRICT)) \
          $(FILE_CFLAGS) $(if $(clear),-fdiagnostics-color=always) -MMD -MP -c -o $@ $<)
$(call obj,$(LEVELED)): FILE_CFLAGS += -DTN_LEVELS
# A third of the code is tests, which seldom compute much: they are compiled fast instead.
$(call obj,$(TESTSRC)): FILE_CFLAGS += $(if $(findstring -O3,$(CFLAGS)),-O1)
$(filter %.v3.o,$(LIBOBJ)): FILE_CFLAGS += $(LEVEL3)
$(filter %.v4.o,$(LIBOBJ)): FILE_CFLAGS += $(LEVEL4)
$(call obj,$(filter src/backend/cuda/% %_cuda.c,$(SRC))): FILE_CFLAGS += -isystem $(CUDA_DIR)/include
$(BUILD)/obj/%.o: %.c Makefile $(BUILD)/options | $(GEN)
	$(COMPILE)
$(BUILD)/obj/%.v3.o: %.c Makefile $(BUILD)/options | $(GEN)
	$(COMPILE)
$(BUILD)/obj/%.v4.o: %.c Makefile $(BUILD)/options | $(GEN)
	$(COMPILE)
$(BUILD)/obj/%.cu.o: %.cu Makefile $(BUILD)/options.cuda | $(GEN)
	$(call step,NVCC,$<,mkdir -p $(@D); $(NVCC) $(NVCC_FLAGS) $(NVCC_ARCHS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<)
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
        train.eval_every=50 train.eval_batches=16 --parameters=first --sample=200 --contexts=1024..32768
demo-run: all $(BUILD)/demo/text.txt
	@rm -rf $(BUILD)/demo/race
	$(BUILD)/tenon race ten gpt data=$(BUILD)/demo/text.txt $(DEMO) --svg=$(BUILD)/demo/curves.svg run=$(BUILD)/demo/race
	@echo; echo "So short a run on so small a model favours ten: bench/results/quality.md has longer ones. Next: your own text,"; \
	  echo "  $(BUILD)/tenon train ten_tiny data=FILE"
# A lattice that learns to move drawn figures by a cell, and the page that plays its flows. A minute of training on two quiet cores.
DEMO_FLOW := task=route task.images=strokes task.size=2000 dim=32 layers=1 depth=8 train.batch=16 train.steps=300 train.warmup=20 \
             train.lr=4e-3 train.eval_every=100 train.eval_batches=8
demo-flow:
	@scripts/install-deps build
	@+$(MAKE) --no-print-directory demo-flow-run
demo-flow-run: all
	@rm -rf $(BUILD)/demo/flow && mkdir -p $(BUILD)/demo
	$(BUILD)/tenon train flow $(DEMO_FLOW) run=$(BUILD)/demo/flow
	$(BUILD)/tenon eval $(BUILD)/demo/flow split=test --flows --svg=$(BUILD)/demo/flows.svg --html=$(BUILD)/demo/flows.html
	@echo; echo "Open $(BUILD)/demo/flows.html in a browser: it plays the flows step by step."
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
	@+$(MAKE) --no-print-directory CUDA=1 all $(BUILD)/unit
	@for t in run models flow api sanitize; do BUILD=$(BUILD) tests/cuda/$$t.sh || exit 1; done
lint:
	@scripts/check-layers && scripts/check-size && scripts/check-words && scripts/check-format

# Installs below DESTDIR/PREFIX. The version in the library's file name is ours, the .so.0 in its links is the ABI's.
COMPLETE = $(DESTDIR)$(PREFIX)/share/bash-completion/completions/tenon
install: all $(GEN)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include/tenon
	install -m 644 $(HEADERS) $(DESTDIR)$(PREFIX)/include/tenon
	install -m 644 $(BUILD)/libtenon.a $(DESTDIR)$(LIBDIR)
	install -m 755 $(BUILD)/libtenon.so $(DESTDIR)$(LIBDIR)/libtenon.so.$(VERSION)
	$(if $(CUDALIB),install -m 755 $(CUDALIB) $(DESTDIR)$(LIBDIR))
	ln -sf libtenon.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libtenon.so.0
	ln -sf libtenon.so.0 $(DESTDIR)$(LIBDIR)/libtenon.so
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|; s|@PKGS@|$(PKGS)|' scripts/tenon.pc.in \
	  > $(DESTDIR)$(LIBDIR)/pkgconfig/tenon.pc
	$(if $(CLISRC),install -m 755 $(BUILD)/tenon $(DESTDIR)$(PREFIX)/bin)
	@if [ -x $(BUILD)/tenon ] && $(BUILD)/tenon complete bash > $(BUILD)/completion.bash 2>/dev/null; then \
	  echo "install $(COMPLETE)"; install -D -m 644 $(BUILD)/completion.bash $(COMPLETE); fi
uninstall:
	rm -rf $(DESTDIR)$(PREFIX)/include/tenon
	rm -f $(DESTDIR)$(PREFIX)/bin/tenon $(DESTDIR)$(LIBDIR)/libtenon.* $(DESTDIR)$(LIBDIR)/libtenon_cuda.so $(DESTDIR)$(LIBDIR)/pkgconfig/tenon.pc $(COMPLETE)

clean:
	rm -rf $(BUILD)
format:
	git ls-files '*.c' '*.h' '*.cu' '*.cuh' | xargs -P 4 -n 20 $$(command -v clang-format-14 || echo clang-format) -i
help:
	@printf '%s\n' 'make             build/tenon, build/libtenon.so and .a' '                 (CUDA=1: libtenon_cuda.so, too; where a GPU is, by default)' \
	  'make demo        install what is missing, train on real text' 'make demo-flow   the same for an energy-flow lattice, ends with a page' \
	  'make test        install what is missing, all tests of the short tier' 'make test-long   tests/long/*.sh' 'make test-cuda   every op on a GPU' \
	  'make unit        the unit tests (build/unit NAME runs some)' 'make lint        include order, file sizes, words' \
	  'make install     into DESTDIR/PREFIX (/usr/local)' 'make deps        what build and tests need, by apt-get' \
	  'make format      clang-format over all C files' 'make clean       remove build/'
