/* Which rows a configuration has. Knows settings by their names alone: what a row does is measured elsewhere. */
#include "report/ablate/table.h"

#include "base/fs.h"
#include "base/text.h"
#include "train/source/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a row needs beside its key. */
enum needs {
    ASKED = 1,       /* that somebody names it */
    PLAN = 2,        /* that it changes the plan */
    SEQUENCES = 4,   /* a model of sequences */
    CONTEXT = 8,     /* ... whose context can be cut into eight */
    ROWS = 16,       /* a batch that can be cut into four */
    AHEAD = 32,      /* batches that a thread makes */
    DATA = 64,       /* data or a task */
    DOCUMENTS = 128, /* text of more than one document */
    PREPARED = 256,  /* raw text */
    DECODES = 512,   /* a model that writes one token after the other */
    GIVEN = 1024,    /* a configuration with the fast side's words */
    STAYS = 2048     /* training samples that are the same in every epoch */
};

typedef struct setting_row {
    const char *name, *key, *plain, *fast;
    double tolerance;
    tn_ablate_price price;
    unsigned needs;
} setting_row;

static const setting_row setting_rows[] = {
#define TN_ABLATE_SETTING(name, key, plain, fast, tolerance, price, needs)                                             \
    { name, key, plain, fast, tolerance, price, needs },
#include "report/ablate/rows.def"
#undef TN_ABLATE_SETTING
};
enum { SETTING_ROWS = sizeof setting_rows / sizeof *setting_rows };
enum { WORD = 128, NUMBER = 24 }; /* WORD: room for a word of these, without a path that is put into it */

/* Twins that are further apart than a sum in another order, with what their tests state. */
static const struct {
    const char *key;
    double tolerance;
} stated[] = {
    { "opt.relax", 1e-3 },       /* equilibria to a tolerance: relax_twin_test.c */
    { "opt.compact", 1e-3 },     /* the same */
    { "opt.decode_half", 5e-2 }, /* operands rounded to bf16 */
};

/* Rows whose ops are timed by themselves too. */
static const struct {
    const char *row, *component;
} alone[] = {
    { "recurrence", "recurrence" }, { "opt.scan", "recurrence" },          { "opt.scan_gated", "recurrence" },
    { "opt.outer", "recurrence" },  { "opt.delta_chunked", "recurrence" },
};

/* --- words ------------------------------------------------------------------------------------------------------------------- */

bool tn_ablate_in(const char *list, const char *name)
{
    const size_t n = strlen(name);
    if (!list) return true;
    for (const char *at = list; *at;) {
        const size_t k = strcspn(at, ",");
        if (k <= n && strncmp(at, name, k) == 0 && (k == n || name[k] == '.')) return true;
        at += k + (at[k] == ',');
    }
    return false;
}

static bool has(const tn_settings *st, const char *key) { return tn_settings_find(st, key) < tn_settings_count(st); }

bool tn_ablate_is_as(const tn_settings *st, const char *const *word, size_t n)
{
    char key[WORD];
    for (size_t i = 0; i < n; i++) {
        const char *eq = strchr(word[i], '=');
        snprintf(key, sizeof key, "%.*s", (int)(eq - word[i]), word[i]);
        if (!has(st, key) || strcmp(tn_settings_text(st, key), eq + 1) != 0) return false;
    }
    return true;
}

/* What stands for a place in braces. */
static const char *place_text(const tn_ablate_facts *f, const char *place, size_t n, char buf[NUMBER])
{
    const tn_session *s = f->session;
    const int64_t A = tn_settings_int(s->settings, "train.accumulate");
    const struct {
        const char *place;
        int64_t value;
    } numbers[] = { { "B", s->batch }, { "B/4", s->batch / 4 },  { "A", A },
                    { "4A", 4 * A },   { "T/8", s->length / 8 }, { "T/2", s->length / 2 } };
    buf[0] = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strlen(numbers[i].place) == n && strncmp(numbers[i].place, place, n) == 0)
            snprintf(buf, NUMBER, "%lld", (long long)numbers[i].value);
    return f->prepared && n == 8 && strncmp(place, "PREPARED", n) == 0 ? f->prepared : buf;
}

