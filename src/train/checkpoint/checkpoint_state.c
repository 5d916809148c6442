/* state.json and manifest.json of a checkpoint. One table lists the numbers of the state for writer and reader. NaN is
 * null. */
#include "train/checkpoint/checkpoint.h"

#include "io/json_read.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* REAL: or null; SECONDS: a real number that is always known; LATER: real, null, or missing in files of before. */
typedef enum kind { INTEGER, REAL, SECONDS, LATER } kind;

/* So large that no run gets there, and so small that counting on, or times the batches of a step, does not overflow. */
#define STEPS_MAX 1e12
#define COUNT_MAX 1e18
#define ANY DBL_MAX

/* A "group.key" of one level, or a key at the root; numbers from `least` (integers: 0) to `most`. */
static const struct row {
    const char *group, *key;
    kind kind;
    size_t at;
    double least, most;
} rows[] = {
#define ROW(group, key, kind, field, least, most)                                                                      \
    {                                                                                                                  \
        group, key, kind, offsetof(tn_ckpt_state, field), least, most                                                  \
    }
    ROW(NULL, "step", INTEGER, step, 0, STEPS_MAX),
    ROW(NULL, "tokens", INTEGER, tokens, 0, COUNT_MAX),
    ROW(NULL, "batch", INTEGER, batch, 1, INT32_MAX),
    ROW(NULL, "length", INTEGER, length, 1, INT32_MAX),
    ROW(NULL, "seed", INTEGER, seed, 0, ANY),
    ROW("metrics", "loss", REAL, loss, -ANY, ANY),
    ROW("metrics", "lr", REAL, lr, 0, ANY),
    ROW("metrics", "grad_norm", REAL, grad_norm, 0, ANY),
    ROW("best", "step", INTEGER, best_step, 0, STEPS_MAX),
    ROW("best", "stale", INTEGER, stale, 0, STEPS_MAX),
    ROW("evaluations", "longest", LATER, longest, 0, STEPS_MAX),
    ROW("time", "seconds", SECONDS, seconds, 0, STEPS_MAX),
    ROW("time", "working", SECONDS, working, 0, STEPS_MAX),
    ROW("time", "evaluating", LATER, evaluating, 0, STEPS_MAX),
    ROW("time", "saving", LATER, saving, 0, STEPS_MAX),
    ROW("measured", "tokens_per_s", LATER, tokens_per_s, 0, ANY),
    ROW("measured", "samples_per_s", LATER, samples_per_s, 0, ANY),
    ROW("measured", "planned_bytes", LATER, planned_bytes, 0, ANY),
    ROW("measured", "peak_bytes", LATER, peak_bytes, 0, ANY),
    ROW("measured", "utilisation", LATER, utilisation, 0, ANY),
    ROW("guard", "applied", INTEGER, guard.applied, 0, STEPS_MAX),
    ROW("guard", "good", INTEGER, guard.good, 0, STEPS_MAX),
    ROW("guard", "bad", INTEGER, guard.bad, 0, INT32_MAX - 1),
    ROW("guard", "snapshot_applied", INTEGER, guard.snapshot_applied, 0, STEPS_MAX),
    ROW("guard", "snapshot_step", INTEGER, guard.snapshot_step, 0, STEPS_MAX),
#undef ROW
};
enum { ROWS = sizeof rows / sizeof *rows };

void tn_ckpt_state_free(tn_ckpt_state *st)
{
    json_decref(st->cursor);
    st->cursor = NULL;
}

static json_t *real(double x) { return isfinite(x) ? json_real(x) : json_null(); }

/* JSON has no infinity either, and a score may well be there (the PSNR of what is reproduced exactly): the largest number stands for it. */
static json_t *score_json(double x) { return isinf(x) ? json_real(copysign(DBL_MAX, x)) : real(x); }
static double score_of(const json_t *v)
{
    const double x = json_number_value(v);
    return fabs(x) == DBL_MAX ? copysign(INFINITY, x) : x;
}

static int set_row(json_t *root, const struct row *r, const tn_ckpt_state *st)
{
    const void *p = (const char *)st + r->at;
    json_t *to = root;
    if (r->group) {
        to = json_object_get(root, r->group);
        if (!to) {
            if (json_object_set_new(root, r->group, json_object()) != 0) return -1;
            to = json_object_get(root, r->group);
        }
    }
    return json_object_set_new(to, r->key,
                               r->kind == INTEGER ? json_integer(*(const int64_t *)p) : real(*(const double *)p));
}

/* --- scores --------------------------------------------------------------------------------------------------------- */

