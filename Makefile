# Tenon. `make` builds, `make demo` runs the main job, `make test` runs the tests; the last two install what is missing.
# BUILD=dir keeps several builds apart (gcc, clang, sanitizers); CUDA is used where nvcc is found (CUDA=0: never).
BUILD   ?= build
CC      := $(if $(filter default undefined,$(origin CC)),gcc,$(CC))
OPT     ?= -O3
ARCH    := $(shell uname -m)
VERSION := $(shell cat VERSION 2>/dev/null || echo 0.0.0)

# -fno-math-errno and -fno-trapping-math keep NaN semantics; -ffast-math and its parts are never used.
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wundef -Wvla -Wmissing-prototypes $(if $(WERROR),-Werror)
STRICT  := -Wconversion -Wno-sign-conversion
PKGS    := yaml-0.1 jansson libxxhash
PKGCONF := $(shell command -v pkg-config 2>/dev/null)
DEPS_OK := $(if $(PKGCONF),$(shell pkg-config --exists $(PKGS) cmocka 2>/dev/null && echo yes))
ifeq ($(DEPS_OK),yes)
PKG_CFLAGS  := $(shell pkg-config --cflags $(PKGS))
PKG_LIBS    := $(shell pkg-config --libs $(PKGS))
TEST_LIBS   := $(shell pkg-config --libs cmocka)
endif
CFLAGS  ?= $(OPT) -g
ALL_CFLAGS = -std=gnu11 $(CFLAGS) -fno-math-errno -fno-trapping-math -ffp-contract=fast -fPIC \
             $(WARN) -Iinclude -I$(BUILD)/include -Isrc -Itests -DTN_VERSION='"$(VERSION)"' $(PKG_CFLAGS) $(SAN)
LDLIBS  := $(PKG_LIBS) -lm -lpthread -ldl

SRC     := $(sort $(wildcard src/*/*.c src/*/*/*.c src/*/*/*/*.c))
TESTSRC := $(filter %_test.c,$(SRC)) $(sort $(wildcard tests/unit/*.c tests/families/*.c))
LIBSRC  := $(filter-out %_test.c src/cli/%,$(SRC))
CLISRC  := $(filter-out %_test.c,$(filter src/cli/%,$(SRC)))
obj      = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
OPS     := $(shell sed -n 's/^TN_OP(\([a-z0-9_]*\)).*/\1/p' src/ops/ops.def 2>/dev/null)
GEN     := $(BUILD)/include/tenon/ops.h $(BUILD)/include/tenon_tests.def

.PHONY: all clean deps demo test test-long unit format lint install
all: $(BUILD)/tenon $(BUILD)/libtenon.so $(BUILD)/libtenon.a

$(BUILD)/libtenon.a: $(call obj,$(LIBSRC))
	@rm -f $@; ar rcs $@ $^
$(BUILD)/libtenon.so: $(call obj,$(LIBSRC))
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
$(BUILD)/include/tenon_tests.def: $(TESTSRC) Makefile
	@mkdir -p $(@D); for f in $(filter %_test.c,$(TESTSRC)); do echo "TN_TESTS($$(basename $$f _test.c))"; done > $@.tmp && mv $@.tmp $@

STRICT_DIRS := base io data token lab serve
$(BUILD)/obj/%.o: %.c Makefile | $(GEN)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(if $(filter $(STRICT_DIRS:%=src/%/),$(dir $<)),$(STRICT)) $(FILE_CFLAGS) -MMD -MP -c -o $@ $<
-include $(shell [ -d $(BUILD)/obj ] && find $(BUILD)/obj -name '*.d')

clean:
	rm -rf $(BUILD)
format:
	git ls-files '*.c' '*.h' | xargs clang-format -i
