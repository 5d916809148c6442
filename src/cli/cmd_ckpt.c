/* tenon ckpt: looks into checkpoints, checks them, removes those that are not needed, converts weights. */
#include "base/text.h"
#include "cli/view.h"
#include "train/run/checkpoint_convert.h"
#include "train/run/run.h"
#include "train/run/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- inspect --------------------------------------------------------------------------------------------------------- */

/* "1.2345 nats", with what the best is chosen by. */
static const char *scores_text(const tn_ckpt_entry *e, char *buf, size_t bytes)
{
    const tn_scores *s = &e->scores;
    char text[24];
    size_t n = (size_t)snprintf(buf, bytes, isnan(tn_scores_first(s)) ? "-" : "%s%s%s",
                                tn_score_text(tn_scores_first(s), 4, text), e->unit[0] ? " " : "", e->unit);
    for (size_t i = 1; i < s->n && n < bytes; i++)
        if (strcmp(s->at[i].name, e->select) == 0)
            n += (size_t)snprintf(buf + n, bytes - n, ", %s %s", s->at[i].name, tn_score_text(s->at[i].value, 4, text));
    return buf;
}

static tn_status emit_entry(tn_cli *c, const tn_ckpt_entry *e)
{
    char unit[40];
    snprintf(unit, sizeof unit, "%s%s", e->unit, strcmp(e->unit, "nats") == 0 ? "/token" : "");
    json_t *row =
        json_pack("{s:s, s:I, s:o, s:s, s:I, s:b, s:b, s:b}", "name", "checkpoint", "step", (json_int_t)e->step,
                  "heldout", tn_number_or_null(tn_scores_first(&e->scores)), "unit", unit, "bytes",
                  (json_int_t)e->bytes, "whole", e->complete, "latest", e->latest, "best", e->best);
    int bad = !row;
    for (size_t i = 1; i < e->scores.n && !bad; i++)
        bad = json_object_set_new(row, e->scores.at[i].name, tn_number_or_null(e->scores.at[i].value));
    if (bad) json_decref(row);
    return tn_cli_emit(c, bad ? NULL : row);
}

static tn_status show_list(tn_cli *c, const char *run, const tn_ckpt_list *l)
{
    char size[24], heldout[120];
    if (!c->json) fprintf(c->out, "run         %s\n", run);
    for (size_t i = 0; i < l->n; i++) {
        const tn_ckpt_entry *e = &l->entry[i];
        if (c->json) {
            TN_RETURN_IF(emit_entry(c, e));
            continue;
        }
        fprintf(c->out, "checkpoint  step-%-10lld held out %-14s %10s%s%s%s\n", (long long)e->step,
                scores_text(e, heldout, sizeof heldout), tn_bytes_text((double)e->bytes, size),
                e->latest ? "  latest" : "", e->best ? "  best" : "", e->complete ? "" : "  damaged");
    }
    return TN_OK;
}

/* A checkpoint, all of it read before any of it is shown: a run may remove it meanwhile. */
typedef struct inspected {
    json_t *manifest; /* NULL: a file of tensors */
    tn_ckpt_state state;
    tn_tensors tensors;
} inspected;

static void forget(inspected *x)
{
    json_decref(x->manifest);
    tn_ckpt_state_free(&x->state);
    tn_tensors_close(&x->tensors);
    *x = (inspected){ 0 };
}

static tn_status read_all(const char *path, bool is_file, inspected *x)
{
    tn_status s = TN_OK;
    if (!is_file) TN_TRY(tn_ckpt_read_manifest(path, &x->manifest));
    if (!is_file) TN_TRY(tn_ckpt_read_state(path, &x->state));
    TN_TRY(tn_tensors_open(path, &x->tensors));
done:
    if (s != TN_OK) forget(x);
    return s;
}

/* A manifest is a file: what should be a text may be something else. */
static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "?";
}

static const char *number(double x, char buf[24]) { return isnan(x) ? "-" : tn_score_text(x, 4, buf); }

