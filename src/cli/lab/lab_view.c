/* What the reading words share: the database, the study, the file a result goes to. */
#include "cli/lab/lab_view.h"

#include "base/fs.h"
#include "base/text.h"
#include "cli/table_file.h"
#include "lab/study/study.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_study_file(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

/* A study's file stands for its database (--db names another), and for itself in it. */
static tn_status database_of(const tn_cli *c, tn_arena *arena, const char **path, const char **study)
{
    const char *given = tn_args_positional(&c->args, 1), *db = tn_args_value(&c->args, "db");
    tn_study_plan plan;
    char *text = NULL;
    *path = given;
    if (!is_study_file(given)) return TN_OK;
    const tn_status s = tn_study_read(given, NULL, 0, arena, &text, &plan);
    tn_free(text);
    if (s != TN_OK) return s;
    *study = plan.name;
    *path = db ? db : plan.db ? plan.db : tn_arena_printf(arena, "%.*s.db", (int)(strrchr(given, '.') - given), given);
    return *path ? TN_OK : tn_error(TN_MEMORY, "out of memory");
}

static bool same_shape(const tn_study *s, const tn_study_plan *p)
{
    bool same = s->n_sides == p->n_sides && s->n_objectives == p->n_objectives && strcmp(s->name, p->name) == 0;
    for (size_t i = 0; same && i < s->n_sides; i++) same = strcmp(s->sides[i].name, p->sides[i].name) == 0;
    for (size_t k = 0; same && k < s->n_objectives; k++)
        same = strcmp(s->objectives[k].name, p->objectives[k].name) == 0;
    return same;
}

tn_status tn_lab_view_quote(const tn_cli *c, tn_study *s)
{
    const char *given = tn_args_positional(&c->args, 1);
    tn_study_plan plan;
    char *text = NULL;
    if (!is_study_file(given)) return TN_OK;
    TN_RETURN_IF(tn_study_read(given, NULL, 0, &s->arena, &text, &plan));
    tn_free(text);
    if (same_shape(s, &plan)) s->published = plan.published;
    return TN_OK;
}

tn_status tn_lab_view_open(tn_cli *c, size_t min, size_t max, tn_lab_access how, tn_lab_view *out)
{
    const bool write = how == TN_LAB_WRITE, load = how != TN_LAB_BARE;
    tn_lab_view v = { 0 };
    tn_arena arena = { 0 };
    tn_status s = TN_OK;
    const char *path = NULL, *study = tn_args_value(&c->args, "study");
    TN_TRY(tn_args_expect(&c->args, min + 2, max + 2));
    TN_TRY(database_of(c, &arena, &path, &study));
    if (write && access(path, F_OK) != 0)
        TN_TRY(tn_fs_error(TN_BAD_FILE, errno, "open", path)); /* none is made for a mistyped name */
    TN_TRY(tn_lab_open(path, write, &v.lab));
    TN_TRY(tn_lab_verify(v.lab));
    if (load) TN_TRY(tn_lab_load(v.lab, study, &v.study));
    if (load) TN_TRY(tn_lab_view_quote(c, v.study));
    *out = v;
    v = (tn_lab_view){ 0 };
done:
    tn_arena_free(&arena);
    tn_lab_view_close(&v);
    return s;
}

void tn_lab_view_close(tn_lab_view *v)
{
    tn_study_free(v->study);
    tn_lab_close(v->lab);
    *v = (tn_lab_view){ 0 };
}

tn_status tn_lab_view_side(const tn_study *s, const char *flag, const char *name, int *out)
{
    tn_nearest near = { .word = name };
    char sides[256] = "";
    for (size_t i = 0, n = 0; i < s->n_sides; i++) {
        if (strcmp(s->sides[i].name, name) == 0) return *out = (int)i, TN_OK;
        tn_nearest_try(&near, s->sides[i].name);
        if (n < sizeof sides)
            n += (size_t)snprintf(sides + n, sizeof sides - n, "%s%.60s", i ? ", " : "", s->sides[i].name);
    }
    if (near.best)
        return tn_error(TN_USAGE, "--%s=%.64s: study %s has no such side: did you mean %s?", flag, name, s->name,
                        near.best);
    return tn_error(TN_USAGE, "--%s=%.64s: study %s has no such side: it has %s", flag, name, s->name, sides);
}

tn_status tn_lab_view_objective(const tn_cli *c, const tn_study *s, size_t *out)
{
    const char *name = tn_args_value(&c->args, "objective");
    char all[512] = "";
    *out = 0;
    if (!name) return TN_OK;
    for (size_t k = 0; k < s->n_objectives; k++) {
        if (strcmp(s->objectives[k].name, name) == 0) return *out = k, TN_OK;
        const size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, "%s%s", k ? ", " : "", s->objectives[k].name);
    }
    return tn_error(TN_USAGE, "--objective=%.64s: study %s has the objectives %s", name, s->name, all);
}

tn_status tn_lab_view_file(const tn_cli *c, const char *flag, FILE **out)
{
    const char *path = tn_args_value(&c->args, flag);
    *out = c->out;
    return path ? tn_table_open(path, out) : TN_OK;
}

tn_status tn_lab_view_put(const tn_cli *c, const char *flag, FILE *f, tn_status s)
{
    const char *path = tn_args_value(&c->args, flag);
    if (!path) return s;
    s = tn_table_close(path, f, s);
    if (s == TN_OK) fprintf(c->err, "wrote %s\n", path);
    return s;
}
