/* Study files: what is read, whose word wins, and every wrong file with what is said of it. */
#include "lab/study/study.h"

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
    assert_string_not_equal(p.fingerprint, q.fingerprint);
    tn_arena_free(&a);
}

/* Budgets may change between two sessions of a study; what shapes its trials may not. */
static void fingerprint(void **state)
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
        assert_true((strcmp(p.fingerprint, q.fingerprint) == 0) == rows[i].same);
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

/* How far trials may run apart: the study's word, the pruner's own, or the same for every machine. */
static void lags(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t lag, pruner, at_once;
    } rows[] = {
        { "pruner: asha\n", 8, 8, 9 },
        { "pruner: asha\nsides: {a: {}, b: {}}\n", 8, 8, 18 },
        { "pruner: {name: asha, lag: 2}\n", 8, 2, 3 },
        { "pruner: asha\nlag: 0\n", 0, 0, 1 },
        { "pruner: {name: median, lag: 5}\nsampler: tpe\nlag: 3\n", 3, 5, 4 },
        { "sampler: tpe\n", 8, 8, 9 },
        { "sampler: nsga2\n", 8, 8, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tn_arena a = { 0 };
        tn_study_plan p;
        char text[512];
        snprintf(text, sizeof text, "study: s\nbase: xor_tep\ntrials: 3\nsearch: {dim: 4..8}\n%s", rows[i].text);
        assert_ok(parse(text, &a, &p));
        assert_true(p.lag == rows[i].lag && p.sampling.lag == rows[i].lag && p.pruning.lag == rows[i].pruner);
        assert_int_equal(tn_study_at_once(&p, 0), rows[i].at_once);
        assert_int_equal(tn_study_at_once(&p, 1), rows[i].at_once / (int64_t)p.n_sides); /* of one side */
        tn_arena_free(&a);
    }
}

/* Names of sides as a set. */
static void some_sides(void **state)
{
    (void)state;
    static const struct {
        const char *names;
        tn_side_set set;  /* 0: an error */
        const char *text; /* of the set, or in the error */
    } rows[] = {
        { "ten", 1, "ten" },
        { "ten_b,ten", 5, "ten, ten_b" }, /* in the study's order */
        { "ten,gpt,ten_b", 7, "ten, gpt, ten_b" },
        { "te", 0, "--sides=te: study s has no side te; it has ten, gpt, ten_b" },
        { "ten_", 0, "study s has no side ten_; it has" },
        { "ten, gpt", 0, "has no side  gpt; it has" },
        { "gpt,ten,gpt", 0, "--sides=gpt,ten,gpt names gpt twice" },
        { "", 0, "--sides=: a name is missing; study s has ten, gpt, ten_b" },
        { "ten,", 0, "a name is missing" },
        { ",ten", 0, "a name is missing" },
        { "ten,,gpt", 0, "a name is missing" },
    };
    tn_arena a = { 0 };
    tn_study_plan p;
    tn_side_set set = 0;
    char text[64];
    assert_ok(parse("study: s\nbase: xor_tep\ntrials: 3\nsearch: {dim: 4..8}\nsides: {ten: {}, gpt: {}, ten_b: {}}\n",
                    &a, &p));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].set) assert_fails(tn_side_set_parse(&p, rows[i].names, &set), TN_USAGE, rows[i].text);
        else assert_ok(tn_side_set_parse(&p, rows[i].names, &set));
        if (!rows[i].set) continue;
        assert_true(set == rows[i].set);
        assert_string_equal(tn_side_set_text(&p, set, text, sizeof text), rows[i].text);
    }
    assert_string_equal(tn_side_set_text(&p, 0, text, 9), "ten, ...");
    assert_true(tn_side_count(0, 3) == 3 && tn_side_count(5, 3) == 2 && tn_side_in(0, 63) && !tn_side_in(5, 1));
    assert_ok(parse("study: s\nbase: xor_tep\ntrials: 3\nsearch: {dim: 4..8}\n", &a, &p));
    assert_fails(tn_side_set_parse(&p, "ten", &set), TN_USAGE, "study s has no sides: remove --sides");
    tn_arena_free(&a);
}