/* What was measured when it was saved; nothing of it is in files of before. */
static void show_measured(const tn_cli *c, const tn_ckpt_state *st)
{
    const bool samples = st->samples_per_s > 0;
    const double rate = samples ? st->samples_per_s : st->tokens_per_s;
    char text[24], size[2][24];
    if (rate > 0) {
        fprintf(c->out, "speed       %s %s/s", tn_count_text(rate, text), samples ? "samples" : "tokens");
        if (st->utilisation > 0) fprintf(c->out, ", %.0f %% of the machine's peak", 100 * st->utilisation);
        fputc('\n', c->out);
    }
    if (st->planned_bytes > 0) {
        fprintf(c->out, "memory      %s planned", tn_bytes_text(st->planned_bytes, size[0]));
        if (st->peak_bytes > 0) fprintf(c->out, ", %s at most", tn_bytes_text(st->peak_bytes, size[1]));
        fputc('\n', c->out);
    }
    if (st->evaluating >= 0)
        fprintf(c->out, "time        %s s: %s in steps, %s evaluating, %s saving before\n", TN_NUMBER(st->seconds),
                TN_NUMBER(st->working), TN_NUMBER(st->evaluating), TN_NUMBER(st->saving));
}

static int set_number(json_t *row, const char *key, double x)
{
    return json_object_set_new(row, key, tn_number_or_null(x));
}

static tn_status emit_state(tn_cli *c, const tn_ckpt_state *st, const json_t *manifest)
{
    json_t *row = json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:I, s:s, s:s, s:s}", "name", "state", "step",
                            (json_int_t)st->step, "tokens", (json_int_t)st->tokens, "loss", tn_number_or_null(st->loss),
                            "heldout", tn_number_or_null(tn_scores_first(&st->now)), "best",
                            tn_number_or_null(tn_scores_first(&st->best)), "seed", (json_int_t)st->seed, "tenon",
                            text_of(manifest, "tenon"), "time", text_of(manifest, "time"), "settings", st->settings);
    const struct {
        const char *key;
        double value;
    } more[] = { { "tokens_per_s", st->tokens_per_s },
                 { "samples_per_s", st->samples_per_s },
                 { "utilisation", st->utilisation },
                 { "planned_bytes", st->planned_bytes },
                 { "peak_bytes", st->peak_bytes },
                 { "seconds", st->seconds },
                 { "working_s", st->working },
                 { "evaluating_s", st->evaluating },
                 { "saving_s", st->saving } };
    int bad = !row;
    for (size_t i = 0; i < sizeof more / sizeof *more && !bad; i++) bad = set_number(row, more[i].key, more[i].value);
    if (bad) json_decref(row);
    return tn_cli_emit(c, bad ? NULL : row);
}

static tn_status show_state(tn_cli *c, const inspected *x)
{
    const tn_ckpt_state st = x->state;
    const json_t *manifest = x->manifest;
    const json_t *said = json_object_get(json_object_get(manifest, "metrics"), "unit"); /* where it is not nats */
    const char *unit = isnan(tn_scores_first(&st.best)) ? "" : json_is_string(said) ? json_string_value(said) : "nats";
    char size[24], text[3][24];
    const char *name;
    json_t *v;
    tn_status s = TN_OK;
    if (c->json) {
        s = emit_state(c, &st, manifest);
    } else {
        fprintf(c->out, "step        %lld, %lld tokens, seed %lld\n", (long long)st.step, (long long)st.tokens,
                (long long)st.seed);
        fprintf(c->out, "metrics     loss %s, held out %s, best so far %s%s%s at step %lld\n", number(st.loss, text[0]),
                number(tn_scores_first(&st.now), text[1]), number(tn_scores_first(&st.best), text[2]), *unit ? " " : "",
                unit, (long long)st.best_step);
        for (size_t i = 1; i < st.now.n; i++)
            fprintf(c->out, "            %s %s, best so far %s\n", st.now.at[i].name,
                    number(st.now.at[i].value, text[0]), number(tn_scores_get(&st.best, st.now.at[i].name), text[1]));
        show_measured(c, &st);
        fprintf(c->out, "made        %s by tenon %s, settings %s\n", text_of(manifest, "time"),
                text_of(manifest, "tenon"), st.settings);
        json_object_foreach(json_object_get(manifest, "files"), name, v)
            fprintf(c->out, "file        %-24s %10s\n", name,
                    tn_bytes_text((double)json_integer_value(json_object_get(v, "bytes")), size));
    }
    return s;
}