/* The three sets of scores, among other numbers: the first score under "heldout", the others under their names. */
static const struct {
    const char *group, *lead;
    size_t at;
} sets[] = {
    { "metrics", "", offsetof(tn_ckpt_state, now) },
    { "metrics", "last_", offsetof(tn_ckpt_state, last) },
    { "best", "", offsetof(tn_ckpt_state, best) },
};
enum { SETS = sizeof sets / sizeof *sets };

static int set_scores(json_t *to, const char *lead, const tn_scores *s)
{
    char key[TN_SCORE_KEY];
    int bad = 0;
    for (size_t i = 0; (i == 0 || i < s->n) && !bad; i++) {
        if (i && isnan(s->at[i].value)) continue;
        snprintf(key, sizeof key, "%s%s", lead, i ? s->at[i].name : "heldout");
        bad = json_object_set_new(to, key, i ? score_json(s->at[i].value) : real(tn_scores_first(s)));
    }
    return bad;
}

bool tn__ckpt_scores(const json_t *from, const char *lead, tn_scores *out)
{
    char key[TN_SCORE_KEY];
    const char *name;
    json_t *v;
    tn_scores s = { 0 };
    snprintf(key, sizeof key, "%sheldout", lead);
    const json_t *first = json_object_get(from, key);
    if (!json_is_number(first) && !json_is_null(first)) return false;
    tn_scores_put(&s, "loss", json_is_null(first) ? NAN : json_number_value(first));
    json_object_foreach((json_t *)(uintptr_t)from, name, v)
    {
        const char *score = strncmp(name, lead, strlen(lead)) == 0
                                ? name + strlen(lead)
                                : "loss"; /* of another set, or a number beside them */
        if (tn_score_taken(score) || strcmp(score, "loss") == 0 || json_is_null(v)) continue;
        if (!json_is_number(v) || !tn_scores_put(&s, score, score_of(v))) return false;
    }
    *out = s;
    return true;
}

json_t *tn__ckpt_state_json(const tn_ckpt_state *st)
{
    json_t *root = json_object();
    int bad = !root;
    for (size_t i = 0; i < ROWS && !bad; i++) bad = set_row(root, &rows[i], st);
    for (size_t i = 0; i < SETS && !bad; i++)
        bad = set_scores(json_object_get(root, sets[i].group), sets[i].lead,
                         (const tn_scores *)((const char *)st + sets[i].at));
    if (!bad) bad = json_object_set_new(json_object_get(root, "guard"), "lr_factor", real((double)st->guard.lr_factor));
    if (!bad) bad = json_object_set_new(root, "loss_scale", json_real(st->scaling.scale));
    if (!bad) bad = json_object_set_new(root, "loss_scale_good", json_integer(st->scaling.good));
    if (!bad && st->unevaluated) bad = json_object_set_new(root, "unevaluated", json_true());
    if (!bad) bad = json_object_set_new(root, "settings", json_string(st->settings));
    if (!bad)
        bad = st->cursor ? json_object_set(root, "data", st->cursor) : json_object_set_new(root, "data", json_null());
    if (!bad) return root;
    json_decref(root);
    return NULL;
}

static tn_status get_row(const json_t *root, const struct row *r, const char *name, tn_ckpt_state *out)
{
    const json_t *from = r->group ? json_object_get(root, r->group) : root, *v = json_object_get(from, r->key);
    void *p = (char *)out + r->at;
    const bool ok = r->kind == INTEGER
                        ? json_is_integer(v)
                        : json_is_number(v) || (json_is_null(v) && r->kind != SECONDS) || (!v && r->kind == LATER);
    if (!ok)
        return tn_error(TN_BAD_FILE, "%.640s: %s%s%s is missing or not a number; use another checkpoint", name,
                        r->group ? r->group : "", r->group ? "." : "", r->key);
    const double x = !v || json_is_null(v) ? NAN : json_number_value(v);
    if (x < r->least || x > r->most)
        return tn_error(TN_BAD_FILE, "%.640s: %s%s%s=%.17g is impossible; use another checkpoint", name,
                        r->group ? r->group : "", r->group ? "." : "", r->key, x);
    if (r->kind == INTEGER) *(int64_t *)p = json_integer_value(v);
    else *(double *)p = x;
    return TN_OK;
}