/* The last of as many as there may be. */
static void most_sides(void **state)
{
    (void)state;
    char text[1024] = "study: s\nbase: xor_tep\ntrials: 3\nsearch: {dim: 4..8}\nsides: {";
    tn_arena a = { 0 };
    tn_study_plan p;
    tn_side_set set;
    size_t at = strlen(text);
    for (int i = 0; i < TN_STUDY_SIDES; i++) at += (size_t)snprintf(text + at, sizeof text - at, "s%d: {}, ", i);
    snprintf(text + at, sizeof text - at, "}\n");
    assert_ok(parse(text, &a, &p));
    assert_ok(tn_side_set_parse(&p, "s63,s0", &set));
    assert_true(set == ((tn_side_set)1 << 63 | 1) && tn_side_in(set, 63) && !tn_side_in(set, 62) &&
                tn_side_count(set, p.n_sides) == 2);
    snprintf(text + at, sizeof text - at, "s64: {}}\n");
    assert_fails(parse(text, &a, &p), TN_USAGE, "at most 64 sides");
    tn_arena_free(&a);
}

static const char quotes[] =
    "published:\n  source: a report\n  winner: tep\n  hours: 8\n  sides:\n    tep:\n      front: 24\n      hours: 0.5\n"
    "      best: { seconds: 1.5 }\n      points:\n        - { accuracy: 0.9, seconds: 16, set: { dim: 13, beta: 0.1 } "
    "}\n"
    "        - { accuracy: 0.95, parameters: 3208 }\n";

/* What others published: values by objective, settings by key, the best of the points where none is said, nothing of
 * a side that is not there. */
static void published(void **state)
{
    (void)state;
    tn_arena a = { 0 };
    tn_study_plan p, q;
    char text[2048];
    snprintf(text, sizeof text, "%s%s", whole, quotes);
    assert_ok(parse(whole, &a, &q));
    assert_null(q.published);
    assert_ok(parse(text, &a, &p));
    assert_string_equal(p.fingerprint, q.fingerprint); /* figures of others shape no trial */
    assert_non_null(p.published);
    assert_string_equal(p.published->source, "a report");
    assert_string_equal(p.published->note, "");
    assert_true(p.published->winner == 0 && p.published->hours == 8);
    const tn_published_side *tep = &p.published->sides[0], *bp = &p.published->sides[1];
    assert_true(tep->front == 24 && tep->hours == 0.5 && tep->n_points == 2);
    assert_true(tep->best[0] == 0.95 && tep->bound[0] && tep->best[1] == 1.5 && !tep->bound[1]);
    assert_true(tep->best[2] == 3208 && tep->bound[2] && isnan(tep->best[3]) && !tep->bound[3]);
    assert_true(tep->points[0].n_set == 2 && isnan(tep->points[0].y[2]) && tep->points[1].n_set == 0);
    assert_string_equal(tep->points[0].set[1], "beta=0.1");
    assert_true(bp->n_points == 0 && bp->front == 0 && isnan(bp->best[0]) && !bp->bound[0]);
    tn_arena_free(&a);
}

typedef struct wrong {
    const char *name, *text;
    tn_status status;
    const char *message;
} wrong;

#define HEAD "study: s\nbase: xor_tep\ntrials: 3\n"
#define QUOTES HEAD "search: {dim: 4..8}\npublished:\n  source: a\n"

