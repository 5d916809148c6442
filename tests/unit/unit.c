/* The unit test program: collects the tests of every NAME_test.c, runs those whose names contain the arguments
 * (all without), and ends with "N passed, N failed". */
#include "testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tn_test_list {
    struct CMUnitTest *v;
    size_t n, capacity;
};

void tn_test_add(tn_test_list *l, tn_test_fn *fn, const void *state, const char *name_fmt, ...)
{
    char name[256];
    va_list ap;
    va_start(ap, name_fmt);
    vsnprintf(name, sizeof name, name_fmt, ap);
    va_end(ap);
    if (l->n == l->capacity) {
        l->capacity = l->capacity ? 2 * l->capacity : 256;
        l->v = realloc(l->v, l->capacity * sizeof *l->v);
        if (!l->v) abort();
    }
    l->v[l->n++] = (struct CMUnitTest){ .name = strdup(name), .test_func = fn, .initial_state = (void *)(uintptr_t)state };
}

const char *tn_test_data(const char *relative_path)
{
    static char path[1024];
    const char *root = getenv("TENON_DATA");
    snprintf(path, sizeof path, "%s/%s", root ? root : "../shared/data", relative_path);
    if (access(path, R_OK) == 0) return path;
    const char *require = getenv("TENON_REQUIRE_DATA");
    if (require && strcmp(require, "1") == 0) fail_msg("%s is needed (TENON_REQUIRE_DATA=1) and not there", path);
    print_message("skipped: %s is not there; TENON_DATA names the folder\n", path);
    return NULL;
}

static bool wanted(const char *name, int argc, char **argv)
{
    if (argc < 2) return true;
    for (int i = 1; i < argc; i++)
        if (strstr(name, argv[i])) return true;
    return false;
}

int main(int argc, char **argv)
{
    tn_test_list l = { 0 };
#define TN_TESTS(name) tn_tests_##name(&l);
#include "tenon_tests.def"
#undef TN_TESTS
    size_t n = 0;
    for (size_t i = 0; i < l.n; i++) {
        if (wanted(l.v[i].name, argc, argv))
            l.v[n++] = l.v[i];
        else
            free((void *)(uintptr_t)l.v[i].name);
    }
    const int failed = _cmocka_run_group_tests("unit", l.v, n, NULL, NULL);
    printf("\n%zu passed, %d failed\n", n - (size_t)failed, failed);
    fflush(stdout); /* a leak report at exit must not swallow the last line */
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)l.v[i].name);
    free(l.v);
    return failed ? 1 : 0;
}
