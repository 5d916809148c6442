/* Parsing a study file: its form, names and numbers. Samplers and pruners are known by their tables; models are not
 * asked. */
#include "lab/study/study_parse.h"

#include "io/yaml_events.h"
#include "lab/study/study.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tn_status tn__study_at(const tn_study_reader *r, tn_status s, const char *key, size_t line)
{
    char text[1024];
    if (s == TN_OK || s == TN_MEMORY) return s;
    snprintf(text, sizeof text, "%s", tn_error_text());
    return tn_error(s, "%s%s%s  (%s:%zu)", strncmp(text, key, strlen(key)) == 0 ? "" : key,
                    strncmp(text, key, strlen(key)) == 0 ? "" : ": ", text,
                    tn_text_quote(r->file, (char[256]){ 0 }, 256), line);
}

/* --- fields ------------------------------------------------------------------------------------------------------- */

static tn_status read_number(const tn_study_reader *r, const tn_field *f, const tn_yaml *v, double *out)
{
    char *end;
    errno = 0;
    const double x = strtod(v->text, &end);
    if (!v->text[0] || *end || !isfinite(x))
        return TN__STUDY_FAIL(r, v, "%s: \"%.60s\" is not a number", f->key, v->text);
    if (f->kind != TN_FIELD_NUMBER && x != floor(x))
        return TN__STUDY_FAIL(r, v, "%s: %s is not a whole number", f->key, v->text);
    if (x < f->lo || x > f->hi) return TN__STUDY_FAIL(r, v, "%s: %s is outside %g..%g", f->key, v->text, f->lo, f->hi);
    *out = x;
    return TN_OK;
}

static tn_status read_field(const tn_study_reader *r, const tn_field *f, const tn_yaml *v, void *to)
{
    void *at = (char *)to + f->offset;
    double x = 0;
    if (f->kind == TN_FIELD_NODE) {
        *(const tn_yaml **)at = v;
        return TN_OK;
    }
    if (v->kind != TN_YAML_TEXT) return TN__STUDY_FAIL(r, v, "%s takes one value", f->key);
    if (f->kind == TN_FIELD_TEXT) {
        if (!v->text[0]) return TN__STUDY_FAIL(r, v, "%s is empty: give it a value, or remove the line", f->key);
        *(const char **)at = v->text;
        return TN_OK;
    }
    if (f->kind == TN_FIELD_BOOL) {
        const bool on = strcmp(v->text, "true") == 0 || strcmp(v->text, "on") == 0 || strcmp(v->text, "yes") == 0;
        const bool off = strcmp(v->text, "false") == 0 || strcmp(v->text, "off") == 0 || strcmp(v->text, "no") == 0;
        if (!on && !off) return TN__STUDY_FAIL(r, v, "%s is true or false, not \"%.60s\"", f->key, v->text);
        *(bool *)at = on;
        return TN_OK;
    }
    TN_RETURN_IF(read_number(r, f, v, &x));
    if (f->kind == TN_FIELD_NUMBER) *(double *)at = x;
    else if (f->kind == TN_FIELD_SEED) *(uint64_t *)at = (uint64_t)x;
    else *(int64_t *)at = (int64_t)x;
    return TN_OK;
}

void tn__unknown_offer(tn_unknown *u, const char *name)
{
    const size_t at = strlen(u->names);
    snprintf(u->names + at, sizeof u->names - at, "%s%s", at ? ", " : "", name);
    tn_nearest_try(&u->near, name);
}

tn_status tn__unknown_fail(const tn_study_reader *r, const tn_yaml *at, const char *what, const tn_unknown *u)
{
    const char *name = u->near.word, *best = u->near.best;
    if (best) return TN__STUDY_FAIL(r, at, "unknown %s %.60s: did you mean %s?", what, name, best);
    return TN__STUDY_FAIL(r, at, "unknown %s %.60s: choose one of %s", what, name, u->names);
}

