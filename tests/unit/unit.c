/* The unit test program: collects the tests of every NAME_test.c, runs those whose names contain the arguments
 * (all without), and ends with "N passed, N failed". With TENON_TIMES=1 the slowest tests come before that. --part=2/3
 * runs every third test from the second on, so that several processes share the work; --list prints the names instead. */
#include "testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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
    l->v[l->n++] =
        (struct CMUnitTest){ .name = strdup(name), .test_func = fn, .initial_state = (void *)(uintptr_t)state };
}

tn_device tn_test_device(void)
{
    const char *d = getenv("TENON_TEST_DEVICE");
    return d && strcmp(d, "cuda") == 0 ? TN_CUDA : TN_CPU;
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

/* --- times: cmocka calls the two around every test, in the order of the list -------------------------------------------- */

typedef struct test_time {
    const char *name;
    double s;
} test_time;

static struct {
    test_time *v;
    size_t n;
    double start;
} clocks;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int clock_start(void **state)
{
    (void)state;
    clocks.start = now_s();
    return 0;
}

static int clock_stop(void **state)
{
    (void)state;
    clocks.v[clocks.n++].s = now_s() - clocks.start;
    return 0;
}

static void clocks_set(struct CMUnitTest *tests, size_t n)
{
    clocks.v = calloc(n + 1, sizeof *clocks.v);
    if (!clocks.v) abort();
    for (size_t i = 0; i < n; i++) {
        clocks.v[i].name = tests[i].name;
        tests[i].setup_func = clock_start;
        tests[i].teardown_func = clock_stop;
    }
}

static int slower(const void *a, const void *b)
{
    const double x = ((const test_time *)a)->s, y = ((const test_time *)b)->s;
    return (x < y) - (x > y);
}

static void clocks_print(void)
{
    double sum = 0;
    for (size_t i = 0; i < clocks.n; i++) sum += clocks.v[i].s;
    qsort(clocks.v, clocks.n, sizeof *clocks.v, slower);
    printf("\n%zu tests in %.1f s; the slowest:\n", clocks.n, sum);
    for (size_t i = 0; i < clocks.n && i < 40; i++) printf("%8.3f s  %s\n", clocks.v[i].s, clocks.v[i].name);
    free(clocks.v);
}

/* Which of how many parts; the whole where the first argument does not say. */
static void read_part(int *argc, char ***argv, size_t *part, size_t *parts)
{
    *part = *parts = 1;
    if (*argc < 2 || sscanf((*argv)[1], "--part=%zu/%zu", part, parts) != 2) return;
    if (*part < 1 || *part > *parts) {
        fprintf(stderr, "%s: there is no such part\n", (*argv)[1]);
        exit(2);
    }
    (*argc)--;
    (*argv)++;
}

static bool read_list(int *argc, char ***argv)
{
    if (*argc < 2 || strcmp((*argv)[1], "--list") != 0) return false;
    (*argc)--;
    (*argv)++;
    return true;
}

/* Runs them; how many failed. */
static int run(struct CMUnitTest *tests, size_t n)
{
    const bool timed = getenv("TENON_TIMES") != NULL;
    if (timed) clocks_set(tests, n);
    const int failed = _cmocka_run_group_tests("unit", tests, n, NULL, NULL);
    if (timed) clocks_print();
    printf("\n%zu passed, %d failed\n", n - (size_t)failed, failed);
    fflush(stdout); /* a leak report at exit must not swallow the last line */
    return failed;
}

int main(int argc, char **argv)
{
    tn_test_list l = { 0 };
    size_t part, parts, seen = 0;
    const bool list = read_list(&argc, &argv);
    read_part(&argc, &argv, &part, &parts);
    if (tn_test_device() == TN_CPU)
        setenv("CUDA_VISIBLE_DEVICES", "", 1); /* device=auto is the CPU, also where a GPU is */
#define TN_TESTS(name) tn_tests_##name(&l);
#include "tenon_tests.def"
#undef TN_TESTS
    size_t n = 0;
    for (size_t i = 0; i < l.n; i++) {
        if (wanted(l.v[i].name, argc, argv) && seen++ % parts == part - 1) l.v[n++] = l.v[i];
        else free((void *)(uintptr_t)l.v[i].name);
    }
    for (size_t i = 0; list && i < n; i++) puts(l.v[i].name);
    const int failed = list ? 0 : run(l.v, n);
    for (size_t i = 0; i < n; i++) free((void *)(uintptr_t)l.v[i].name);
    free(l.v);
    return failed ? 1 : 0;
}