static const wrong wrongs[] = {
    { "not yaml", "study: [\n", TN_BAD_FILE, "not valid YAML" },
    { "no name", "base: xor_tep\ntrials: 3\nsearch: {dim: 4..8}\n", TN_USAGE,
      "s.yaml has no name: begin it with `study: NAME`" },
    { "odd name", "study: a/b\ntrials: 3\nsearch: {dim: 4..8}\n", TN_USAGE, "is not a valid name" },
    { "no trials", "study: s\nsearch: {dim: 4..8}\n", TN_USAGE, "has no number of trials per side" },
    { "seeds without a grid", "study: s\nbase: xor_tep\nseeds: 3\nsearch: {dim: [4, 8]}\n", TN_USAGE,
      "use `sampler: grid`" },
    { "too few seeds", HEAD "sampler: grid\nseeds: 2\nsearch: {dim: [4, 8]}\n", TN_USAGE,
      "seeds: 2 is outside 3..1000" },
    { "seeds and a pruner", HEAD "sampler: grid\nseeds: 3\npruner: asha\nsearch: {dim: [4, 8]}\n", TN_USAGE,
      "seeds and pruner exclude each other" },
    { "seeds of a range", "study: s\nbase: xor_tep\nsampler: grid\nseeds: 3\nsearch: {train.lr: log 1e-3..1e-2}\n",
      TN_USAGE, "a grid needs countable values" },
    { "parameters", HEAD "parameters: many\nsearch: {beta: 0.1..0.2}\n", TN_USAGE,
      "parameters: \"many\" is not a number" },
    { "width alone", HEAD "width: dim\nsearch: {beta: 0.1..0.2}\n", TN_USAGE, "width needs `parameters`" },
    { "no such width", HEAD "parameters: first\nwidth: ffn\nsearch: {beta: 0.1..0.2}\n", TN_USAGE,
      "has no setting ffn" },
    { "a width that is searched", HEAD "parameters: 1000\nsearch: {dim: 4..8}\n", TN_USAGE,
      "dim is searched, and `parameters` changes it" },
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
    { "no choice", HEAD "search: {mode: []}\n", TN_USAGE, "a list to search needs a choice  (s.yaml:4)" },
    { "seed", HEAD "search: {seed: 1..8}\n", TN_USAGE,
      "seed cannot be searched: a trial's seed is the study's `seed` plus its number  (s.yaml:4)" },
    { "set seed", HEAD "set: {seed: 1}\nsearch: {dim: 4..8}\n", TN_USAGE, "seed cannot be set" },
    { "model", HEAD "search: {model: [ten, gpt]}\n", TN_USAGE, "give each model a side of its own" },
    { "both", HEAD "set: {dim: 8}\nsearch: {dim: 4..8}\n", TN_USAGE,
      "dim is both set and searched: remove one of them  (s.yaml:5)" },
    { "when", HEAD "search: {dim: {when: mode=block, values: 4..8}}\n", TN_USAGE,
      "no dimension mode comes before this one  (s.yaml:4)" },
    { "dimension key", HEAD "search: {dim: {values: 4..8, wenn: a=b}}\n", TN_USAGE, "a dimension has values and when" },
    { "list in set", HEAD "set: {dim: [1, 2]}\nsearch: {beta: 0.1..0.2}\n", TN_USAGE,
      "put the list under search  (s.yaml:4)" },
    { "search is a list", HEAD "search: [dim]\n", TN_USAGE, "search takes a map" },
    { "sides", HEAD "search: {dim: 4..8}\nsides: [a, b]\n", TN_USAGE, "sides takes a map" },
    { "side key", HEAD "search: {dim: 4..8}\nsides: {a: {sett: {}}}\n", TN_USAGE,
      "unknown key sett: did you mean set?  (s.yaml:5)" },
    { "side name", HEAD "search: {dim: 4..8}\nsides: {a/b: {}}\n", TN_USAGE, "a side is named with letters" },
    { "objective", HEAD "search: {dim: 4..8}\nobjectives: [accuracy up]\n", TN_USAGE,
      "\"up\" is neither max nor min  (s.yaml:5)" },
    { "objective way", HEAD "search: {dim: 4..8}\nobjectives: [residual]\n", TN_USAGE, "residual: add max or min" },
    { "published way",
      HEAD "search: {dim: 4..8}\nobjectives: [residual]\npublished: {source: x, sides: {all: {front: 3}}}\n", TN_USAGE,
      "residual: add max or min  (s.yaml:6)" },
    { "objective twice", HEAD "search: {dim: 4..8}\nobjectives: [loss, loss]\n", TN_USAGE,
      "objective loss is listed twice" },
    { "reference", HEAD "search: {dim: 4..8}\nobjectives: [loss min much]\n", TN_USAGE,
      "the reference \"much\" is not a number" },
    { "sampler", HEAD "search: {dim: 4..8}\nsampler: randon\n", TN_USAGE,
      "unknown sampler randon: did you mean random?  (s.yaml:5)" },
    { "sampler key", HEAD "search: {dim: 4..8}\nsampler: {name: random, sed: 1}\n", TN_USAGE,
      "unknown key sed: did you mean seed?" },
    { "pruner's second", HEAD "search: {dim: 4..8}\npruner: {name: asha, with: seconds}\n", TN_USAGE,
      "with takes only parameters" },
    { "pruner", HEAD "search: {dim: 4..8}\npruner: nona\n", TN_USAGE, "unknown pruner nona: did you mean none?" },
    { "rule", HEAD "search: {dim: 4..8}\nrules: [loss high]\n", TN_USAGE, "(s.yaml:5)" },
    { "number", HEAD "search: {dim: 4..8}\nlag: some\n", TN_USAGE, "lag: \"some\" is not a number  (s.yaml:5)" },
    { "whole", HEAD "search: {dim: 4..8}\nlag: 1.5\n", TN_USAGE, "lag: 1.5 is not a whole number" },
    { "outside", HEAD "search: {dim: 4..8}\nretries: 101\n", TN_USAGE, "retries: 101 is outside 0..100" },
    { "transfer", HEAD "search: {dim: 4..8}\ntransfer: {from: xor}\n", TN_USAGE, "from takes DATABASE/STUDY" },
    { "published without source", HEAD "search: {dim: 4..8}\npublished: {sides: {all: {front: 3}}}\n", TN_USAGE,
      "add the source of the figures" },
    { "published without sides", QUOTES, TN_USAGE, "sides takes a map of figures" },
    { "published side", QUOTES "  sides: {al: {front: 3}}\n", TN_USAGE,
      "unknown published side al: did you mean all?  (s.yaml:7)" },
    { "published key", QUOTES "  sides: {all: {frnt: 3}}\n", TN_USAGE,
      "unknown key frnt: did you mean front?  (s.yaml:7)" },
    { "published objective", QUOTES "  sides: {all: {best: {acuracy: 0.9}}}\n", TN_USAGE,
      "unknown published objective acuracy: did you mean accuracy?  (s.yaml:7)" },
    { "published percent", QUOTES "  sides: {all: {best: {accuracy: 96.67}}}\n", TN_USAGE, "write 0.9667, not 96.67" },
    { "published number", QUOTES "  sides: {all: {best: {accuracy: high}}}\n", TN_USAGE, "\"high\" is not a number" },
    { "published list", QUOTES "  sides: {all: {points: {accuracy: 0.9}}}\n", TN_USAGE, "points takes a list" },
    { "published point", QUOTES "  sides: {all: {points: [0.9]}}\n", TN_USAGE, "take a map of objectives" },
    { "published setting", QUOTES "  sides: {all: {points: [{accuracy: 0.9, set: {dimm: 4}}]}}\n", TN_USAGE,
      "unknown key dimm: did you mean dim?  (s.yaml:7)" },
    { "published value", QUOTES "  sides: {all: {points: [{accuracy: 0.9, set: {dim: much}}]}}\n", TN_USAGE,
      "dim=much" },
    { "published set", QUOTES "  sides: {all: {points: [{accuracy: 0.9, set: [4]}]}}\n", TN_USAGE, "set takes a map" },
    { "published winner", QUOTES "  winner: bp\n  sides: {all: {front: 3}}\n", TN_USAGE, "unknown published side bp" },
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
    char text[2048];
    snprintf(text, sizeof text, "%s%s", whole, quotes);
    for (tn_status s = TN_MEMORY; s != TN_OK;) {
        tn_arena a = { 0 };
        tn_study_plan p;
        tn_alloc_fail_at(++n);
        s = parse(text, &a, &p);
        tn_alloc_fail_at(0);
        if (s != TN_OK && s != TN_MEMORY) fail_msg("allocation %d: status %d, %s", (int)n, (int)s, tn_error_text());
        tn_arena_free(&a);
    }
    assert_true(n > 5);
}

