/* Probes: opening them, which group comes when, and the random numbers of a sequence. */
#include "tasks/probe.h"

#include "base/alloc.h"
#include "base/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- settings ----------------------------------------------------------------------------------------------------------------- */

int64_t tn__probe_size(const tn_settings *st, const char *key, int64_t otherwise)
{
    return tn_settings_is_auto(st, key) ? otherwise : tn_settings_int(st, key);
}

tn_status tn__probe_list(const tn_settings *st, const char *key, const char *otherwise, int64_t most, int64_t *list,
                         int64_t *n)
{
    const char *text = tn_settings_text(st, key), *p = strcmp(text, "auto") == 0 ? otherwise : text;
    int64_t last = 0;
    *n = 0;
    for (;; p++) {
        char *end = NULL;
        const long long x = *p >= '0' && *p <= '9' ? strtoll(p, &end, 10) : 0;
        if (x <= last || x > 1000000000 || (*end != ',' && *end != 0))
            return tn_error(TN_USAGE, "%s=%.80s is not a list of ascending numbers: write it as 8,16,32", key, text);
        if (*n == most)
            return tn_error(TN_USAGE, "%s=%.80s has more than %lld numbers: remove some", key, text, (long long)most);
        list[(*n)++] = last = x;
        p = end;
        if (!*p) return TN_OK;
    }
}

tn_status tn__probe_lengths(const tn_settings *st, tn_probe *p)
{
    const int64_t context = tn_settings_int(st, "train.context");
    char otherwise[32];
    snprintf(otherwise, sizeof otherwise, "%lld", (long long)context);
    TN_RETURN_IF(tn__probe_list(st, "task.lengths", otherwise, TN_PROBE_LENGTHS, p->lengths, &p->n_lengths));
    const int64_t longest = p->lengths[p->n_lengths - 1];
    if (longest == context) return TN_OK;
    return tn_error(TN_USAGE, "task.lengths=%.80s ends with %lld and train.context=%lld: set train.context=%lld",
                    tn_settings_text(st, "task.lengths"), (long long)longest, (long long)context, (long long)longest);
}

/* A setting that the task has no use for is a misunderstanding. */
static tn_status check_reads(const tn_settings *st, const tn_task *task)
{
    static const char *const keys[] = { "task.size",  "task.bits",    "task.length",  "task.split",
                                        "task.pairs", "task.lengths", "task.keys",    "task.values",
                                        "task.noise", "task.depths",  "task.segment", "task.data" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const size_t n = strlen(keys[i] + 5);
        const char *at = task->reads;
        if (strcmp(tn_settings_text(st, keys[i]), tn_settings_row_at(st, tn_settings_find(st, keys[i]))->value) == 0)
            continue;
        while ((at = strstr(at, keys[i] + 5)) && ((at > task->reads && at[-1] != ' ') || (at[n] && at[n] != ' ')))
            at += n;
        if (!at)
            return tn_error(TN_USAGE, "%s is not for the task %s: leave it out (it has task. %s)", keys[i], task->name,
                            task->reads);
    }
    return TN_OK;
}

static tn_status read_text(const char *path, tn_probe *p)
{
    char *text;
    TN_RETURN_IF(tn_file_read_all(path, (size_t)1 << 30, &text, &p->text_bytes));
    p->text = (uint8_t *)text;
    if (p->text_bytes / 10 > (size_t)p->length) return TN_OK;
    return tn_error(
        TN_USAGE,
        "task.data=%.640s has %zu bytes: the tenth of it that is held out must be longer than train.context=%lld", path,
        p->text_bytes, (long long)p->length);
}

tn_status tn_probe_open(const tn_settings *st, tn_probe **out)
{
    tn_status s = TN_OK;
    const tn_task *task;
    tn_probe *p = NULL;
    TN_RETURN_IF(tn_task_find(tn_settings_text(st, "task.name"), &task));
    if (!task->probe) return tn_error(TN_USAGE, "the task %s has no sequences of tokens", task->name);
    TN_RETURN_IF(check_reads(st, task));
    if (!(p = tn_alloc(sizeof *p))) return TN_MEMORY;
    *p = (tn_probe){ .task = task,
                     .heldout = tn_settings_int(st, "task.heldout"),
                     .length = tn_settings_int(st, "train.context"),
                     .seed = (uint64_t)tn_settings_int(st, "task.split_seed"),
                     .noise = (int64_t)tn_settings_float(st, "task.noise"),
                     .depths = tn_settings_int(st, "task.depths"),
                     .segment = tn_settings_int(st, "task.segment") };
    if (p->noise < 1 || (double)p->noise != tn_settings_float(st, "task.noise"))
        TN_FAIL(TN_USAGE, "task.noise=%s is a number of tokens in the task %s: make it an integer of at least 1",
                tn_settings_text(st, "task.noise"), task->name);
    if (p->length > INT32_MAX / 2)
        TN_FAIL(TN_USAGE, "train.context=%lld is more than a probe has: use a smaller one", (long long)p->length);
    if (tn_settings_text(st, "task.data")[0]) TN_TRY(read_text(tn_settings_text(st, "task.data"), p));
    TN_TRY(task->probe(st, p));
    *out = p;
    p = NULL;
done:
    tn_probe_free(p);
    return s;
}