tn_status tn__study_fields(const tn_study_reader *r, const tn_yaml *map, const char *what, const tn_field *fields,
                           size_t n, void *to)
{
    if (map->kind == TN_YAML_TEXT && strcmp(fields[0].key, "name") == 0) return read_field(r, &fields[0], map, to);
    if (map->kind != TN_YAML_MAP) return TN__STUDY_FAIL(r, map, "%s takes a map", map->key[0] ? map->key : what);
    for (const tn_yaml *c = map->first; c; c = c->next) {
        size_t i = 0;
        tn_unknown u = { .near = { .word = c->key } };
        for (; i < n && strcmp(fields[i].key, c->key) != 0; i++) tn__unknown_offer(&u, fields[i].key);
        if (i == n) return tn__unknown_fail(r, c, "key", &u);
        TN_RETURN_IF(read_field(r, &fields[i], c, to));
    }
    return TN_OK;
}

/* --- objectives --------------------------------------------------------------------------------------------------- */

/* Where nobody says what is wanted. */
#define DEFAULT_OBJECTIVE "accuracy"

/* "loss min 10": a name, a direction where the name does not give it, the reference of the hypervolume. */
static tn_status read_objective(const tn_study_reader *r, const tn_yaml *v, tn_objective *out)
{
    char name[64] = "", way[8] = "", reference[40] = "", rest[2] = "", *end;
    if (v->kind != TN_YAML_TEXT) return TN__STUDY_FAIL(r, v, "%s", "write an objective as: loss min 10");
    const int n = sscanf(v->text, "%63s %7s %39s %1s", name, way, reference, rest);
    if (n < 1 || n > 3)
        return TN__STUDY_FAIL(r, v, "\"%.80s\": an objective is a name, max or min, and a reference: loss min 10",
                              v->text);
    *out = (tn_objective){ .name = tn_arena_strdup(r->arena, name), .reference = NAN };
    const tn_metric_row *row = tn_study_metric(name);
    const bool given = row || tn_study_number(name, &out->maximise);
    if (row) out->maximise = row->better == TN_HIGHER;
    out->by_row = n == 1 && !given;
    if (n > 1 && strcmp(way, "max") != 0 && strcmp(way, "min") != 0)
        return TN__STUDY_FAIL(r, v, "%s: \"%s\" is neither max nor min", name, way);
    if (n > 1) out->maximise = strcmp(way, "max") == 0;
    if (n > 2) {
        out->reference = strtod(reference, &end);
        if (*end || !isfinite(out->reference))
            return TN__STUDY_FAIL(r, v, "%s: the reference \"%s\" is not a number", name, reference);
    }
    return out->name ? TN_OK : TN_MEMORY;
}

static tn_status read_objectives(const tn_study_reader *r, const tn_yaml *v, tn_study_plan *out)
{
    enum { MOST = 16 };
    static const tn_yaml fallback = { .kind = TN_YAML_TEXT, .text = DEFAULT_OBJECTIVE " max 0", .key = "" },
                         none = { .kind = TN_YAML_LIST, .first = (tn_yaml *)&fallback, .n = 1, .key = "" };
    if (!v) v = &none;
    if (v->kind == TN_YAML_MAP || (v->kind == TN_YAML_LIST && (v->n == 0 || v->n > MOST)))
        return TN__STUDY_FAIL(r, v, "objectives takes a list of 1 to %d: [loss min 10, seconds min 1000]", MOST);
    const size_t n = v->kind == TN_YAML_LIST ? v->n : 1;
    tn_objective *list = tn_arena_alloc(r->arena, sizeof *list * n);
    if (!list) return TN_MEMORY;
    const tn_yaml *c = v->kind == TN_YAML_LIST ? v->first : v;
    for (size_t i = 0; i < n; i++, c = c->next) {
        TN_RETURN_IF(read_objective(r, c, &list[i]));
        for (size_t j = 0; j < i; j++)
            if (strcmp(list[i].name, list[j].name) == 0)
                return TN__STUDY_FAIL(r, c, "objective %s is listed twice", list[i].name);
    }
    out->objectives = list;
    out->n_objectives = n;
    return TN_OK;
}

/* --- sampler, pruner, rules --------------------------------------------------------------------------------------- */

