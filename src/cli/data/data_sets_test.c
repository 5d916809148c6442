/* The table of data sets: rows that `tenon data get` can print and fetch; names, and what a folder of ours may hold. */
#include "cli/data/data_sets.h"

#include "testlib.h"

#include <string.h>
#include <sys/stat.h>

static void rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < tn_data_sets_n; i++) {
        const tn_data_set *d = &tn_data_sets[i];
        char folder[64];
        snprintf(folder, sizeof folder, "=data/%s", d->name);
        assert_true(strlen(d->name) <= 14 && strlen(d->what) <= 50 && strlen(d->licence) <= 20);
        assert_true(strcmp(d->kind, "pictures") == 0 || strcmp(d->kind, "text") == 0 ||
                    strcmp(d->kind, "sources") == 0);
        assert_true(d->bytes > 0 && strncmp(d->try, "tenon ", 6) == 0);
        assert_true(strstr(d->try, folder) || strstr(d->try, folder + 1));
        const tn_data_from *f = tn_data_from_next(d, NULL);
        assert_non_null(f);
        for (; f; f = tn_data_from_next(d, f)) {
            assert_true(f->bytes > 0 && strchr(f->files, '/') && f->files[0] != '/' && !strstr(f->files, ".."));
            assert_true(f->package[0] != '-'); /* a client would take it for an option */
        }
        for (size_t k = 0; k < i; k++) assert_string_not_equal(d->name, tn_data_sets[k].name);
    }
    for (size_t i = 0; i < tn_data_froms_n; i++) {
        const tn_data_set *d = NULL;
        assert_ok(tn_data_set_find(tn_data_froms[i].set, &d)); /* no package without its set */
    }
}

static void names(void **state)
{
    (void)state;
    const tn_data_set *d = NULL;
    assert_ok(tn_data_set_find("digits", &d));
    assert_string_equal(d->into, "digits.csv");
    assert_fails(tn_data_set_find("digit", &d), TN_USAGE, "did you mean digits?");
    assert_fails(tn_data_set_find("", &d), TN_USAGE, "`tenon data get` lists them");
}

static void owned(void **state)
{
    (void)state;
    static const char *const ours[] = { "SOURCE", "digits.csv", "train-images-idx3-ubyte.gz" };
    static const char *const others[] = { "notes", "source", "sub/SOURCE", ".fetcher", "digits.csv.bak" };
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        assert_true(tn_data_owns(ours[i], S_IFREG));
        assert_false(tn_data_owns(ours[i], S_IFDIR));
        assert_false(tn_data_owns(ours[i], S_IFLNK));
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(tn_data_owns(others[i], S_IFREG));
    assert_true(tn_data_owns(".fetch", S_IFDIR) && tn_data_owns(".fetch/tree/link", S_IFLNK));
}

void tn_tests_data_sets(tn_test_list *l)
{
    tn_test_add(l, rows, NULL, "data sets: rows");
    tn_test_add(l, names, NULL, "data sets: names");
    tn_test_add(l, owned, NULL, "data sets: files of ours");
}
