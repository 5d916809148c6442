# Builds NAME.so, which tenon loads by its path. `make test` tests it.
# TENON is the command; TENON_INCLUDE, when set, is the folder that holds tenon/model.h.
TENON  ?= @TENON@
CFLAGS ?= -O2 -g -Wall -Wextra
FLAGS   = -std=gnu11 -shared -fPIC $(if $(TENON_INCLUDE),-I'$(TENON_INCLUDE)') @CFLAGS@

NAME.so: NAME.c Makefile
	$(CC) $(CFLAGS) $(FLAGS) -o $@ $<

.PHONY: test clean
test: NAME.so
	TENON=$(TENON) sh NAME_test.sh
clean:
	rm -f NAME.so
