/* Objects by key that several threads share, each made by the first that asks; and the key of a plan. */
#include "train/trainer/shared.h"

#include "base/alloc.h"

#include <pthread.h>
#include <string.h>

/* --- shelves ------------------------------------------------------------------------------------------------------------------ */

typedef struct item {
    char *key;
    void *thing;
    int users;
    uint64_t used; /* when it was taken last */
} item;

typedef struct shelf {
    item *item;
    size_t n, capacity;
    size_t idle; /* things nobody uses that stay */
    uint64_t clock;
    int64_t made;
    void (*release)(void *thing);
} shelf;

static void drop(shelf *s, size_t i)
{
    s->release(s->item[i].thing);
    tn_free(s->item[i].key);
    s->item[i] = s->item[--s->n];
}

/* The one that was used longest ago goes first. */
static void tidy(shelf *s)
{
    for (;;) {
        size_t idle = 0, oldest = 0;
        for (size_t i = 0; i < s->n; i++) {
            if (s->item[i].users) continue;
            if (!idle++ || s->item[i].used < s->item[oldest].used) oldest = i;
        }
        if (idle <= s->idle) return;
        drop(s, oldest);
    }
}

/* NULL: it is not there. */
static void *take(shelf *s, const char *key)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->item[i].key, key) != 0) continue;
        s->item[i].users++;
        s->item[i].used = ++s->clock;
        return s->item[i].thing;
    }
    return NULL;
}

/* Room for one more, so that nothing can fail once it is made. */
static tn_status reserve(shelf *s, const char *key, char **copy)
{
    const size_t bytes = strlen(key) + 1;
    TN_RETURN_IF(tn_grow((void **)&s->item, &s->capacity, s->n + 1, sizeof *s->item));
    *copy = tn_alloc(bytes);
    if (!*copy) return TN_MEMORY;
    memcpy(*copy, key, bytes);
    return TN_OK;
}

static void put(shelf *s, char *key, void *thing)
{
    s->item[s->n++] = (item){ .key = key, .thing = thing, .users = 1, .used = ++s->clock };
    s->made++;
    tidy(s);
}

static void give_back(shelf *s, const void *thing)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->item[i].thing == thing && s->item[i].users) s->item[i].users--;
    tidy(s);
}

static void clear(shelf *s)
{
    while (s->n) drop(s, s->n - 1);
    tn_free(s->item);
}

/* --- what is shared ------------------------------------------------------------------------------------------------------------- */

struct tn_shared {
    pthread_mutex_t lock; /* held while something is made: who wants the same waits for it */
    shelf sets, plans;
};

static void release_samples(void *set) { tn_samples_free(set); }

static void release_plan(void *plan) { tn_plan_free(plan); }

tn_status tn_shared_new(tn_shared **out)
{
    tn_shared *s = tn_alloc(sizeof *s);
    if (!s) return TN_MEMORY;
    s->sets = (shelf){ .idle = 1, .release = release_samples };
    s->plans = (shelf){ .idle = TN_SHARED_PLANS, .release = release_plan };
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return TN_OK;
}

void tn_shared_free(tn_shared *s)
{
    if (!s) return;
    clear(&s->sets);
    clear(&s->plans);
    pthread_mutex_destroy(&s->lock);
    tn_free(s);
}

tn_status tn_shared_samples(tn_shared *s, const char *key, tn_samples_make *make, void *user, tn_samples **out)
{
    tn_samples *set = NULL;
    char *copy = NULL;
    pthread_mutex_lock(&s->lock);
    tn_status st = TN_OK;
    *out = take(&s->sets, key);
    if (!*out) st = reserve(&s->sets, key, &copy);
    if (!*out && st == TN_OK) st = make(user, &set);
    if (!*out && st == TN_OK) put(&s->sets, copy, *out = set);
    if (st != TN_OK) tn_free(copy);
    pthread_mutex_unlock(&s->lock);
    return st;
}

static void put_back(tn_shared *s, shelf *of, const void *thing)
{
    pthread_mutex_lock(&s->lock);
    if (thing) give_back(of, thing);
    pthread_mutex_unlock(&s->lock);
}

void tn_shared_return_samples(tn_shared *s, const tn_samples *set) { put_back(s, &s->sets, set); }

void tn_shared_return_plan(tn_shared *s, const tn_plan *p) { put_back(s, &s->plans, p); }