typedef struct choice {
    const char *name, *metric, *with;
    tn_sampler_options s;
    tn_pruner_options p;
    double cohort;
} choice;

#define AT(member) offsetof(choice, member)
static const tn_field sampler_table[] = {
    { "name", TN_FIELD_TEXT, AT(name), 0, 0 },
    { "seed", TN_FIELD_SEED, AT(s.seed), 0, 9e15 },
    { "startup", TN_FIELD_COUNT, AT(s.startup), 1, 1e9 },
    { "population", TN_FIELD_COUNT, AT(s.population), 2, 1e6 },
    { "crossover", TN_FIELD_NUMBER, AT(s.crossover), 0, 1 },
    { "swap", TN_FIELD_NUMBER, AT(s.swap), 0, 1 },
    { "mutation", TN_FIELD_NUMBER, AT(s.mutation), 0, 1 },
    { "eta", TN_FIELD_NUMBER, AT(s.eta), 0, 1000 },
    { "uniform", TN_FIELD_BOOL, AT(s.uniform), 0, 0 },
};
static const tn_field pruner_table[] = {
    { "name", TN_FIELD_TEXT, AT(name), 0, 0 },     { "min", TN_FIELD_COUNT, AT(p.min_rung), 1, 1e9 },
    { "eta", TN_FIELD_COUNT, AT(p.eta), 2, 1e6 },  { "warmup", TN_FIELD_COUNT, AT(p.warmup_trials), 1, 1e9 },
    { "metric", TN_FIELD_TEXT, AT(metric), 0, 0 }, { "cohort", TN_FIELD_NUMBER, AT(cohort), 1, 1e9 },
    { "lag", TN_FIELD_COUNT, AT(p.lag), 0, 1e6 },  { "with", TN_FIELD_TEXT, AT(with), 0, 0 },
};
#undef AT

static tn_status unknown_name(const tn_study_reader *r, const tn_yaml *v, const char *what, const char *name,
                              const char *(*nth)(size_t))
{
    tn_unknown u = { .near = { .word = name } };
    for (size_t i = 0; nth(i); i++) tn__unknown_offer(&u, nth(i));
    return tn__unknown_fail(r, v, what, &u);
}

static tn_status read_sampler(const tn_study_reader *r, const tn_yaml *v, tn_study_plan *out)
{
    choice c = { .name = "random", .s.seed = out->seed };
    if (v) TN_RETURN_IF(TN__STUDY_FIELDS(r, v, "a sampler", sampler_table, &c));
    out->sampler = tn_sampler_find(c.name);
    if (!out->sampler) return unknown_name(r, v, "sampler", c.name, tn_sampler_name);
    out->sampling = c.s;
    out->sampling.trials = out->trials;
    out->sampling.lag = out->lag;
    out->sampling.objectives = out->n_objectives;
    return TN_OK;
}

/* What pruners look at, where nobody says: the first objective that a trial has long before its end, a metric rather
 * than an instrument. */
static const char *default_metric(const tn_study_plan *p)
{
    bool unused;
    for (int any = 0; any < 2; any++)
        for (size_t i = 0; i < p->n_objectives; i++) {
            const char *name = p->objectives[i].name;
            if (any ? !tn_study_number(name, &unused) : tn_study_metric(name) != NULL) return name;
        }
    return DEFAULT_OBJECTIVE;
}

static tn_status read_pruner(const tn_study_reader *r, const tn_yaml *v, tn_study_plan *out)
{
    choice c = { .name = "none", .p.lag = out->lag };
    if (v) TN_RETURN_IF(TN__STUDY_FIELDS(r, v, "a pruner", pruner_table, &c));
    out->pruner = tn_pruner_find(c.name);
    if (!out->pruner) return unknown_name(r, v, "pruner", c.name, tn_pruner_name);
    out->pruning = c.p;
    out->cohort = c.cohort;
    if (c.with && strcmp(c.with, "parameters") != 0)
        return TN__STUDY_FAIL(r, v, "pruner: with takes only parameters, not \"%.60s\"", c.with);
    out->prune_size = c.with != NULL;
    TN_RETURN_IF(tn__study_at(r, tn_pruner_check(&out->pruning), "pruner", v ? v->line : 1));
    out->prune_by = c.metric ? c.metric : default_metric(out);
    const tn_metric_row *row = tn_study_metric(out->prune_by);
    out->prune_max = row && row->better == TN_HIGHER;
    for (size_t i = 0; i < out->n_objectives; i++)
        if (strcmp(out->objectives[i].name, out->prune_by) == 0) out->prune_max = out->objectives[i].maximise;
    return TN_OK;
}

