/* tenon lab across: the sides of several studies in one table, against one of them. A database is a study; what is compared in each is what
 * `tenon lab compare` has run. */
#include "cli/lab/lab_view.h"

#include "base/fs.h"
#include "lab/statistics/across.h"
#include "lab/statistics/standings.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct cell {
    char name[64]; /* of the database, without folder and .db */
    const tn_study *study;
    const tn_standing *v; /* (n) */
    size_t n, seeds;
} cell;

typedef struct table {
    tn_arena arena;
    size_t n, sides; /* studies; sides that are in all of them */
    cell *cell;      /* (n) */
    tn_study **opened;
    const char **side;      /* (sides), in the order of the first study */
    size_t against;         /* among them */
    tn_across_value *value; /* (n, sides) */
    tn_across_side *sum;    /* (sides) */
    size_t *order;          /* (sides): by rank */
} table;

static void name_of(const char *path, char out[64])
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path, *dot = strrchr(file, '.');
    snprintf(out, 64, "%.*s", dot ? (int)(dot - file) : (int)strlen(file), file);
}

/* Before the database itself is opened, which knows nothing of the other files of a study. */
static tn_status check_database(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0))
        return tn_error(TN_USAGE,
                        "%.640s describes a study: name the database with its results (db: in it, or --db of "
                        "`tenon lab run`)",
                        path);
    return access(path, F_OK) == 0 ? TN_OK : tn_fs_error(TN_BAD_FILE, errno, "open", path);
}

/* A study that counts twice would make differences look surer than they are. */
static tn_status check_databases(const tn_cli *c, size_t n)
{
    struct stat a, b;
    for (size_t i = 0; i < n; i++) TN_RETURN_IF(check_database(tn_args_positional(&c->args, i + 1)));
    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < i; k++) {
            const char *one = tn_args_positional(&c->args, k + 1), *other = tn_args_positional(&c->args, i + 1);
            if (stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
                return tn_error(TN_USAGE, "%s and %s are the same file: name each study once", one, other);
        }
    return TN_OK;
}

/* Standings of one database; the study stays open, as they point into it. */
static tn_status read_cell(table *t, const char *path, const char *against, tn_study **study, cell *out)
{
    tn_lab *lab = NULL;
    tn_comparison k;
    tn_standing *v = NULL;
    int other = 0;
    tn_status s = TN_OK;
    name_of(path, out->name);
    TN_TRY(tn_lab_open(path, false, &lab));
    TN_TRY(tn_lab_verify(lab));
    TN_TRY(tn_lab_load(lab, NULL, study));
    TN_TRY(tn_lab_view_side(*study, "against", against, &other));
    const tn_side_set sides = tn_compare_finished(*study);
    if (!sides)
        TN_TRY(tn_error(TN_USAGE, "nothing has been compared in it: run `tenon lab compare %s --against=%s`", path,
                        against));
    TN_TRY(tn_compare_pick(*study, lab, sides, TN_COMPARE_TOP, &t->arena, &k));
    TN_TRY(tn_standings(*study, lab, &k, other, NAN, &t->arena, &v, &out->n));
    out->study = *study, out->v = v, out->seeds = v[0].runs.n;
    for (size_t i = 0; i < out->n; i++) out->seeds = v[i].runs.n < out->seeds ? v[i].runs.n : out->seeds;
done:
    if (s != TN_OK) tn_error_prefix("%s", path);
    tn_lab_close(lab);
    return s;
}

static const tn_standing *standing_of(const cell *c, const char *side)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->study->sides[c->v[i].runs.side].name, side) == 0) return &c->v[i];
    return NULL;
}

/* In how many studies it has results. */
static size_t studies_with(const table *t, const char *side)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        const tn_standing *v = standing_of(&t->cell[i], side);
        n += v && v->runs.n && isfinite(v->mean);
    }
    return n;
}

/* Ranks need every side in every study: one that is missing somewhere is left out, and said. */
static tn_status choose_sides(tn_cli *c, table *t, const char *against)
{
    const tn_study *first = t->cell[0].study;
    bool found = false;
    if (!(t->side = tn_arena_alloc(&t->arena, sizeof *t->side * first->n_sides)))
        return tn_error(TN_MEMORY, "out of memory");
    for (size_t i = 0; i < first->n_sides; i++) {
        const char *name = first->sides[i].name;
        const size_t n = studies_with(t, name);
        if (n && n < t->n)
            fprintf(c->err, "note    %s is left out: it has results in %zu of %zu studies\n", name, n, t->n);
        if (n < t->n) continue;
        if (strcmp(name, against) == 0) t->against = t->sides, found = true;
        t->side[t->sides++] = name;
    }
    if (!found || t->sides < 2)
        return tn_error(
            TN_USAGE,
            "%s and another side must have results in every study: run `tenon lab compare` for those that lack them",
            against);
    return TN_OK;
}

