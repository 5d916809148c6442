/* Study files: what is read, whose word wins, and every wrong file with what is said of it. */
#include "lab/study.h"

#include "testlib.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static tn_status parse_with(const char *text, const char *const *overrides, size_t n, tn_arena *a, tn_study_plan *p)
{
    TN_RETURN_IF(tn_study_parse(text, strlen(text), "s.yaml", overrides, n, a, p));
    return tn_study_check(p);
}

static tn_status parse(const char *text, tn_arena *a, tn_study_plan *p) { return parse_with(text, NULL, 0, a, p); }

static const char whole[] =
    "study: digits-1\n"
    "base: digits_tep\n"
    "set: { train.epochs: 30, train: { clip: 1 } }\n"
    "search: { dim: log 4..512, train.lr: log 1e-4..1e-1, train.batch: [32, 64, 128, 256] }\n"
    "sides:\n"
    "  tep: { set: { grad: ep_centred }, search: { beta: log 0.01..0.5 } }\n"
    "  bp:\n"
    "    base: digits_bptt\n"
    "    set: { train.batch: 64 }\n"
    "    search: { train.clip: 0.5..2, solver: [picard, anderson], memory: { when: solver=anderson, values: int 3..8 } "
    "}\n"
    "objectives: [ accuracy max 0, seconds min 1000, parameters, residual min ]\n"
    "sampler: { name: random, seed: 7 }\n"
    "pruner: none\n"
    "rules: [ \"loss > 100\", \"residual > 0.5 for 20 steps\" ]\n"
    "trials: 300\nseconds: 28800\ntrial_seconds: 90\nlag: 8\nseed: 43\nretries: 2\nkeep: on\ndb: runs/lab.db\n"
    "transfer: { from: runs/phase0.db/xor, best: 2 }\n";

static const char *value_of(const tn_study_side *s, const char *key)
{
    const char *found = NULL;
    for (size_t i = 0; i < s->n_set; i++)
        if (strncmp(s->set[i], key, strlen(key)) == 0 && s->set[i][strlen(key)] == '=')
            found = s->set[i] + strlen(key) + 1;
    return found;
}

static const tn_dim *dim_of(const tn_study_side *s, const char *key)
{
    for (size_t i = 0; i < s->space.n; i++)
        if (strcmp(s->space.dims[i].key, key) == 0) return &s->space.dims[i];
    return NULL;
}

static void reads(void **state)
{
    (void)state;
    tn_arena a = { 0 };
    tn_study_plan p;
    assert_ok(parse(whole, &a, &p));
    assert_string_equal(p.name, "digits-1");
    assert_string_equal(p.db, "runs/lab.db");
    assert_int_equal(p.n_sides, 2);
    assert_int_equal(p.n_objectives, 4);
    assert_true(p.objectives[0].maximise && p.objectives[0].reference == 0);
    assert_true(!p.objectives[1].maximise && p.objectives[1].reference == 1000);
    assert_true(!p.objectives[2].maximise && isnan(p.objectives[2].reference));
    assert_string_equal(p.objectives[3].name, "residual");
    assert_string_equal(p.sampler->name, "random");
    assert_int_equal(p.sampling.seed, 7);
    assert_int_equal(p.sampling.trials, 300);
    assert_string_equal(p.prune_by, "accuracy");
    assert_true(p.prune_max);
    assert_int_equal(p.n_rules, 2);
    assert_int_equal(p.rules[1].streak, 20);
    assert_true(p.trials == 300 && p.seconds == 28800 && p.trial_seconds == 90 && p.lag == 8 && p.seed == 43 &&
                p.retries == 2 && p.keep);
    assert_string_equal(p.from_db, "runs/phase0.db");
    assert_string_equal(p.from_study, "xor");
    assert_int_equal(p.from_best, 2);

    const tn_study_side *tep = &p.sides[0], *bp = &p.sides[1];
    assert_string_equal(tep->base, "digits_tep");
    assert_string_equal(bp->base, "digits_bptt");
    assert_int_equal(tep->space.n, 4);
    assert_int_equal(dim_of(tep, "dim")->kind, TN_DIM_INT); /* a whole-number setting */
    assert_string_equal(value_of(tep, "train.clip"), "1");
    assert_string_equal(value_of(tep, "grad"), "ep_centred");
    assert_null(dim_of(bp, "train.batch")); /* set by the side */
    assert_string_equal(value_of(bp, "train.batch"), "64");
    assert_null(value_of(bp, "train.clip")); /* searched by the side */
    assert_non_null(dim_of(bp, "train.clip"));
    assert_true(dim_of(bp, "memory")->when >= 0);
    tn_arena_free(&a);
}