tn_status tn_shared_plan(tn_shared *s, const char *key, tn_plan_make *make, void *user, const tn_plan **out)
{
    tn_plan *made = NULL;
    char *copy = NULL;
    pthread_mutex_lock(&s->lock);
    tn_status st = TN_OK;
    const tn_plan *p = take(&s->plans, key);
    if (!p) st = reserve(&s->plans, key, &copy);
    if (!p && st == TN_OK) st = make(user, &made);
    if (!p && st == TN_OK) put(&s->plans, copy, made);
    if (st != TN_OK) tn_free(copy);
    else *out = p ? p : made;
    pthread_mutex_unlock(&s->lock);
    return st;
}

int64_t tn_shared_plans_made(tn_shared *s)
{
    pthread_mutex_lock(&s->lock);
    const int64_t n = s->plans.made;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* --- keys of plans --------------------------------------------------------------------------------------------------------------- */

/* Settings that no plan depends on: read step by step, or by others. One that ends in a dot stands for all below it. A new row is
 * taken to matter unless it is listed here. */
static const char *const run_time[] = {
    "seed",
    "run",
    "preset",
    "log.",
    "ckpt.",
    "sample.",
    "loader.workers",
    "loader.prefetch",
    "train.from",
    "train.lr",
    "train.lr_min_frac",
    "train.warmup",
    "train.schedule",
    "train.cooldown_frac",
    "train.decay",
    "train.beta1",
    "train.beta2",
    "train.eps",
    "train.clip",
    "train.momentum",
    "train.steps",
    "train.epochs",
    "train.nonfinite",
    "train.eval_every",
    "train.select",
    "train.test",
    "train.stop_patience",
    "optim.loss_scale",
    "optim.loss_scale_growth",
};

static bool is_run_time(const char *key)
{
    for (size_t i = 0; i < sizeof run_time / sizeof *run_time; i++) {
        const size_t n = strlen(run_time[i]);
        if (run_time[i][n - 1] == '.' ? strncmp(key, run_time[i], n) == 0 : strcmp(key, run_time[i]) == 0) return true;
    }
    return false;
}

static bool is_scalar(const tn_model *model, const char *key)
{
    for (const char *const *k = model->scalars; k && *k; k++)
        if (strcmp(*k, key) == 0) return true;
    return false;
}

tn_status tn_plan_key(const tn_model *model, const tn_settings *st, char key[TN_HASH_BYTES])
{
    tn_hash *h;
    TN_RETURN_IF(tn_hash_begin(&h));
    tn_hash_add(h, model->name, strlen(model->name) + 1);
    for (size_t i = 0; i < tn_settings_count(st); i++) {
        const char *name = tn_settings_row_at(st, i)->key, *text = tn_settings_text_at(st, i);
        if (is_run_time(name) || is_scalar(model, name)) continue;
        tn_hash_add(h, name, strlen(name) + 1);
        tn_hash_add(h, text, strlen(text) + 1);
    }
    tn_hash_text(h, key);
    tn_hash_free(h);
    return TN_OK;
}

float *tn_plan_scalar(tn_bound *b, const char *name)
{
    const int i = tn_plan_extern_find(tn_bound_plan(b), name);
    return i >= 0 && tn_plan_extern(tn_bound_plan(b), i)->role == TN_ROLE_SCALAR ? tn_bound_data(b, name) : NULL;
}

void tn_plan_scalars(const tn_model *model, const tn_settings *st, tn_bound *b)
{
    for (const char *const *k = model->scalars; k && *k; k++) {
        float *x = tn_plan_scalar(b, *k);
        if (x) *x = (float)tn_settings_float(st, *k);
    }
}

/* --- seats ------------------------------------------------------------------------------------------------------------------------ */

tn_status tn_context_slot_open(tn_context_slot *s, tn_device device, int threads, tn_context **out)
{
    if (s->context && (s->device != device || tn_context_threads(s->context) != threads)) {
        tn_context_free(s->context);
        s->context = NULL;
    }
    if (!s->context) {
        TN_RETURN_IF(tn_context_new(device, threads, &s->context));
        if (s->shared) TN_RETURN_IF(tn_context_share(s->context));
        s->device = device;
    }
    *out = s->context;
    return TN_OK;
}

void tn_context_slot_free(tn_context_slot *s)
{
    tn_context_free(s->context);
    s->context = NULL;
}
