/* A side that writes checkpoints, each with a sync, a read back and a rename, as a run does. */
#include "report/ablate/side.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "report/probe/probe.h"
#include "train/checkpoint/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 2 }; /* before the first save: a moment that is zero is easily compressed */

typedef struct tn_save_side {
    tn_step_probe *probe;
    char dir[TN_PATH_BYTES];
    bool compress;
    double bytes; /* of a checkpoint on the disk */
} tn_save_side;

static bool is_own(const char *name, mode_t mode)
{
    (void)name, (void)mode;
    return true;
}

static void close_save(void *side)
{
    tn_save_side *t = side;
    if (!t) return;
    tn_step_probe_close(t->probe);
    (void)tn_tree_remove(t->dir, "", is_own);
    tn_free(t);
}

static tn_status open_save(const tn_side_options *o, void **out)
{
    tn_status s = TN_OK;
    double ms;
    tn_save_side *t = tn_alloc(sizeof *t);
    if (!t) return TN_MEMORY;
    *t = (tn_save_side){ .bytes = NAN };
    TN_TRY(tn_path_join(o->dir, "saves", t->dir, sizeof t->dir));
    TN_TRY(tn_step_probe_open(&(tn_step_probe_options){ .user = o->user,
                                                        .settings = o->settings,
                                                        .model = o->model,
                                                        .word = o->word,
                                                        .n = o->n,
                                                        .source = "tenon ablate" },
                              &t->probe));
    t->compress = strcmp(tn_settings_text(tn_step_probe_session(t->probe)->settings, "ckpt.compress"), "zstd") == 0;
    TN_TRY(tn_step_probe_run(t->probe, STEPS, 0, &ms));
    *out = t;
    t = NULL;
done:
    close_save(t);
    return s;
}

static tn_store *store_of(const tn_save_side *t) { return tn_trainer_store(tn_step_probe_session(t->probe)->trainer); }

static tn_status save_one(tn_save_side *t)
{
    const tn_session *x = tn_step_probe_session(t->probe);
    tn_ckpt_state st = { .step = 1,
                         .batch = x->batch,
                         .length = x->length,
                         .loss = 1,
                         .guard.lr_factor = 1,
                         .scaling.scale = 1,
                         .cursor = json_object() };
    if (!st.cursor) return tn_error(TN_MEMORY, "out of memory");
    const tn_status s =
        tn_ckpt_save(t->dir, &(tn_ckpt_what){ .store = store_of(t), .state = &st, .compress = t->compress });
    tn_ckpt_state_free(&st);
    return s;
}

/* Removing is not timed. */
static tn_status run_save(void *side, int times, double *ms)
{
    tn_save_side *t = side;
    double seconds = 0;
    for (int i = 0; i < times; i++) {
        TN_RETURN_IF(tn_tree_remove(t->dir, "", is_own));
        TN_RETURN_IF(tn_dir_make(t->dir));
        const double begun = tn_clock_s();
        TN_RETURN_IF(save_one(t));
        seconds += tn_clock_s() - begun;
    }
    *ms = 1e3 * seconds / times;
    return TN_OK;
}

static tn_status warm_save(void *side, double limit_s, double *ms)
{
    tn_save_side *t = side;
    tn_ckpt_list l = { 0 };
    (void)limit_s;
    TN_RETURN_IF(run_save(side, 1, ms));
    TN_RETURN_IF(tn_ckpt_list_read(t->dir, &l));
    if (l.n) t->bytes = (double)l.entry[0].bytes;
    tn_ckpt_list_free(&l);
    return TN_OK;
}

static double save_bytes(const void *side) { return ((const tn_save_side *)side)->bytes; }

/* What was saved is read back into the store before both are compared. */
static tn_status save_parity(void *plain, void *fast, double seconds, int *steps, tn_parity *out)
{
    double ms;
    (void)seconds;
    *steps = STEPS;
    *out = tn_parity_none();
    for (int i = 0; i < 2; i++) {
        tn_save_side *t = i ? fast : plain;
        tn_ckpt_state st = { 0 };
        char path[TN_PATH_BYTES], name[TN_CKPT_NAME];
        TN_RETURN_IF(run_save(t, 1, &ms));
        TN_RETURN_IF(tn_path_join(t->dir, tn_ckpt_name(1, name), path, sizeof path));
        for (int k = 0; k < tn_store_buckets(store_of(t)); k++) {
            const tn_bucket *b = tn_store_bucket(store_of(t), k);
            TN_RETURN_IF(tn_store_clear(store_of(t), b->param, sizeof(float) * (size_t)b->count));
        }
        TN_RETURN_IF(tn_ckpt_load(path, store_of(t), NULL, &st));
        tn_ckpt_state_free(&st);
    }
    return tn_parity_stores(out, store_of(plain), store_of(fast), false);
}

const tn_side_kind tn_side_save = { .what = "save",
                                    .open = open_save,
                                    .close = close_save,
                                    .warm = warm_save,
                                    .run = run_save,
                                    .bytes = save_bytes,
                                    .parity = save_parity,
                                    .most = 1 };