static void overrides(void **state)
{
    (void)state;
    static const char *const set[] = { "train.lr=0.01", "solver=anderson" }, *const other[] = { "train.lr=0.01",
                                                                                                "solver=picard" };
    tn_arena a = { 0 };
    tn_study_plan p, q, r;
    assert_ok(parse(whole, &a, &p));
    assert_ok(parse_with(whole, set, 2, &a, &q));
    assert_null(dim_of(&q.sides[0], "train.lr"));
    assert_string_equal(value_of(&q.sides[1], "train.lr"), "0.01");
    assert_null(dim_of(&q.sides[1], "solver"));
    assert_int_equal(dim_of(&q.sides[1], "memory")->when, -1); /* always there now */
    assert_ok(parse_with(whole, other, 2, &a, &r));
    assert_null(dim_of(&r.sides[1], "memory"));
    assert_string_not_equal(p.essence, q.essence);
    tn_arena_free(&a);
}

/* Budgets may change between two sessions of a study; what shapes its trials may not. */
static void essence(void **state)
{
    (void)state;
    tn_arena a = { 0 };
    tn_study_plan p, q;
    static const char lead[] = "study: s\nbase: xor_tep\nsearch: {dim: 4..8}\n";
    char text[512];
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        { "trials: 3\n", "trials: 300\nseconds: 5\ntrial_seconds: 9\nlanes: 4\nkeep: yes\ndb: x.db\n# words\n", true },
        { "trials: 3\n", "trials: 3\nseed: 1\n", false },
        { "trials: 3\n", "trials: 3\nset: {beta: 0.2}\n", false },
        { "trials: 3\nset: {beta: 0.2}\n", "trials: 3\nset: {beta: 0.3}\n", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, "%s%s", lead, rows[i].a);
        assert_ok(parse(text, &a, &p));
        snprintf(text, sizeof text, "%s%s", lead, rows[i].b);
        assert_ok(parse(text, &a, &q));
        assert_true((strcmp(p.essence, q.essence) == 0) == rows[i].same);
    }
    tn_arena_free(&a);
}

static void points(void **state)
{
    (void)state;
    tn_arena a = { 0 };
    tn_study_plan p;
    const char *out[8];
    size_t n;
    assert_ok(parse("study: s\nbase: xor_tep\ntrials: 1\nsearch: {dim: 4..8, beta: log 0.01..0.5, solver: [picard, "
                    "anderson], memory: {when: solver=anderson, values: 3..8}}\n",
                    &a, &p));
    assert_ok(tn_study_point(&p.sides[0], (double[]){ 5, 0.1, 0, NAN }, &a, out, &n));
    assert_int_equal(n, 3);
    assert_string_equal(out[0], "dim=5");
    assert_string_equal(out[1], "beta=0.1");
    assert_string_equal(out[2], "solver=picard");
    assert_ok(tn_study_point(&p.sides[0], (double[]){ 5, 0.1, 1, 4 }, &a, out, &n));
    assert_int_equal(n, 4);
    assert_string_equal(out[3], "memory=4");
    tn_arena_free(&a);
}

typedef struct wrong {
    const char *name, *text;
    tn_status status;
    const char *message;
} wrong;

#define HEAD "study: s\nbase: xor_tep\ntrials: 3\n"