/* A study of common seeds has as many trials a side as its largest grid has points. */
static void seeds_and_sizes(void **state)
{
    (void)state;
    static const char text[] = "study: s\nbase: ten\nsampler: grid\nseeds: 5\nparameters: 2.5e6\nwidth: ffn\n"
                               "search: {train.lr: [1e-3, 3e-3]}\nsides: {a: {}, b: {search: {train.decay: [0, 0.1, "
                               "0.2]}, set: {device: cpu}}}\n";
    tn_arena a = { 0 };
    tn_study_plan p;
    assert_ok(parse(text, &a, &p));
    assert_ok(tn_study_check(&p));
    assert_true(p.seeds == 5 && p.trials == 6 && p.parameters == 2500000);
    assert_string_equal(p.width, "ffn");
    tn_arena_free(&a);
}

void tn_tests_study(tn_test_list *l)
{
    tn_test_add(l, seeds_and_sizes, NULL, "lab/study: common seeds, equal sizes");
    tn_test_add(l, reads, NULL, "lab/study: reads");
    tn_test_add(l, overrides, NULL, "lab/study: the command's words win");
    tn_test_add(l, fingerprint, NULL, "lab/study: what makes it another one");
    tn_test_add(l, some_sides, NULL, "lab/study: some of its sides by name");
    tn_test_add(l, most_sides, NULL, "lab/study: as many sides as a set has bits");
    tn_test_add(l, lags, NULL, "lab/study: how far trials may run apart");
    tn_test_add(l, published, NULL, "lab/study: figures of others");
    tn_test_add(l, points, NULL, "lab/study: a point as settings");
    tn_test_add(l, no_memory, NULL, "lab/study: no memory");
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++)
        tn_test_add(l, refused, &wrongs[i], "lab/study: refuses %s", wrongs[i].name);
}