static tn_status show_tensors(tn_cli *c, const inspected *whole)
{
    const tn_tensors t = whole->tensors;
    char dims[128], size[24], name[200];
    double count = 0, bytes = 0;
    tn_status s = TN_OK;
    for (size_t i = 0; i < t.n && s == TN_OK; i++) {
        const tn_file_tensor *x = &t.tensor[i];
        tn_text_quote(x->name, name, sizeof name);
        tn_dims_text(x->dims, dims, sizeof dims);
        count += (double)tn_dims_count(x->dims);
        bytes += (double)x->bytes;
        if (c->json)
            s = tn_cli_emit(c, json_pack("{s:s, s:s, s:s, s:s, s:I, s:I}", "name", "tensor", "tensor", name, "dtype",
                                         tn_dtype_name(x->dtype), "shape", dims, "count",
                                         (json_int_t)tn_dims_count(x->dims), "bytes", (json_int_t)x->bytes));
        else
            fprintf(c->out, "tensor      %-32s %-5s %-16s %10s\n", name, tn_dtype_name(x->dtype), dims,
                    tn_bytes_text((double)x->bytes, size));
    }
    if (s == TN_OK && c->json)
        s = tn_cli_emit(c, json_pack("{s:s, s:I, s:I, s:I}", "name", "parameters", "value", (json_int_t)count,
                                     "tensors", (json_int_t)t.n, "bytes", (json_int_t)bytes));
    else if (s == TN_OK)
        fprintf(c->out, "parameters  %.0f in %zu tensors, %s\n", count, t.n, tn_bytes_text(bytes, size));
    return s;
}

tn_status tn_cmd_ckpt_inspect(tn_cli *c)
{
    tn_status s = TN_OK;
    const char *path = tn_args_positional(&c->args, 1);
    char found[TN_PATH_BYTES], note[TN_CKPT_NOTE];
    bool is_file;
    tn_ckpt_list l = { 0 };
    inspected x = { 0 };
    TN_RETURN_IF(tn_args_expect(&c->args, 2, 2));
    TN_RETURN_IF(tn_ckpt_resolve(path, "latest", found, &is_file, note));
    TN_RETURN_IF(tn_cli_warn(c, note));
    tn_ckpt_id seen = tn_ckpt_id_of(found);
    do s = read_all(found, is_file, &x);
    while (s == TN_BAD_FILE && tn_ckpt_replaced(path, "latest", found, &seen));
    TN_TRY(s);
    if (!is_file && strcmp(found, path) != 0) { /* a run: its list, then its newest */
        TN_TRY(tn_ckpt_list_read(path, &l));
        TN_TRY(show_list(c, path, &l));
    }
    if (!is_file) TN_TRY(show_state(c, &x));
    TN_TRY(show_tensors(c, &x));
done:
    tn_ckpt_list_free(&l);
    forget(&x);
    return s;
}

/* --- verify ---------------------------------------------------------------------------------------------------------- */

static tn_status say_verdict(tn_cli *c, const char *path, tn_status verdict)
{
    const char *text = verdict == TN_OK ? "" : tn_error_text();
    if (c->json)
        return tn_cli_emit(c, json_pack("{s:s, s:s, s:b, s:s}", "name", "checkpoint", "path", path, "whole",
                                        verdict == TN_OK, "error", text));
    fprintf(c->out, "%-8s %s%s%s\n", verdict == TN_OK ? "ok" : "damaged", path, *text ? ": " : "", text);
    return TN_OK;
}