/* Losses and accuracies have no common mean. */
static tn_status same_objective(const table *t)
{
    const tn_objective *first = &t->cell[0].study->objectives[0];
    for (size_t i = 1; i < t->n; i++) {
        const tn_objective *o = &t->cell[i].study->objectives[0];
        if (strcmp(o->name, first->name) != 0)
            return tn_error(TN_USAGE,
                            "%s measures %s and %s measures %s: the first objective must be the same in all studies",
                            t->cell[0].name, first->name, t->cell[i].name, o->name);
    }
    return TN_OK;
}

static tn_status fill(table *t)
{
    t->value = tn_arena_alloc(&t->arena, sizeof *t->value * t->n * t->sides);
    t->sum = tn_arena_alloc(&t->arena, sizeof *t->sum * t->sides);
    t->order = tn_arena_alloc(&t->arena, sizeof *t->order * t->sides);
    if (!t->value || !t->sum || !t->order) return tn_error(TN_MEMORY, "out of memory");
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->sides; k++) {
            const tn_standing *v = standing_of(&t->cell[i], t->side[k]);
            const tn_paired *p = &v->paired;
            t->value[i * t->sides + k] = p->n ? (tn_across_value){ v->mean, p->difference, p->lo, p->hi }
                                              : (tn_across_value){ v->mean, NAN, NAN, NAN };
        }
    TN_RETURN_IF(
        tn_across(t->value, t->n, t->sides, t->against, t->cell[0].study->objectives[0].maximise, &t->arena, t->sum));
    for (size_t k = 0; k < t->sides; k++) { /* few: sorted as they come */
        size_t at = k;
        for (; at > 0 && t->sum[t->order[at - 1]].rank > t->sum[k].rank; at--) t->order[at] = t->order[at - 1];
        t->order[at] = k;
    }
    return TN_OK;
}

/* --- as text -------------------------------------------------------------------------------------------------------- */

static int width_of(const char *head, const char *const *names, size_t n)
{
    size_t w = strlen(head);
    for (size_t i = 0; i < n; i++) w = strlen(names[i]) > w ? strlen(names[i]) : w;
    return (int)w;
}

static void put_sums(tn_cli *c, const table *t)
{
    const int w = width_of("side", t->side, t->sides);
    char minus[64];
    const int head = snprintf(minus, sizeof minus, "minus %.20s", t->side[t->against]), wide = head > 14 ? head : 14;
    fprintf(c->out, "%-*s %9s %6s %5s  %*s %18s %8s\n", w, "side", "mean rank", "better", "worse", wide, minus,
            "95 % interval", "p Holm");
    for (size_t i = 0; i < t->sides; i++) {
        const tn_across_side *s = &t->sum[t->order[i]];
        fprintf(c->out, "%-*s %9.2f", w, t->side[t->order[i]], s->rank);
        if (s->paired.n) {
            char interval[64] = "-";
            if (s->paired.n > 1) snprintf(interval, sizeof interval, "%+.4f..%+.4f", s->paired.lo, s->paired.hi);
            fprintf(c->out, " %6zu %5zu  %+*.4f %18s %8.2g", s->better, s->worse, wide, s->paired.difference, interval,
                    s->p_adjusted);
        }
        fputc('\n', c->out);
    }
}

/* A study in a line; what is shown to be better than the side it is compared with has a +, what is worse a -. */
static void put_cells(tn_cli *c, const table *t)
{
    int w = 5, wide = 9;
    for (size_t i = 0; i < t->n; i++) w = (int)strlen(t->cell[i].name) > w ? (int)strlen(t->cell[i].name) : w;
    const int named = width_of("", t->side, t->sides) + 1;
    wide = named > wide ? named : wide;
    fprintf(c->out, "\n%-*s %5s", w, "study", "seeds");
    for (size_t k = 0; k < t->sides; k++) fprintf(c->out, " %*s ", wide, t->side[t->order[k]]);
    fputc('\n', c->out);
    const bool maximise = t->cell[0].study->objectives[0].maximise;
    for (size_t i = 0; i < t->n; i++) {
        fprintf(c->out, "%-*s %5zu", w, t->cell[i].name, t->cell[i].seeds);
        for (size_t k = 0; k < t->sides; k++) {
            const tn_across_value *v = &t->value[i * t->sides + t->order[k]];
            const char below = maximise ? '-' : '+', above = maximise ? '+' : '-';
            fprintf(c->out, " %*.4f%c", wide, v->mean, v->hi < 0 ? below : v->lo > 0 ? above : ' ');
        }
        fputc('\n', c->out);
    }
}