/* Counters of steps cannot be ahead of the steps. */
static tn_status check_counters(const tn_ckpt_state *st, const char *name)
{
    const int64_t upto[] = { st->best_step,          st->stale,     st->guard.applied,
                             st->guard.good,         st->guard.bad, st->guard.snapshot_applied,
                             st->guard.snapshot_step };
    for (size_t i = 0; i < sizeof upto / sizeof *upto; i++)
        if (upto[i] > st->step)
            return tn_error(TN_BAD_FILE,
                            "%.640s: a counter is %lld after %lld steps, which is impossible; use another checkpoint",
                            name, (long long)upto[i], (long long)st->step);
    return TN_OK;
}

/* The counter is missing where no loss was scaled yet. */
static tn_status parse_scaling(const json_t *root, const char *name, tn_ckpt_state *st)
{
    const double scale = json_number_value(json_object_get(root, "loss_scale"));
    const json_t *good = json_object_get(root, "loss_scale_good");
    st->scaling = (tn_loss_scale_state){ scale, json_integer_value(good) };
    if (scale >= 1 && scale <= 0x1p60 && (!good || json_is_integer(good)) && st->scaling.good >= 0 &&
        st->scaling.good <= INT32_MAX)
        return TN_OK;
    return tn_error(TN_BAD_FILE, "%.640s: loss_scale is missing or impossible; use another checkpoint", name);
}

tn_status tn__ckpt_state_parse(const json_t *root, const char *name, tn_ckpt_state *out)
{
    tn_ckpt_state st = { 0 };
    for (size_t i = 0; i < ROWS; i++) TN_RETURN_IF(get_row(root, &rows[i], name, &st));
    const json_t *factor = json_object_get(json_object_get(root, "guard"), "lr_factor");
    const char *settings = json_string_value(json_object_get(root, "settings"));
    TN_RETURN_IF(check_counters(&st, name));
    if (!json_is_number(factor) || !((float)json_number_value(factor) > 0) || json_number_value(factor) > 1)
        return tn_error(TN_BAD_FILE, "%.640s: the guard's numbers are impossible; use another checkpoint", name);
    TN_RETURN_IF(parse_scaling(root, name, &st));
    if (!settings || strlen(settings) >= sizeof st.settings)
        return tn_error(TN_BAD_FILE, "%.640s: settings is missing; use another checkpoint", name);
    for (size_t i = 0; i < SETS; i++)
        if (!tn__ckpt_scores(json_object_get(root, sets[i].group), sets[i].lead,
                             (tn_scores *)((char *)&st + sets[i].at)))
            return tn_error(TN_BAD_FILE, "%.640s: a score in %s is missing or not a number; use another checkpoint",
                            name, sets[i].group);
    st.guard.lr_factor = (float)json_number_value(factor);
    memcpy(st.settings, settings, strlen(settings) + 1);
    st.unevaluated = json_is_true(json_object_get(root, "unevaluated"));
    json_t *cursor = json_object_get(root, "data");
    if (json_is_object(cursor)) st.cursor = json_incref(cursor);
    *out = st;
    return TN_OK;
}

/* --- the manifest ---------------------------------------------------------------------------------------------------- */

/* Checksum of the manifest without its own "self". */
static bool self_hash(const json_t *root, char hash[TN_HASH_BYTES])
{
    json_t *copy = json_copy((json_t *)(uintptr_t)root);
    if (!copy) return false;
    json_object_del(copy, "self");
    char *text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(copy);
    if (!text) return false;
    tn_hash_memory(text, strlen(text), hash);
    free(text);
    return true;
}

/* "2026-11-15T05:06:15Z". By hand, because gmtime reads files and the environment. Years begin in March here, so that the
 * day that comes and goes is the last one; 1461 days are four years, 153 are five months of 31, 30, 31, 30, 31 days. */
static void utc_text(time_t now, char text[32])
{
    const int64_t day = now / 86400 + 719468, era = day / 146097,
                  of_era = day % 146097; /* since 0000-03-01; 400 years */
    const int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    const int64_t of_year = of_era - (365 * year + year / 4 - year / 100), month = (5 * of_year + 2) / 153;
    const int64_t s = now % 86400;
    snprintf(text, 32, "%04d-%02d-%02dT%02d:%02d:%02dZ", (int)(400 * era + year + (month >= 10)),
             (int)(month < 10 ? month + 3 : month - 9), (int)(of_year - (153 * month + 2) / 5 + 1), (int)(s / 3600),
             (int)(s / 60 % 60), (int)(s % 60));
}

