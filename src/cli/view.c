/* Sessions and metrics on the screen; metrics as JSON Lines. */
#include "cli/view.h"

#include "backend/cpu/gemm.h"

#include <locale.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

/* --- sessions ---------------------------------------------------------------------------------------------------------- */

const char *tn_bytes_text(double bytes, char buf[24])
{
    const char *unit = bytes >= 1e9 ? "GB" : bytes >= 1e6 ? "MB" : bytes >= 1e3 ? "kB" : "B";
    const double x = bytes >= 1e9 ? bytes / 1e9 : bytes >= 1e6 ? bytes / 1e6 : bytes >= 1e3 ? bytes / 1e3 : bytes;
    snprintf(buf, 24, "%.*f %s", bytes >= 1e3 ? 1 : 0, x, unit);
    return buf;
}

void tn_cli_expanded(tn_cli *c, const char *file, const tn_matrices *m)
{
    struct stat st;
    char there[24], here[24];
    if (!m->expanded) return;
    tn_bytes_text(stat(file, &st) == 0 ? (double)st.st_size : 0, there);
    tn_bytes_text((double)tn_dtype_bytes(m->type) * m->numbers, here);
    fprintf(c->err, "note: quantised weights are expanded to %s: %s in the file, %s in memory\n",
            tn_dtype_name(m->type), there, here);
}

void tn_session_describe(tn_session *s, FILE *f)
{
    char count[16], memory[512], dropout[TN_DROPOUT_AUTO_TEXT];
    const char *why;
    int refused;
    const tn_memory_plan m = tn_trainer_memory(s->trainer);
    const int threads = tn_trainer_threads(s->trainer);
    if (tn_trainer_device(s->trainer) == TN_CUDA) fprintf(f, "device  cuda\n");
    else fprintf(f, "device  cpu, %d thread%s, %s\n", threads, threads > 1 ? "s" : "", tn_gemm_kernel_name());
    fprintf(f, "model   %s, %s parameters", s->model->name,
            tn_count_text((double)tn_trainer_parameters(s->trainer), count));
    if (s->width.text[0]) fprintf(f, " (%s)", s->width.text);
    if (!tn_model_reads_sequences(s->model)) fprintf(f, ", %lld samples a step\n", (long long)s->batch);
    else fprintf(f, ", %lld x %lld tokens a step\n", (long long)s->batch, (long long)s->length);
    if (s->source.ctx) s->source.about(s->source.ctx, f);
    if ((refused = tn_trainer_shapes_refused(s->trainer, &why)))
        fprintf(f, "shapes  %d of %d are refused by the model, and their batches are padded to the largest: %s\n",
                refused, s->source.n_shapes, why);
    if (*tn_dropout_auto_text(&s->dropout, s->settings, dropout)) fprintf(f, "%s\n", dropout);
    fprintf(f, "memory  %s\n", tn_memory_plan_text(&m, memory, sizeof memory));
    tn_session_describe_ladder(s, 0, f);
}

void tn_session_describe_ladder(const tn_session *s, size_t from, FILE *f)
{
    for (size_t i = from; i < s->ladder.n; i++) fprintf(f, "memory  %s\n", s->ladder.line[i]);
}

/* --- metrics ----------------------------------------------------------------------------------------------------------- */

const char *tn_score_unit(const tn_metric_row *r, const char *counts, char buf[40])
{
    const bool each = tn_metric_is_nats(r) && strcmp(counts, "tokens") == 0;
    snprintf(buf, 40, "%.24s%s", tn_metric_unit(r), each ? "/token" : "");
    return buf;
}

double tn_score_scale(const tn_metric_list *l, double bits)
{
    return !tn_metric_is_nats(l->row[0]) ? 1 : isnan(bits) ? 1 / log(2) : bits;
}

const char *tn_score_axis(const tn_metric_list *l, double bits, char buf[64])
{
    const tn_metric_row *r = l->row[0];
    if (tn_metric_is_nats(r)) snprintf(buf, 64, "bits per %s", isnan(bits) ? "token" : "byte");
    else snprintf(buf, 64, "%.24s%s%.24s", r->name, *tn_metric_unit(r) ? ", " : "", tn_metric_unit(r));
    return buf;
}