static void put_text(tn_cli *c, const table *t)
{
    const tn_objective *o = &t->cell[0].study->objectives[0];
    fprintf(c->out,
            "%s on the test split of %zu stud%s (%s is better); of each side its best point on validation, mean over "
            "seeds\n"
            "better, worse: studies in which the 95 %% interval of the difference leaves out 0\n\n",
            o->name, t->n, t->n == 1 ? "y" : "ies", o->maximise ? "more" : "less");
    put_sums(c, t);
    put_cells(c, t);
    fprintf(c->out, "\n+, -: shown to be better or worse than %s in that study\n", t->side[t->against]);
}

/* --- as JSON -------------------------------------------------------------------------------------------------------- */

static tn_status emit(tn_cli *c, const table *t)
{
    const char *other = t->side[t->against], *objective = t->cell[0].study->objectives[0].name;
    for (size_t i = 0; i < t->sides; i++) {
        const tn_across_side *s = &t->sum[t->order[i]];
        json_t *row = json_pack("{s:s, s:s, s:s, s:I, s:f}", "name", "across", "side", t->side[t->order[i]],
                                "objective", objective, "studies", (json_int_t)t->n, "mean_rank", s->rank);
        if (row && s->paired.n) {
            json_object_set_new(row, "against", json_string(other));
            json_object_set_new(row, "better", json_integer((json_int_t)s->better));
            json_object_set_new(row, "worse", json_integer((json_int_t)s->worse));
            json_object_set_new(row, "difference", json_real(s->paired.difference));
            json_object_set_new(row, "lo", tn_number_or_null(s->paired.lo));
            json_object_set_new(row, "hi", tn_number_or_null(s->paired.hi));
            json_object_set_new(row, "p", json_real(s->paired.p));
            json_object_set_new(row, "p_holm", json_real(s->p_adjusted));
        }
        TN_RETURN_IF(tn_cli_emit(c, row));
    }
    for (size_t i = 0; i < t->n * t->sides; i++) {
        const cell *of = &t->cell[i / t->sides];
        const tn_across_value *v = &t->value[i];
        TN_RETURN_IF(tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:I, s:f, s:o, s:o, s:o}", "name", "study", "study",
                                              of->name, "side", t->side[i % t->sides], "seeds", (json_int_t)of->seeds,
                                              "test", v->mean, "difference", tn_number_or_null(v->difference), "lo",
                                              tn_number_or_null(v->lo), "hi", tn_number_or_null(v->hi))));
    }
    return TN_OK;
}

tn_status tn_lab_across(tn_cli *c)
{
    table t = { 0 };
    const char *against = tn_args_value(&c->args, "against");
    tn_status s = TN_OK;
    TN_TRY(tn_args_expect(&c->args, 2, 1 + TN_ACROSS_STUDIES));
    const size_t n = c->args.positional_n - 1;
    TN_TRY(check_databases(c, n));
    if (!against) TN_TRY(tn_error(TN_USAGE, "--against=SIDE is missing: the side that the others are compared with"));
    t.cell = tn_arena_alloc(&t.arena, sizeof *t.cell * n);
    t.opened = tn_arena_alloc(&t.arena, sizeof *t.opened * n);
    if (!t.cell || !t.opened) TN_TRY(tn_error(TN_MEMORY, "out of memory"));
    for (size_t i = 0; i < n; i++) {
        t.n++;
        TN_TRY(read_cell(&t, tn_args_positional(&c->args, i + 1), against, &t.opened[i], &t.cell[i]));
    }
    TN_TRY(same_objective(&t));
    TN_TRY(choose_sides(c, &t, against));
    TN_TRY(fill(&t));
    if (c->json) TN_TRY(emit(c, &t));
    else put_text(c, &t);
done:
    for (size_t i = 0; i < t.n && t.opened; i++) tn_study_free(t.opened[i]);
    tn_arena_free(&t.arena);
    return s;
}