static const wrong wrongs[] = {
    { "not yaml", "study: [\n", TN_BAD_FILE, "not valid YAML" },
    { "no name", "base: xor_tep\ntrials: 3\nsearch: {dim: 4..8}\n", TN_USAGE,
      "s.yaml has no name: begin it with `study: NAME`" },
    { "odd name", "study: a/b\ntrials: 3\nsearch: {dim: 4..8}\n", TN_USAGE, "is no name" },
    { "no trials", "study: s\nsearch: {dim: 4..8}\n", TN_USAGE, "does not say how many trials" },
    { "no search", HEAD, TN_USAGE, "the search has no dimension" },
    { "top key", HEAD "serach: {dim: 4..8}\n", TN_USAGE, "unknown key serach: did you mean search?  (s.yaml:4)" },
    { "base", "study: s\nbase: xor_top\ntrials: 3\nsearch: {dim: 4..8}\n", TN_USAGE,
      "xor_top is neither a preset nor a model" },
    { "unknown key", HEAD "search:\n  dim: 4..8\n  betta: 0.1..1\n", TN_USAGE,
      "unknown key betta: did you mean beta?  (s.yaml:6)" },
    { "unknown set", HEAD "set: {trian.lr: 1}\nsearch: {dim: 4..8}\n", TN_USAGE,
      "unknown key trian.lr: did you mean train.lr?  (s.yaml:4)" },
    { "bad value", HEAD "set: {train.lr: 3e4}\nsearch: {dim: 4..8}\n", TN_USAGE,
      "train.lr=3e4 is outside (0, 1]: did you mean 3e-4?  (s.yaml:4)" },
    { "range end", HEAD "search: {train.lr: log 1e-4..10}\n", TN_USAGE,
      "train.lr=1.0e+01 is outside (0, 1]: did you mean 1.0e-01?  (s.yaml:4)" },
    { "range of words", HEAD "search: {mode: 1..3}\n", TN_USAGE,
      "mode is one of block|energy|toroidal|hopfield: write a list of them to search  (s.yaml:4)" },
    { "range of switches", HEAD "search: {value: 0..1}\n", TN_USAGE, "value is a bool and has no range" },
    { "halves of a whole", HEAD "search: {dim: 4..8.5}\n", TN_USAGE, "both ends must be whole numbers" },
    { "wrong choice", HEAD "search: {mode: [block, enrgy]}\n", TN_USAGE, "mode=enrgy" },
    { "range form", HEAD "search: {dim: 4-8}\n", TN_USAGE, "(s.yaml:4)" },
    { "one choice", HEAD "search: {mode: [block]}\n", TN_USAGE,
      "needs two choices or more; a single value belongs under set:  (s.yaml:4)" },
    { "seed", HEAD "search: {seed: 1..8}\n", TN_USAGE,
      "seed cannot be searched: a trial's seed is the study's `seed` plus its number  (s.yaml:4)" },
    { "set seed", HEAD "set: {seed: 1}\nsearch: {dim: 4..8}\n", TN_USAGE, "seed cannot be set" },
    { "model", HEAD "search: {model: [ten, gpt]}\n", TN_USAGE, "give each model a side of its own" },
    { "both", HEAD "set: {dim: 8}\nsearch: {dim: 4..8}\n", TN_USAGE,
      "dim is both set and searched: leave one of them out  (s.yaml:5)" },
    { "when", HEAD "search: {dim: {when: mode=block, values: 4..8}}\n", TN_USAGE,
      "no dimension mode stands before this one  (s.yaml:4)" },
    { "dimension key", HEAD "search: {dim: {values: 4..8, wenn: a=b}}\n", TN_USAGE, "a dimension has values and when" },
    { "list in set", HEAD "set: {dim: [1, 2]}\nsearch: {beta: 0.1..0.2}\n", TN_USAGE,
      "put the list under search  (s.yaml:4)" },
    { "search is a list", HEAD "search: [dim]\n", TN_USAGE, "search takes keys with values" },
    { "sides", HEAD "search: {dim: 4..8}\nsides: [a, b]\n", TN_USAGE, "sides takes names" },
    { "side key", HEAD "search: {dim: 4..8}\nsides: {a: {sett: {}}}\n", TN_USAGE,
      "unknown key sett: did you mean set?  (s.yaml:5)" },
    { "side name", HEAD "search: {dim: 4..8}\nsides: {a/b: {}}\n", TN_USAGE, "a side is named with letters" },
    { "objective", HEAD "search: {dim: 4..8}\nobjectives: [accuracy up]\n", TN_USAGE,
      "\"up\" is neither max nor min  (s.yaml:5)" },
    { "objective way", HEAD "search: {dim: 4..8}\nobjectives: [residual]\n", TN_USAGE,
      "residual: say whether it should be max or min" },
    { "objective twice", HEAD "search: {dim: 4..8}\nobjectives: [loss, loss]\n", TN_USAGE,
      "loss is an objective twice" },
    { "reference", HEAD "search: {dim: 4..8}\nobjectives: [loss min much]\n", TN_USAGE,
      "the reference \"much\" is not a number" },
    { "sampler", HEAD "search: {dim: 4..8}\nsampler: randon\n", TN_USAGE,
      "there is no sampler randon: did you mean random?  (s.yaml:5)" },
    { "sampler key", HEAD "search: {dim: 4..8}\nsampler: {name: random, sed: 1}\n", TN_USAGE,
      "unknown key sed: did you mean seed?" },
    { "pruner's second", HEAD "search: {dim: 4..8}\npruner: {name: asha, with: seconds}\n", TN_USAGE,
      "only parameters are known" },
    { "pruner", HEAD "search: {dim: 4..8}\npruner: nona\n", TN_USAGE, "there is no pruner nona: did you mean none?" },
    { "rule", HEAD "search: {dim: 4..8}\nrules: [loss high]\n", TN_USAGE, "(s.yaml:5)" },
    { "number", HEAD "search: {dim: 4..8}\nlag: some\n", TN_USAGE, "lag: \"some\" is not a number  (s.yaml:5)" },
    { "whole", HEAD "search: {dim: 4..8}\nlag: 1.5\n", TN_USAGE, "lag: 1.5 is not a whole number" },
    { "outside", HEAD "search: {dim: 4..8}\nretries: 101\n", TN_USAGE, "retries: 101 is outside 0..100" },
    { "transfer", HEAD "search: {dim: 4..8}\ntransfer: {from: xor}\n", TN_USAGE,
      "from names a database and a study in it" },
    { "keep", HEAD "search: {dim: 4..8}\nkeep: maybe\n", TN_USAGE, "keep is true or false" },
};