/* "bits per byte" */
static void print_words(FILE *f, const char *name)
{
    for (; *name; name++) fputc(*name == '_' ? ' ' : *name, f);
}

const char *tn_score_text(double x, int decimals, char buf[24])
{
    const bool small = x != 0 && fabs(x) < fmin(0.1, pow(10, 2 - decimals));
    if (isnan(x)) snprintf(buf, 24, "NaN");
    else if (fabs(x) >= 1e15) snprintf(buf, 24, "%.*e", decimals, x);
    else snprintf(buf, 24, small ? "%#.*g" : "%.*f", small ? 3 : decimals, x);
    return buf;
}

/* Scores stand in the order of rows, groups behind theirs. */
static void print_groups(FILE *f, const tn_scores *s, size_t *i, const char *name)
{
    const char *lead = " (";
    const size_t n = strlen(name);
    char text[24];
    for (; *i < s->n && strncmp(s->at[*i].name, name, n) == 0 && s->at[*i].name[n] == '_'; ++*i) {
        if (isnan(s->at[*i].value)) continue;
        fprintf(f, "%s%s %s", lead, s->at[*i].name + n + 1, tn_score_text(s->at[*i].value, 4, text));
        lead = ", ";
    }
    if (lead[0] == ',') fputc(')', f);
}

static void print_first(FILE *f, const tn_metric_row *r, double value, const char *counts, bool brief)
{
    char text[24];
    tn_score_text(value, 4, text);
    if (!*tn_metric_unit(r)) fprintf(f, "%s %s", r->name, text);
    else fprintf(f, "%s %s", text, r->unit);
    if (!brief && tn_metric_is_nats(r) && strcmp(counts, "tokens") == 0) fputs(" per token", f);
}

void tn_scores_print(FILE *f, const tn_metric_list *l, const tn_scores *s, const char *counts, bool brief)
{
    char text[24];
    for (size_t i = 0; i < s->n;) {
        const double x = s->at[i].value;
        const char *name = s->at[i++].name;
        const tn_metric_row *r = tn_metric_find(l, name);
        if (!r) continue;
        if (r == l->row[0]) print_first(f, r, x, counts, brief);
        else if (!isnan(x) && tn_metric_is_other_unit(r)) {
            fprintf(f, brief ? " (%s " : ", %s ", tn_score_text(x, brief ? 3 : 4, text));
            print_words(f, name);
            if (brief) fputc(')', f);
        } else if (!isnan(x))
            fprintf(f, ", %s %s%s%s", name, tn_score_text(x, 4, text), *tn_metric_unit(r) ? " " : "",
                    tn_metric_unit(r));
        if (r->by_group) print_groups(f, s, &i, r->name);
    }
}

tn_status tn_scores_emit(tn_cli *c, const tn_metric_list *l, const tn_scores *s, const char *lead, const char *counts,
                         const char *split)
{
    char name[TN_SCORE_KEY], unit[40];
    for (size_t i = 0; i < s->n; i++) {
        const tn_metric_row *r = tn_metric_find(l, s->at[i].name);
        if (!r || isnan(s->at[i].value)) continue;
        snprintf(name, sizeof name, "%s%s", lead, s->at[i].name);
        TN_RETURN_IF(
            tn_cli_emit(c, json_pack("{s:s, s:s*, s:o, s:s}", "name", name, "split", split, "value",
                                     tn_number_or_null(s->at[i].value), "unit", tn_score_unit(r, counts, unit))));
    }
    return TN_OK;
}

void tn_chart_fit(tn_plot *p, const tn_term *t, int rows)
{
    const char *lang = setlocale(LC_CTYPE, "");
    p->width = t->width < 32 ? 32 : t->width < 100 ? t->width : 100;
    p->height = rows;
    p->colour = t->color;
    p->ascii = !lang || !strstr(lang, "UTF-8");
}