/* Every checkpoint of a run; the first damage is the command's error. *said: how many there were to say something about. */
static tn_status verify_list(tn_cli *c, const char *run, size_t *said)
{
    tn_status s = TN_OK;
    tn_ckpt_list l = { 0 };
    char first[1024] = "", path[TN_PATH_BYTES], name[TN_CKPT_NAME];
    tn_ckpt_id was;
    TN_TRY(tn_ckpt_list_read(run, &l));
    if (l.n == 0) TN_FAIL(TN_BAD_FILE, "%.640s contains no checkpoint", run);
    for (size_t i = 0; i < l.n; i++) {
        TN_TRY(tn_path_join(run, tn_ckpt_name(l.entry[i].step, name), path, sizeof path));
        const bool seen = tn__ckpt_id_read(path, &was);
        const tn_status verdict = tn_ckpt_verify(path);
        if (verdict == TN_BAD_FILE && (!seen || tn__ckpt_gone(path, &was)))
            continue; /* removed by its run, not damaged */
        if (verdict != TN_OK && !first[0]) snprintf(first, sizeof first, "%s", tn_error_text());
        TN_TRY(say_verdict(c, path, verdict));
        ++*said;
    }
    if (first[0]) s = tn_error(TN_BAD_FILE, "%s", first);
done:
    tn_ckpt_list_free(&l);
    return s;
}

static tn_status verify_run(tn_cli *c, const char *run)
{
    size_t said = 0;
    tn_status s = TN_OK;
    for (int i = 0; i < 100 && s == TN_OK && said == 0; i++)
        s = verify_list(c, run, &said); /* all may have been removed meanwhile */
    return s;
}

tn_status tn_cmd_ckpt_verify(tn_cli *c)
{
    const char *path = tn_args_positional(&c->args, 1);
    char manifest[TN_PATH_BYTES];
    tn_tensors t = { 0 };
    TN_RETURN_IF(tn_args_expect(&c->args, 2, 2));
    TN_RETURN_IF(tn_path_join(path, "manifest.json", manifest, sizeof manifest));
    const bool is_checkpoint = access(manifest, F_OK) == 0;
    tn_ckpt_list l = { 0 };
    if (!is_checkpoint && tn_ckpt_list_read(path, &l) == TN_OK && l.n > 0) {
        tn_ckpt_list_free(&l);
        return verify_run(c, path);
    }
    tn_status s = is_checkpoint ? tn_ckpt_verify(path) : tn_tensors_open(path, &t);
    tn_tensors_close(&t);
    if (s != TN_OK) return s;
    return say_verdict(c, path, TN_OK);
}

/* --- prune and convert: small tables of their own for key=value ------------------------------------------------------ */

static tn_status read_keys(tn_cli *c, const tn_setting *rows, size_t n, tn_settings **out)
{
    tn_status s = TN_OK;
    tn_settings *st = NULL;
    TN_TRY(tn_settings_new(&st));
    TN_TRY(tn_settings_add(st, rows, n, "ckpt"));
    for (size_t i = 0; i < c->args.overrides_n; i++) TN_TRY(tn_settings_override(st, c->args.overrides[i]));
    *out = st;
    st = NULL;
done:
    tn_settings_free(st);
    return s;
}

static tn_status say_pruned(tn_cli *c, const char *run, const tn_ckpt_entry *e, bool dry)
{
    char size[24];
    if (c->json)
        return tn_cli_emit(c, json_pack("{s:s, s:I, s:b, s:b, s:I, s:b}", "name", "checkpoint", "step",
                                        (json_int_t)e->step, "kept", e->keep, "whole", e->complete, "bytes",
                                        (json_int_t)e->bytes, "dry_run", dry));
    fprintf(c->out, "%-13s %s/step-%lld  %s%s\n",
            e->keep ? "kept"
            : dry   ? "would remove"
                    : "removed",
            run, (long long)e->step, tn_bytes_text((double)e->bytes, size),
            !e->complete ? "  damaged: not removed"
            : e->other   ? "  contains other files: not removed"
                         : "");
    return TN_OK;
}