json_t *tn__ckpt_manifest_json(const tn_ckpt_state *st, const tn_ckpt_file *file, size_t n)
{
    char when[32], hash[TN_HASH_BYTES];
    utc_text(time(NULL), when);
    json_t *files = json_object();
    int bad = !files;
    for (size_t i = 0; i < n && !bad; i++)
        bad = json_object_set_new(files, file[i].name,
                                  json_pack("{s:I, s:s}", "bytes", (json_int_t)file[i].bytes, "xxh3", file[i].hash));
    json_t *metrics = json_pack("{s:o}", "loss", real(st->loss));
    if (!bad) bad = !metrics || set_scores(metrics, "", &st->now);
    if (!bad && st->select[0]) bad = json_object_set_new(metrics, "select", json_string(st->select));
    if (!bad && st->lower && st->select[0]) bad = json_object_set_new(metrics, "lower", json_true());
    if (!bad && strcmp(st->unit, "nats") != 0) bad = json_object_set_new(metrics, "unit", json_string(st->unit));
    json_t *root =
        json_pack("{s:i, s:s, s:s, s:I, s:s, s:o, s:o}", "format", TN_CKPT_FORMAT, "tenon", TN_VERSION, "time", when,
                  "step", (json_int_t)st->step, "settings", st->settings, "metrics", metrics, "files", files);
    if (root && !bad && self_hash(root, hash) && json_object_set_new(root, "self", json_string(hash)) == 0) return root;
    json_decref(root);
    return NULL;
}

static tn_status check_files(const json_t *root, const char *path)
{
    const char *name;
    json_t *v, *files = json_object_get(root, "files");
    json_object_foreach(files, name, v)
    {
        const json_int_t bytes = json_integer_value(json_object_get(v, "bytes"));
        if (strchr(name, '/') || name[0] == '.' || strlen(name) > 100 || bytes < 0 ||
            !json_is_integer(json_object_get(v, "bytes")) || !json_string_value(json_object_get(v, "xxh3")))
            return tn_error(TN_BAD_FILE, "%.640s: its list of files is damaged; use another checkpoint", path);
    }
    if (json_object_size(files) == 0)
        return tn_error(TN_BAD_FILE, "%.640s lists no files; use another checkpoint", path);
    return TN_OK;
}

static tn_status check_manifest(const json_t *root, const char *path)
{
    char hash[TN_HASH_BYTES];
    const json_t *format = json_object_get(root, "format");
    const char *self = json_string_value(json_object_get(root, "self"));
    if (!json_is_integer(format)) return tn_error(TN_BAD_FILE, "%.640s is not the manifest of a checkpoint", path);
    if (json_integer_value(format) > TN_CKPT_FORMAT)
        return tn_error(TN_BAD_FILE, "%.640s has format %lld and this tenon reads up to %d: use a newer tenon", path,
                        (long long)json_integer_value(format), TN_CKPT_FORMAT);
    if (!self_hash(root, hash)) return tn_error(TN_MEMORY, "out of memory while reading %.640s", path);
    if (!self || strcmp(self, hash) != 0)
        return tn_error(TN_BAD_FILE, "%.640s is damaged: its checksum does not match; use another checkpoint", path);
    const json_t *step = json_object_get(root, "step");
    if (!json_is_integer(step) || json_integer_value(step) < 0 || json_number_value(step) > STEPS_MAX)
        return tn_error(TN_BAD_FILE, "%.640s has no step", path);
    return check_files(root, path);
}

static tn_status read_json(const char *dir, const char *name, char path[TN_PATH_BYTES], json_t **out)
{
    char *text;
    size_t bytes;
    json_error_t err;
    TN_RETURN_IF(tn_path_join(dir, name, path, TN_PATH_BYTES));
    TN_RETURN_IF(tn_file_read_all(path, 16 << 20, &text, &bytes));
    json_t *root = tn_json_tree(text, bytes, JSON_REJECT_DUPLICATES, &err);
    tn_free(text);
    if (!json_is_object(root)) {
        json_decref(root);
        return tn_error(TN_BAD_FILE, "%.640s:%d is not JSON: the file is damaged; use another checkpoint", path,
                        err.line);
    }
    *out = root;
    return TN_OK;
}

tn_status tn_ckpt_read_manifest(const char *path, json_t **out)
{
    char file[TN_PATH_BYTES];
    json_t *root;
    TN_RETURN_IF(read_json(path, "manifest.json", file, &root));
    const tn_status s = check_manifest(root, file);
    if (s == TN_OK) *out = root;
    else json_decref(root);
    return s;
}

tn_status tn_ckpt_read_state(const char *path, tn_ckpt_state *out)
{
    char file[TN_PATH_BYTES];
    json_t *root;
    TN_RETURN_IF(read_json(path, "state.json", file, &root));
    const tn_status s = tn__ckpt_state_parse(root, file, out);
    json_decref(root);
    return s;
}