static void refused(void **state)
{
    const wrong *w = *state;
    tn_arena a = { 0 };
    tn_study_plan p;
    assert_fails(parse(w->text, &a, &p), w->status, w->message);
    assert_null(strchr(tn_error_text(), '\n'));
    tn_arena_free(&a);
}

static void no_memory(void **state)
{
    (void)state;
    uint64_t n = 0;
    for (tn_status s = TN_MEMORY; s != TN_OK;) {
        tn_arena a = { 0 };
        tn_study_plan p;
        tn_alloc_fail_at(++n);
        s = parse(whole, &a, &p);
        tn_alloc_fail_at(0);
        if (s != TN_OK && s != TN_MEMORY) fail_msg("allocation %d: status %d, %s", (int)n, (int)s, tn_error_text());
        tn_arena_free(&a);
    }
    assert_true(n > 5);
}

void tn_tests_study(tn_test_list *l)
{
    tn_test_add(l, reads, NULL, "lab/study: reads");
    tn_test_add(l, overrides, NULL, "lab/study: the command's words win");
    tn_test_add(l, essence, NULL, "lab/study: what makes it another one");
    tn_test_add(l, points, NULL, "lab/study: a point as settings");
    tn_test_add(l, no_memory, NULL, "lab/study: no memory");
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++)
        tn_test_add(l, refused, &wrongs[i], "lab/study: refuses %s", wrongs[i].name);
}