/* One of n bytes; NULL: out of memory. A path has room in it. */
static const char *word_of(const tn_ablate_facts *f, const char *from, size_t n, tn_arena *arena)
{
    char text[TN_PATH_BYTES + WORD], number[NUMBER];
    size_t at = 0;
    for (size_t i = 0; i < n && at + 1 < sizeof text; i++) {
        if (from[i] != '{') {
            text[at++] = from[i];
            continue;
        }
        const size_t k = strcspn(from + i, "}");
        const char *value = place_text(f, from + i + 1, k - 1, number);
        at += (size_t)snprintf(text + at, sizeof text - at, "%.*s", TN_PATH_BYTES, value);
        i += k;
    }
    text[at] = 0;
    return tn_arena_strdup(arena, text);
}

static tn_status put_words(const tn_ablate_facts *f, const char *from, tn_arena *arena, const char *to[TN_ABLATE_WORDS],
                           size_t *n)
{
    for (*n = 0; *from && *n < TN_ABLATE_WORDS; ++*n) {
        const size_t k = strcspn(from, " ");
        if (!(to[*n] = word_of(f, from, k, arena))) return tn_error(TN_MEMORY, "out of memory");
        from += k + (from[k] == ' ');
    }
    return TN_OK;
}

/* --- what a configuration has ------------------------------------------------------------------------------------------------------- */

static bool has_documents(const tn_session *s)
{
    return s->source.text && tn_dataset_count(s->source.text, TN_TRAIN).documents > 1;
}

static bool decodes(const tn_session *s)
{
    return tn_model_reads(s->model, "tokens") && tn_model_reads_sequences(s->model);
}

static unsigned facts_of(const tn_ablate_facts *f)
{
    const tn_session *s = f->session;
    const bool couples = s->model->couples_rows && s->model->couples_rows(s->settings);
    unsigned known = ASKED | PLAN | GIVEN;
    if (tn_model_reads_sequences(s->model)) known |= SEQUENCES;
    if (s->length >= 32 && s->length % 8 == 0) known |= CONTEXT;
    if (s->batch % 4 == 0 && !s->source.on_policy && !couples) known |= ROWS;
    if (s->source.ctx) known |= DATA;
    if (s->source.resident) known |= STAYS;
    if (s->source.text || (s->source.ctx && s->source.prefetch_depth > 0)) known |= AHEAD;
    if (has_documents(s)) known |= DOCUMENTS;
    if (f->prepared) known |= PREPARED;
    if (decodes(s)) known |= DECODES;
    return known;
}

static bool is_for(const tn_ablate_facts *f, const setting_row *r)
{
    const tn_settings *st = f->session->settings;
    if ((r->key[0] && !has(st, r->key)) || !tn_ablate_in(f->only, r->name)) return false;
    if ((r->needs & facts_of(f)) != r->needs) return false;
    return !(r->needs & ASKED) || f->only || strcmp(tn_settings_text(st, "compute"), "f16") == 0;
}

/* --- rows --------------------------------------------------------------------------------------------------------------------------- */

/* *has_it: the configuration has such a row. */
static tn_status put_setting(const tn_ablate_facts *f, const setting_row *from, tn_arena *arena, tn_ablate_row *r,
                             bool *has_it)
{
    *has_it = is_for(f, from);
    if (!*has_it) return TN_OK;
    *r = (tn_ablate_row){ .tolerance = from->tolerance, .price = from->price, .by_plan = (from->needs & PLAN) != 0 };
    snprintf(r->name, sizeof r->name, "%s", from->name);
    TN_RETURN_IF(put_words(f, from->plain, arena, r->plain, &r->n_plain));
    TN_RETURN_IF(put_words(f, from->fast, arena, r->fast, &r->n_fast));
    const bool as = tn_ablate_is_as(f->session->settings, r->fast, r->n_fast);
    r->as_it_is = from->price == TN_ABLATE_STEP && !isnan(from->tolerance) && r->n_fast && as;
    *has_it = as || !(from->needs & GIVEN);
    return TN_OK;
}