static tn_status read_rules(const tn_study_reader *r, const tn_yaml *v, tn_study_plan *out)
{
    if (!v) return TN_OK;
    if (v->kind == TN_YAML_MAP) return TN__STUDY_FAIL(r, v, "%s", "rules takes a list: [\"loss > 100\"]");
    const size_t n = v->kind == TN_YAML_LIST ? v->n : 1;
    tn_rule *rules = tn_arena_alloc(r->arena, sizeof *rules * (n + 1));
    const char **texts = tn_arena_alloc(r->arena, sizeof *texts * (n + 1));
    if (!rules || !texts) return TN_MEMORY;
    const tn_yaml *c = v->kind == TN_YAML_LIST ? v->first : v;
    for (size_t i = 0; i < n; i++, c = c->next) {
        if (c->kind != TN_YAML_TEXT) return TN__STUDY_FAIL(r, c, "%s", "a rule is one string: \"loss > 100\"");
        TN_RETURN_IF(tn__study_at(r, tn_rule_parse(c->text, &rules[i]), "rules", c->line));
        texts[i] = c->text;
    }
    out->rules = rules;
    out->rule_texts = texts;
    out->n_rules = n;
    return TN_OK;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

typedef struct top {
    tn_study_plan p;
    const char *base;
    const tn_yaml *set, *search, *sides, *objectives, *sampler, *pruner, *rules, *transfer, *parameters, *published;
} top;

#define AT(member) offsetof(top, member)
static const tn_field top_table[] = {
    { "study", TN_FIELD_TEXT, AT(p.name), 0, 0 },
    { "base", TN_FIELD_TEXT, AT(base), 0, 0 },
    { "set", TN_FIELD_NODE, AT(set), 0, 0 },
    { "search", TN_FIELD_NODE, AT(search), 0, 0 },
    { "sides", TN_FIELD_NODE, AT(sides), 0, 0 },
    { "objectives", TN_FIELD_NODE, AT(objectives), 0, 0 },
    { "sampler", TN_FIELD_NODE, AT(sampler), 0, 0 },
    { "pruner", TN_FIELD_NODE, AT(pruner), 0, 0 },
    { "rules", TN_FIELD_NODE, AT(rules), 0, 0 },
    { "trials", TN_FIELD_COUNT, AT(p.trials), 1, 1e9 },
    { "seconds", TN_FIELD_NUMBER, AT(p.seconds), 0, 1e9 },
    { "trial_seconds", TN_FIELD_NUMBER, AT(p.trial_seconds), 0, 1e9 },
    { "lag", TN_FIELD_COUNT, AT(p.lag), 0, 1e6 },
    { "seed", TN_FIELD_SEED, AT(p.seed), 0, 9e15 },
    { "retries", TN_FIELD_COUNT, AT(p.retries), 0, 100 },
    { "lanes", TN_FIELD_COUNT, AT(p.lanes), 1, 256 },
    { "keep", TN_FIELD_BOOL, AT(p.keep), 0, 0 },
    { "db", TN_FIELD_TEXT, AT(p.db), 0, 0 },
    { "transfer", TN_FIELD_NODE, AT(transfer), 0, 0 },
    { "seeds", TN_FIELD_COUNT, AT(p.seeds), 3, 1000 },
    { "parameters", TN_FIELD_NODE, AT(parameters), 0, 0 },
    { "width", TN_FIELD_TEXT, AT(p.width), 0, 0 },
    { "published", TN_FIELD_NODE, AT(published), 0, 0 },
};
#undef AT

typedef struct transfer {
    const char *from;
    int64_t best;
} transfer;

static const tn_field transfer_table[] = {
    { "from", TN_FIELD_TEXT, offsetof(transfer, from), 0, 0 },
    { "best", TN_FIELD_COUNT, offsetof(transfer, best), 1, 1000 },
};

/* "phase0.db/study": the study's name is behind the last slash. */
static tn_status read_transfer(const tn_study_reader *r, const tn_yaml *v, tn_study_plan *out)
{
    transfer t = { .best = 3 };
    if (!v) return TN_OK;
    TN_RETURN_IF(TN__STUDY_FIELDS(r, v, "transfer", transfer_table, &t));
    const char *slash = t.from ? strrchr(t.from, '/') : NULL;
    if (!slash || slash == t.from || !slash[1])
        return TN__STUDY_FAIL(r, v, "%s", "transfer: from takes DATABASE/STUDY: phase0.db/xor");
    out->from_db = tn_arena_printf(r->arena, "%.*s", (int)(slash - t.from), t.from);
    out->from_study = slash + 1;
    out->from_best = t.best;
    return out->from_db ? TN_OK : TN_MEMORY;
}

/* "parameters: 29.4e6" or "parameters: first". */
static tn_status read_parameters(const tn_study_reader *r, const tn_yaml *v, tn_study_plan *out)
{
    const tn_field number = { "parameters", TN_FIELD_COUNT, 0, 1, 1e15 };
    double x = 0;
    if (out->width && !v) return tn_error(TN_USAGE, "%s: width needs `parameters`: a number, or `first`", r->file);
    if (!v) return TN_OK;
    if (v->kind != TN_YAML_TEXT)
        return TN__STUDY_FAIL(r, v, "%s", "parameters takes a number, or first (as many as the first side has)");
    if (strcmp(v->text, "first") == 0) x = TN_STUDY_FIRST;
    else TN_RETURN_IF(read_number(r, &number, v, &x));
    out->parameters = (int64_t)x;
    return TN_OK;
}

/* Common seeds: of all points there are, so these have to be countable, and nothing is decided before the end. */
static tn_status read_seeds(const tn_study_reader *r, tn_study_plan *out)
{
    int64_t most = 1;
    if (!out->seeds) return TN_OK;
    if (strcmp(out->sampler->name, "grid") != 0)
        return tn_error(
            TN_USAGE,
            "%s: seeds runs every point of a grid: use `sampler: grid`, or `lab compare --seeds=%lld` after a search",
            r->file, (long long)out->seeds);
    if (strcmp(out->pruner->name, "none") != 0)
        return tn_error(TN_USAGE, "%s: seeds and pruner exclude each other: remove pruner", r->file);
    for (size_t i = 0; i < out->n_sides; i++) {
        const int64_t n = out->sampler->count(&out->sides[i].space);
        most = n > most ? n : most;
    }
    if (!out->trials) out->trials = out->sampling.trials = most;
    return TN_OK;
}

static bool shapes_trials(const char *key)
{
    static const char *const budget[] = { "trials", "seconds",  "trial_seconds", "lanes",    "keep",
                                          "db",     "transfer", "seeds",         "published" };
    for (size_t i = 0; i < sizeof budget / sizeof *budget; i++)
        if (strcmp(budget[i], key) == 0) return false;
    return true;
}

static void write_node(FILE *f, const tn_yaml *v, bool outer)
{
    if (v->kind == TN_YAML_TEXT) {
        fprintf(f, "%zu:%s", strlen(v->text), v->text);
        return;
    }
    fputc(v->kind == TN_YAML_MAP ? '{' : '[', f);
    for (const tn_yaml *c = v->first; c; c = c->next) {
        if (outer && !shapes_trials(c->key)) continue;
        fprintf(f, "%s ", c->key);
        write_node(f, c, false);
        fputc(' ', f);
    }
    fputc(v->kind == TN_YAML_MAP ? '}' : ']', f);
}

static tn_status write_fingerprint(const tn_study_reader *r, const tn_yaml *tree, tn_study_plan *out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return tn_error(TN_MEMORY, "out of memory while reading %s", r->file);
    write_node(f, tree, true);
    for (size_t i = 0; i < r->n_overrides; i++) fprintf(f, "\n%s", r->overrides[i]);
    const bool bad = fclose(f) != 0;
    out->fingerprint = bad ? NULL : tn_arena_strdup(r->arena, text);
    free(text);
    return out->fingerprint ? TN_OK : tn_error(TN_MEMORY, "out of memory while reading %s", r->file);
}

static tn_status check_name(const tn_study_reader *r, const char *name)
{
    if (!name) return tn_error(TN_USAGE, "%s has no name: begin it with `study: NAME`", r->file);
    if (strlen(name) > 64 ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") != strlen(name) ||
        *name == '.' || *name == '-')
        return tn_error(TN_USAGE,
                        "study: \"%.70s\" is not a valid name: use letters, digits, _, - and ., at most 64  (%s)", name,
                        r->file);
    return TN_OK;
}

static tn_status read_top(const tn_study_reader *r, const tn_yaml *tree, tn_study_plan *out)
{
    /* So many trials of a side may run beside the one that all others wait for: enough for the cores of most
     * machines, and a tenth of what pruners see of a study of a hundred. It is no machine's number of cores: a study
     * has the same table wherever it runs. */
    enum { LAG = 8 };
    top t = { .p = { .file = r->file, .lag = LAG, .seed = 42 } };
    TN_RETURN_IF(TN__STUDY_FIELDS(r, tree, "a study", top_table, &t));
    TN_RETURN_IF(check_name(r, t.p.name));
    if (!t.p.trials && !t.p.seeds)
        return tn_error(TN_USAGE, "%s has no number of trials per side: add `trials: 100`", r->file);
    *out = t.p;
    TN_RETURN_IF(read_objectives(r, t.objectives, out));
    TN_RETURN_IF(read_sampler(r, t.sampler, out));
    TN_RETURN_IF(read_pruner(r, t.pruner, out));
    TN_RETURN_IF(read_rules(r, t.rules, out));
    TN_RETURN_IF(read_transfer(r, t.transfer, out));
    TN_RETURN_IF(tn__study_sides(r, t.set, t.search, t.sides, t.base, out));
    TN_RETURN_IF(read_parameters(r, t.parameters, out));
    TN_RETURN_IF(read_seeds(r, out));
    for (size_t i = 0; t.published && i < out->n_objectives; i++)
        if (out->objectives[i].by_row)
            return TN__STUDY_FAIL(r, t.published, "%s: add max or min", out->objectives[i].name);
    TN_RETURN_IF(tn__study_published(r, t.published, out));
    return write_fingerprint(r, tree, out);
}

int64_t tn_study_at_once(const tn_study_plan *p, tn_side_set sides)
{
    int64_t least = -1;
    if (strcmp(p->pruner->name, "none") != 0) least = p->pruning.lag;
    if (strcmp(p->sampler->name, "tpe") == 0 && (least < 0 || p->lag < least)) least = p->lag;
    return least < 0 ? 0 : (least + 1) * (int64_t)tn_side_count(sides, p->n_sides);
}

tn_status tn_study_parse(const char *text, size_t bytes, const char *file, const char *const *overrides, size_t n,
                         tn_arena *arena, tn_study_plan *out)
{
    const char *name = tn_arena_strdup(arena, file);
    const tn_yaml *tree;
    if (!name) return TN_MEMORY;
    const tn_study_reader r = { .file = name, .arena = arena, .overrides = overrides, .n_overrides = n };
    TN_RETURN_IF(tn_yaml_parse(text, bytes, name, arena, &tree));
    return read_top(&r, tree, out);
}

tn_status tn_study_read(const char *path, const char *const *overrides, size_t n, tn_arena *arena, char **text,
                        tn_study_plan *out)
{
    char *all;
    size_t bytes;
    TN_RETURN_IF(tn__yaml_load(path, &all, &bytes));
    const tn_status s = tn_study_parse(all, bytes, path, overrides, n, arena, out);
    if (s != TN_OK) {
        tn_free(all);
        return s;
    }
    *text = all;
    return TN_OK;
}