void tn_probe_free(tn_probe *p)
{
    if (!p) return;
    tn_free(p->text);
    tn_free(p);
}

int64_t tn_probe_scratch(const tn_probe *p) { return p->keys + p->length; }

void tn_probe_hash(const tn_probe *p, char hash[TN_HASH_BYTES])
{
    char text[160 + TN_PROBE_GROUPS * (TN_PROBE_NAME + 66)], of_text[TN_HASH_BYTES] = "";
    if (p->text) tn_hash_memory(p->text, p->text_bytes, of_text);
    size_t at = (size_t)snprintf(text, sizeof text, "%s %lld %lld %lld %lld %s", p->task->name, (long long)p->keys,
                                 (long long)p->values, (long long)p->noise, (long long)p->segment, of_text);
    for (int64_t i = 0; i < p->groups; i++) {
        const tn_probe_group *g = &p->group[i];
        at += (size_t)snprintf(text + at, sizeof text - at, " %s:%lld:%lld:%lld", g->name, (long long)g->length,
                               (long long)g->pairs, (long long)g->depth);
    }
    tn_hash_memory(text, at, hash);
}

/* --- which sequence comes when ------------------------------------------------------------------------------------------------- */

static int64_t batches_of(const tn_probe *p, int64_t k) { return p->lengths[p->n_lengths - 1] / p->lengths[k]; }

void tn_probe_batch(const tn_probe *p, int64_t i, tn_probe_which *out)
{
    int64_t round = 0, k = 0, first = 0, n = 0;
    for (int64_t j = 0; j < p->n_lengths; j++) round += batches_of(p, j);
    int64_t slot = i % round;
    while (slot >= batches_of(p, k)) slot -= batches_of(p, k++);
    while (p->group[first].length != p->lengths[k]) first++;
    while (first + n < p->groups && p->group[first + n].length == p->lengths[k]) n++;
    *out = (tn_probe_which){
        .batch = i, .length = p->lengths[k], .first = first, .groups = n, .before = i / round * batches_of(p, k) + slot
    };
}

int64_t tn_probe_train(const tn_probe *p, uint64_t seed, const tn_probe_which *w, int64_t rows, int64_t row,
                       int32_t *scratch, int32_t *tokens, int32_t *labels)
{
    const int64_t turn = p->mixed ? w->before * rows + row : w->before, group = w->first + turn % w->groups;
    tn_task_draws d = { { seed, tn_rng_stream("probe.train") + (uint64_t)(w->batch * rows + row) }, 0 };
    p->draw(p, &p->group[group], true, &d, scratch, tokens, labels);
    return group;
}

void tn_probe_held(const tn_probe *p, tn_data_split split, int64_t group, int64_t number, int32_t *scratch,
                   int32_t *tokens, int32_t *labels)
{
    const uint64_t part = tn_rng_stream(split == TN_TEST ? "probe.test" : "probe.valid");
    tn_task_draws d = { { p->seed, part + (uint64_t)number * TN_PROBE_GROUPS + (uint64_t)group }, 0 };
    p->draw(p, &p->group[group], false, &d, scratch, tokens, labels);
}

/* --- random numbers ------------------------------------------------------------------------------------------------------------ */

void tn__draw_distinct(tn_task_draws *d, int64_t n, int64_t of, int32_t *scratch)
{
    for (int64_t i = 0; i < of; i++) scratch[i] = (int32_t)i;
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = i + tn__draw_below(d, of - i);
        const int32_t x = scratch[i];
        scratch[i] = scratch[k];
        scratch[k] = x;
    }
}

/* Four tokens to a block of random words: sequences may be long. */
void tn__draw_tokens(tn_task_draws *d, int32_t *tokens, int64_t n, int64_t first, int64_t of)
{
    enum { BLOCKS = 64 };
    uint32_t word[4 * BLOCKS];
    for (int64_t at = 0; at < n; at += 4 * BLOCKS) {
        const int64_t here = n - at < 4 * BLOCKS ? n - at : 4 * BLOCKS, blocks = (here + 3) / 4;
        tn_rng_blocks(d->rng, d->next, blocks, word);
        d->next += (uint64_t)blocks;
        for (int64_t i = 0; i < here; i++)
            tokens[at + i] = (int32_t)(first + (int64_t)((uint64_t)word[i] * (uint64_t)of >> 32));
    }
}
