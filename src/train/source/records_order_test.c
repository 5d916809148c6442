/* The order of records with shapes: a source that goes back within an epoch, as every checkpoint has it do, does not sort it again. */
#include "mlp.h"
#include "train/run/session.h"
#include "train/source/records.h"

#include <string.h>

enum { B = 4 };

static int64_t fits; /* calls */

static int fit_odd(const void *data, const int32_t *rows, int64_t n, int64_t epoch, int after)
{
    (void)data, (void)epoch;
    fits++;
    for (int64_t i = 0; i < n; i++)
        if (rows[i] % 2 == 0 || after) return 0;
    return 1;
}

static int64_t read_none(const void *data, int split, int64_t i, int64_t step, int shape, void *const *at)
{
    (void)data, (void)split, (void)i, (void)step, (void)shape, (void)at;
    return 1;
}

static tn_status hash_none(const void *data, char hash[TN_HASH_BYTES])
{
    (void)data;
    tn_hash_memory("", 0, hash);
    return TN_OK;
}

static void next_of(tn_source *s, tn_trainer *t, char said[200])
{
    const tn_feeder to = tn_trainer_feeder(t);
    int64_t count;
    assert_ok(s->next(s->ctx, 0, &to, &count));
    s->describe(s->ctx, -1, said, 200);
}

/* A save steps back to where the run is, and the epoch is sorted once for all of them. */
static void sorts_once(void **state)
{
    (void)state;
    enum { N = 40 };
    static const tn_input_shape small = { .size = { { "none", 20 } }, .n = 1 };
    const tn_record_set set = { .kind = "task",
                                .noun = "record",
                                .count = { N, 0, 0 },
                                .shapes = { &small, 1, fit_odd },
                                .read = read_none,
                                .hash = hash_none };
    const char *const words[] = { "task=xor",  "task.size=60", "train.batch=4",
                                  "threads=1", "device=cpu",   "loader.workers=0" };
    tn_settings *st = tn_mlp_settings(words, sizeof words / sizeof *words);
    tn_session on;
    tn_source s;
    tn_source_mark early, late;
    char said[2][200];
    assert_ok(tn_session_open_with(&(tn_session_options){ .settings = st, .model = &tn_mlp, .needs_data = true }, &on));
    assert_ok(tn_source_records_make(&set, &s));
    fits = 0;
    assert_ok(tn_source_started(&s, &(tn_source_start){ .trainer = on.trainer, .batch = B }));
    assert_true(fits >= N);
    s.mark(s.ctx, &early);
    next_of(&s, on.trainer, said[0]);
    const int64_t before = fits;
    assert_ok(s.back(s.ctx, &early));
    assert_int_equal(fits, before);
    next_of(&s, on.trainer, said[1]);
    assert_string_equal(said[0], said[1]);
    for (int i = 0; i < N / B; i++) next_of(&s, on.trainer, said[1]); /* into the next epoch */
    s.mark(s.ctx, &late);
    next_of(&s, on.trainer, said[0]);
    assert_ok(s.back(s.ctx, &early));
    next_of(&s, on.trainer, said[1]);
    assert_string_not_equal(said[0], said[1]);
    assert_ok(s.back(s.ctx, &late));
    next_of(&s, on.trainer, said[1]);
    assert_string_equal(said[0], said[1]);
    tn_source_close(&s);
    tn_session_close(&on);
    tn_settings_free(st);
}

void tn_tests_records_order(tn_test_list *l) { tn_test_add(l, sorts_once, NULL, "records: an epoch is sorted once"); }