/* Checksums too: a damaged checkpoint must not count as one that stays. */
tn_status tn_cmd_ckpt_prune(tn_cli *c)
{
    static const tn_setting rows[] = {
        TN_SETTING_INT("keep_best", "1", TN_RANGE(0, 1e9), "checkpoints",
                       "checkpoints with the lowest held-out loss to keep"),
        TN_SETTING_INT("keep_latest", "2", TN_RANGE(0, 1e9), "checkpoints", "newest checkpoints to keep"),
    };
    tn_status s = TN_OK;
    const char *run = tn_args_positional(&c->args, 1);
    const bool dry = tn_args_flag(&c->args, "dry-run");
    char path[TN_PATH_BYTES], name[TN_CKPT_NAME];
    tn_settings *st = NULL;
    tn_ckpt_list l = { 0 };
    int lock = -1;
    TN_TRY(tn_args_expect(&c->args, 2, 2));
    TN_TRY(read_keys(c, rows, 2, &st));
    TN_TRY(tn_ckpt_list_read(run, &l));
    if (l.n == 0) TN_FAIL(TN_BAD_FILE, "%.640s contains no checkpoint: name a run's directory", run);
    if (!dry) TN_TRY(tn_run_lock(run, 0, &lock));
    TN_TRY(tn_run_folder_check(run));
    for (size_t i = 0; i < l.n; i++) {
        TN_TRY(tn_path_join(run, tn_ckpt_name(l.entry[i].step, name), path, sizeof path));
        l.entry[i].complete = tn_ckpt_verify(path) == TN_OK;
    }
    tn_ckpt_list_mark(&l, tn_settings_int(st, "keep_latest"), tn_settings_int(st, "keep_best"), INT64_MAX);
    if (!dry) TN_TRY(tn_ckpt_list_prune(run, &l, INT64_MAX));
    for (size_t i = 0; i < l.n; i++) TN_TRY(say_pruned(c, run, &l.entry[i], dry));
done:
    if (lock >= 0) close(lock);
    tn_ckpt_list_free(&l);
    tn_settings_free(st);
    return s;
}

tn_status tn_cmd_ckpt_convert(tn_cli *c)
{
    static const tn_setting rows[] = {
        TN_SETTING_CHOICE("dtype", "same", "same|f32|bf16|f16", "type of floating tensors in OUT"),
        TN_SETTING_TEXT("model", "", "path of the shared object that the run was trained with")
    };
    tn_settings *st = NULL;
    const char *model = NULL;
    TN_RETURN_IF(tn_args_expect(&c->args, 3, 3));
    TN_RETURN_IF(read_keys(c, rows, 2, &st));
    for (size_t i = 0; i < c->args.overrides_n; i++)
        if (strncmp(c->args.overrides[i], "model=", 6) == 0) model = c->args.overrides[i];
    const char *name = tn_settings_text(st, "dtype"), *in = tn_args_positional(&c->args, 1),
               *out = tn_args_positional(&c->args, 2);
    const tn_dtype dtype = strcmp(name, "f32") == 0    ? TN_F32
                           : strcmp(name, "bf16") == 0 ? TN_BF16
                           : strcmp(name, "f16") == 0  ? TN_F16
                                                       : TN_DTYPES;
    char note[TN_CKPT_NOTE];
    const tn_status s = tn_ckpt_convert(&(tn_user_args){ .word = &model, .n = model != NULL }, in, out, dtype, note);
    tn_settings_free(st);
    TN_RETURN_IF(s);
    TN_RETURN_IF(tn_cli_warn(c, note));
    if (c->json) return tn_cli_emit(c, json_pack("{s:s, s:s, s:s}", "name", "converted", "from", in, "to", out));
    fprintf(c->out, "wrote %s\n", out);
    return TN_OK;
}
