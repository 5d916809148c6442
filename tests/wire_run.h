/* Two small language models with random weights, and an untrained wire that both of them read, as files. Header only. */
#ifndef TN_WIRE_RUN_H
#define TN_WIRE_RUN_H

#include "base/alloc.h"
#include "report/wire/controls.h"
#include "tempdir.h"
#include "train/run/parts.h"
#include "train/run/saved_model.h"
#include "train/run/train_settings.h"

typedef struct wire_run {
    tn_tempdir d;
    char model[2][512], file[512]; /* of the readers, and of the whole */
    tn_session s;                  /* evaluates, with the steps of the controls */
} wire_run;

/* Settings of a model from words without blanks. */
static inline tn_settings *wire_run_settings(const tn_model *model, const char *words)
{
    tn_settings *st;
    char text[3000];
    assert_ok(tn_settings_new(&st));
    assert_ok(tn_settings_common(st));
    assert_ok(tn_settings_add(st, model->settings, model->n_settings, model->name));
    snprintf(text, sizeof text, "model=%s threads=1 compute=f32 device=cpu %s", model->name, words);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest));) assert_ok(tn_settings_override(st, word));
    return st;
}

/* Bytes are its tokens. Its weights are larger than first values, so that it says different things to different texts. */
static inline void wire_run_reader(wire_run *w, int k, const char *words)
{
    char name[16];
    const tn_model *gpt = tn_model_named("gpt");
    tn_settings *st = wire_run_settings(gpt, words);
    tn_session s = { 0 };
    assert_ok(tn_session_open_with(&(tn_session_options){ .settings = st, .model = gpt, .evaluates = true }, &s));
    tn_store *store = tn_trainer_store(s.trainer);
    for (size_t i = 0; i < tn_store_count(store); i++) {
        const tn_entry *e = tn_store_at(store, i);
        float *x = e->data;
        if (e->dims.rank == 2)
            for (int64_t j = 0; j < tn_dims_count(e->dims); j++) x[j] *= 12;
    }
    snprintf(name, sizeof name, "%c.safetensors", 'a' + k);
    assert_ok(tn_path_join(w->d.path, name, w->model[k], sizeof w->model[k]));
    assert_ok(tn_weights_save(w->model[k], gpt, s.settings, store));
    tn_session_close(&s);
    tn_settings_free(st);
}

/* reader: further words of both readers. */
static inline void wire_run_open_with(wire_run *w, const char *reader, const char *words)
{
    char text[2600];
    const tn_model *wire = tn_model_named("wire");
    *w = (wire_run){ .file = "" };
    tn_tempdir_make_quick(&w->d);
    for (int k = 0; k < 2; k++) {
        snprintf(text, sizeof text, "%s vocab=256 train.context=128 %s",
                 k ? "dim=24 layers=1 heads=2 kv_heads=1 seed=2" : "dim=16 layers=2 heads=2 seed=1", reader);
        wire_run_reader(w, k, text);
    }
    snprintf(text, sizeof text,
             "a.model=%s b.model=%s task=recall task.keys=50 task.pairs=3 task.questions=0 task.heldout=5 task.size=8 "
             "train.batch=2 width=8 dim=16 heads=2 ffn=24 layers=1 hidden=12 %s",
             w->model[0], w->model[1], words);
    tn_settings *st = wire_run_settings(wire, text);
    assert_ok(tn_session_open_with(
        &(tn_session_options){
            .settings = st, .model = wire, .needs_data = true, .evaluates = true, .steps = tn_wire_control_steps },
        &w->s));
    assert_ok(tn_parts_load(w->s.settings, wire, tn_trainer_store(w->s.trainer)));
    assert_ok(tn_path_join(w->d.path, "wire.safetensors", w->file, sizeof w->file));
    assert_ok(tn_weights_save(w->file, wire, w->s.settings, tn_trainer_store(w->s.trainer)));
    tn_settings_free(st);
}

static inline void wire_run_open(wire_run *w, const char *words) { wire_run_open_with(w, "", words); }

static inline void wire_run_close(wire_run *w)
{
    tn_session_close(&w->s);
    tn_tempdir_remove_all(&w->d);
}

#endif