static bool starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static tn_status put_switch(const tn_ablate_facts *f, const tn_setting *from, tn_arena *arena, tn_ablate_row *r)
{
    const bool gpu = tn_trainer_device(f->session->trainer) != TN_CPU, token = starts(from->key, "opt.decode_");
    *r = (tn_ablate_row){ .tolerance = TN_ABLATE_TOLERANCE, .is_switch = true, .n_plain = 1, .n_fast = 1 };
    r->price = token ? TN_ABLATE_TOKEN : TN_ABLATE_STEP;
    r->not_on_plans = gpu && starts(from->help, "CUDA:");
    r->by_plan = !token;
    r->as_it_is = !token;
    snprintf(r->name, sizeof r->name, "%s", from->key);
    r->plain[0] = tn_arena_printf(arena, "%s=off", from->key);
    r->fast[0] = tn_arena_printf(arena, "%s=on", from->key);
    for (size_t i = 0; i < sizeof stated / sizeof *stated; i++)
        if (strcmp(stated[i].key, from->key) == 0) r->tolerance = stated[i].tolerance;
    return r->plain[0] && r->fast[0] ? TN_OK : tn_error(TN_MEMORY, "out of memory");
}

/* One that is off was turned off on purpose. What only a GPU has is no row of a CPU. */
static bool is_switch_for(const tn_ablate_facts *f, const tn_setting *row)
{
    const tn_session *s = f->session;
    if (row->type != TN_TYPE_SWITCH || !starts(row->key, "opt.") || !tn_settings_on(s->settings, row->key))
        return false;
    if (starts(row->help, "CUDA:") && tn_trainer_device(s->trainer) == TN_CPU) return false;
    if (starts(row->key, "opt.decode_") && !decodes(s)) return false;
    return tn_ablate_in(f->only, row->key);
}

static const char *component_of(const char *row)
{
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (strcmp(alone[i].row, row) == 0) return alone[i].component;
    return NULL;
}

/* The row that was meant, or NULL: one that this configuration lacks is no mistake. */
static const char *nearest_row(const tn_ablate_facts *f, const char *name)
{
    const tn_settings *st = f->session->settings;
    const tn_ablate_facts all = { .session = f->session, .prepared = f->prepared };
    tn_nearest near = { .word = name };
    if (has(st, name)) return NULL;
    for (size_t i = 0; i < tn_settings_count(st); i++)
        if (is_switch_for(&all, tn_settings_row_at(st, i))) tn_nearest_try(&near, tn_settings_row_at(st, i)->key);
    for (size_t i = 0; i < SETTING_ROWS; i++) {
        if (strcmp(setting_rows[i].name, name) == 0) return NULL;
        if (is_for(&all, &setting_rows[i])) tn_nearest_try(&near, setting_rows[i].name);
    }
    return near.best;
}

/* Each name of `only` must be a row. */
static tn_status check_names(const tn_ablate_facts *f, const tn_ablate_row *rows, size_t n)
{
    char name[TN_ABLATE_NAME], quoted[80];
    for (const char *at = f->only; at && *at;) {
        const size_t k = strcspn(at, ",");
        size_t i = 0;
        snprintf(name, sizeof name, "%.*s", (int)k, at);
        while (i < n && !tn_ablate_in(name, rows[i].name)) i++;
        if (i == n && strcmp(name, "all") != 0) {
            const char *near = nearest_row(f, name);
            return tn_error(TN_USAGE, "--rows: this configuration has no row %s: %s%s%s",
                            tn_text_quote(name, quoted, sizeof quoted),
                            near ? "did you mean " : "leave --rows out to see all", near ? near : "", near ? "?" : "");
        }
        at += k + (at[k] == ',');
    }
    return TN_OK;
}

tn_status tn_ablate_list(const tn_ablate_facts *f, tn_arena *arena, tn_ablate_row rows[TN_ABLATE_ROWS], size_t *n)
{
    const tn_settings *st = f->session->settings;
    *n = 0;
    for (size_t i = 0; i < tn_settings_count(st) && *n < TN_ABLATE_ROWS; i++)
        if (is_switch_for(f, tn_settings_row_at(st, i)))
            TN_RETURN_IF(put_switch(f, tn_settings_row_at(st, i), arena, &rows[(*n)++]));
    for (size_t i = 0; i < SETTING_ROWS && *n < TN_ABLATE_ROWS; i++) {
        bool has_it;
        TN_RETURN_IF(put_setting(f, &setting_rows[i], arena, &rows[*n], &has_it));
        *n += has_it;
    }
    for (size_t i = 0; i < *n; i++) rows[i].component = component_of(rows[i].name);
    return check_names(f, rows, *n);
}

const char *tn_ablate_key_at(size_t i) { return i < SETTING_ROWS ? setting_rows[i].key : NULL; }
