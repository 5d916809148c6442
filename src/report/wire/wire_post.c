/* A trainer without data for the steps encode and read of wire. */
#include "report/wire/wire_post_parts.h"

#include "base/alloc.h"
#include "base/status.h"
#include "tasks/wire/wire_store.h"
#include "train/run/weights_hash.h"
#include "train/trainer/graph_setup.h"

#include <stdio.h>
#include <string.h>

enum { READERS = 3, KEY = TN_WIRE_KEY };

static bool has_reader(const tn_settings *st, char x)
{
    char model[KEY], shape[KEY];
    return tn_settings_text(st, tn_wire_key(x, "model", model))[0] ||
           tn_settings_text(st, tn_wire_key(x, "shape", shape))[0];
}

/* Has one, and it reads: a sender need not. */
static bool reads(const tn_settings *st, char x)
{
    const char *only = tn_settings_text(st, "readers");
    return has_reader(st, x) && (!*only || strchr(only, x));
}

/* --- the hash ------------------------------------------------------------------------------------------------------------- */

static const char *of_encoder(const void *ctx, const tn_entry *e)
{
    const tn_wire_post *p = ctx;
    const char *name = e->name;
    if (!e->weight) return NULL;
    if (strncmp(name, "encoder.", 8) == 0 || strcmp(name, "constant") == 0) return name;
    return p->sender && name[0] == p->sender && name[1] == '.' ? name : NULL;
}

static void hash_setting(tn_hash *h, const tn_settings *st, const char *key)
{
    const char *value = tn_settings_text(st, key);
    tn_hash_add(h, key, strlen(key) + 1);
    tn_hash_add(h, value, strlen(value) + 1);
}

/* Parameters, and settings that change Z but no shape among them. */
static tn_status hash_encoder(tn_wire_post *p)
{
    static const char *const keys[] = { "slots", "private", "width", "encoder", "heads" };
    tn_status s = TN_OK;
    char shape[KEY];
    tn_hash *h;
    TN_RETURN_IF(tn_hash_begin(&h));
    TN_TRY(tn_weights_hash_add(tn_trainer_store(p->trainer), of_encoder, p, h, NULL));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) hash_setting(h, p->settings, keys[i]);
    if (p->sender) {
        hash_setting(h, p->settings, "sender");
        hash_setting(h, p->settings, "sender_layer");
        hash_setting(h, p->settings, tn_wire_key(p->sender, "shape", shape));
    }
    if (tn_wire_sees_question(p->settings)) hash_setting(h, p->settings, "encoder_sees");
    tn_hash_text(h, p->about.encoder);
done:
    tn_hash_free(h);
    return s;
}

/* --- opening -------------------------------------------------------------------------------------------------------------- */

/* The row that holds what the encoder sees: bytes, the sender's text, or its text and question. */
static const char *row_key(const tn_wire_post *p, char key[KEY])
{
    if (!p->sender) return "bytes";
    return tn_wire_sees_question(p->settings) ? "sent" : tn_wire_key(p->sender, "text", key);
}

static const char *length_key(const tn_wire_post *p, char key[KEY])
{
    if (!p->sender) return "lengths";
    return tn_wire_sees_question(p->settings) ? "sent_length" : tn_wire_key(p->sender, "text_length", key);
}

/* A message that was made without its question, or with one, is none that readers were trained on. */
static tn_status take_seen(tn_wire_post *p, const char *question)
{
    const bool asked = question && question[0], sees = tn_wire_sees_question(p->settings);
    if (sees && !asked)
        return tn_error(TN_USAGE, "the run's encoder sees the question too (encoder_sees=both): give "
                                  "--question=TEXT");
    if (asked && !sees)
        return tn_error(TN_USAGE, "the run's encoder sees texts alone (encoder_sees=context): leave --question "
                                  "out, and give it to `tenon wire decode`");
    if (!asked) return TN_OK;
    p->seen_bytes = strlen(question);
    p->seen = tn_alloc(p->seen_bytes);
    if (!p->seen) return TN_MEMORY;
    memcpy(p->seen, question, p->seen_bytes);
    return TN_OK;
}

static tn_status describe(tn_wire_post *p)
{
    const tn_settings *st = p->settings;
    char key[KEY];
    tn_wire_about *a = &p->about;
    snprintf(p->encoder, sizeof p->encoder, "%s", tn_settings_text(st, "encoder"));
    if (strcmp(p->encoder, "free") == 0)
        return tn_error(TN_USAGE, "the run has no encoder (encoder=free has a message for each training text alone): "
                                  "train with encoder=bytes or encoder=sender");
    if (strcmp(p->encoder, "sender") == 0) p->sender = tn_settings_text(st, "sender")[0];
    for (char x = 'a'; x < 'a' + READERS; x++) a->readers += reads(st, x);
    a->shared = tn_settings_int(st, "slots");
    a->private_slots = tn_settings_int(st, "private");
    a->slots = a->shared + a->readers * a->private_slots;
    a->width = tn_settings_int(st, "width");
    a->tokens = p->sender != 0;
    a->most = tn_settings_int(st, row_key(p, key));
    if (!a->readers || a->most < 1)
        return tn_error(TN_USAGE, "the run does not say how long its texts are: it was not trained on data");
    return TN_OK;
}

static tn_status set_number(tn_settings *st, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return tn_settings_set(st, key, text, "the question");
}

/* Rows are as long as question and answer need where they are read as a whole, others as short as can be. */
static tn_status set_lengths(tn_wire_post *p, bool whole)
{
    char key[KEY];
    TN_RETURN_IF(set_number(p->settings, "questions", 1));
    for (char x = 'a'; x < 'a' + READERS; x++)
        if (has_reader(p->settings, x))
            TN_RETURN_IF(
                set_number(p->settings, tn_wire_key(x, "length", key), x == p->reader && whole ? p->length : 3));
    return TN_OK;
}

static tn_status take_question(tn_wire_post *p, const tn_wire_post_options *o)
{
    const tn_wire_reader r = tn_wire_words_reader(&p->words);
    const tn_wire_parts parts = { .question = o->question, .question_bytes = o->question ? strlen(o->question) : 0 };
    size_t answer;
    TN_RETURN_IF(tn_wire_lay_out(&r, p->words.scratch, &parts, &p->work, &p->laid, &answer));
    p->questions = (int64_t)p->laid.n - 2;
    p->length = 1 + p->questions + p->max_tokens;
    if (p->length < 3) p->length = 3;
    return TN_OK;
}

/* What training keeps of a teacher and a sender. */
static bool is_kept(const char *name) { return strcmp(name, "features") == 0 || strncmp(name + 1, ".teach_", 7) == 0; }

/* Inputs of the readers that the run has. */
static void list_rows(tn_wire_post *p)
{
    const tn_model *m = p->model->model;
    char key[KEY];
    for (size_t i = 0; i < m->n_inputs; i++) {
        const char *name = m->inputs[i].name;
        if (strncmp(name, "sent", 4) == 0 && strcmp(row_key(p, key), "sent") != 0) continue;
        if (!is_kept(name) && (name[1] != '.' || has_reader(p->settings, name[0]))) p->rows[p->n_rows++] = m->inputs[i];
    }
}

static tn_status open_trainer(tn_wire_post *p, bool whole)
{
    const char *const steps[] = { !p->reader ? "encode" : whole ? "read" : NULL, NULL };
    list_rows(p);
    const tn_input_spec spec = { .rows = p->rows, .n_rows = p->n_rows };
    TN_RETURN_IF(tn_trainer_new(&(tn_trainer_options){ .model = p->model->model,
                                                       .settings = p->settings,
                                                       .batch = p->batch,
                                                       .length = 1,
                                                       .input_spec = &spec,
                                                       .steps = steps,
                                                       .forward_only = true,
                                                       .frozen = true },
                                &p->trainer));
    TN_RETURN_IF(tn_saved_model_load(p->model, tn_trainer_store(p->trainer)));
    tn_trainer_steady(p->trainer, true);
    return hash_encoder(p);
}

static tn_status open_post(tn_wire_post *p, const tn_wire_post_options *o)
{
    TN_RETURN_IF(tn_settings_clone(o->model->settings, &p->settings));
    TN_RETURN_IF(tn_graph_setup_here(p->settings, false));
    TN_RETURN_IF(describe(p));
    if (o->reader && !reads(p->settings, o->reader))
        return tn_error(TN_USAGE, "the run has no reader %c: choose one whose %c.model is set", o->reader, o->reader);
    const char tokenizes = o->reader ? o->reader : p->sender;
    if (tokenizes) TN_RETURN_IF(tn_wire_words_open(o->user, p->settings, tokenizes, &p->words));
    TN_RETURN_IF(o->reader ? take_question(p, o) : take_seen(p, o->question));
    TN_RETURN_IF(set_lengths(p, o->no_cache));
    TN_RETURN_IF(open_trainer(p, o->no_cache));
    if (!o->reader || o->no_cache) return TN_OK;
    return tn_wire_speaker_new(&(tn_wire_speaker_options){ .trainer = p->trainer,
                                                           .reader = o->reader,
                                                           .batch = p->batch,
                                                           .longest =
                                                               p->about.shared + p->about.private_slots + p->length },
                               &p->speaker);
}

tn_status tn_wire_post_open(const tn_wire_post_options *o, tn_wire_post **out)
{
    tn_wire_post *p = tn_alloc(sizeof *p);
    if (!p) return TN_MEMORY;
    *p = (tn_wire_post){
        .model = o->model, .batch = o->batch, .reader = o->reader, .kind = o->kind, .max_tokens = o->max_tokens
    };
    const tn_status s = open_post(p, o);
    if (s == TN_OK) *out = p;
    else tn_wire_post_close(p);
    return s;
}

void tn_wire_post_close(tn_wire_post *p)
{
    if (!p) return;
    tn_wire_speaker_free(p->speaker);
    tn_trainer_free(p->trainer);
    tn_settings_free(p->settings);
    tn_free(p->seen);
    tn_wire_words_free(&p->words);
    tn_wire_tokens_free(&p->work);
    tn_tokens_free(&p->laid);
    tn_free(p);
}

const tn_wire_about *tn_wire_post_about(const tn_wire_post *p) { return &p->about; }

/* --- texts to messages ---------------------------------------------------------------------------------------------------- */

tn_status tn__wire_post_begin(tn_wire_post *p, int64_t n, tn_feed *f)
{
    if (n < 1 || n > p->batch) return tn_error(TN_INTERNAL, "%lld rows do not fit a batch", (long long)n);
    *f = tn_trainer_feed(p->trainer);
    tn_feed_end(f, 0);
    tn_feed_end(f, n);
    return TN_OK;
}

static tn_status too_long(const tn_wire_post *p, const tn_wire_line *t, size_t has)
{
    char key[KEY];
    return tn_error(TN_USAGE,
                    "%.300s has %zu %s%s, and the run takes texts of at most %lld (%s): shorten it, or give --cut",
                    t->name, has, p->sender ? "tokens" : "bytes", p->seen ? " with its question" : "",
                    (long long)p->about.most, row_key(p, key));
}

static tn_status question_too_long(const tn_wire_post *p, size_t has)
{
    return tn_error(TN_USAGE, "--question has %zu %s, which leaves no room for a text among %lld: shorten it", has,
                    p->sender ? "tokens" : "bytes", (long long)p->about.most);
}

static int32_t *add_bytes(int32_t *to, const char *text, size_t n)
{
    for (size_t i = 0; to && i < n; i++) to[i] = (unsigned char)text[i];
    return to ? to + n : NULL;
}

static tn_status put_bytes(const tn_wire_post *p, const tn_wire_line *t, bool cut, int32_t *bytes, int32_t *length)
{
    const size_t between = p->seen ? strlen(TN_WIRE_BETWEEN) : 0, behind = between + p->seen_bytes,
                 all = (size_t)p->about.most;
    size_t n = t->bytes;
    if (behind >= all) return question_too_long(p, p->seen_bytes);
    const size_t most = all - behind;
    if (n > most && !cut) return too_long(p, t, n + behind);
    if (n > most)
        for (n = most; n && most - n < 3 && ((unsigned char)t->text[n] & 0xc0) == 0x80;) n--;
    bytes = add_bytes(bytes, t->text, n);
    bytes = add_bytes(bytes, TN_WIRE_BETWEEN, between);
    (void)add_bytes(bytes, p->seen, p->seen_bytes);
    if (length) *length = (int32_t)(n + behind);
    return TN_OK;
}

static tn_status put_tokens(tn_wire_post *p, const tn_wire_line *t, bool cut, int32_t *ids, int32_t *length)
{
    const tn_wire_reader r = tn_wire_words_reader(&p->words);
    const tn_wire_parts parts = { .context = t->text,
                                  .context_bytes = t->bytes,
                                  .anchor = TN_WIRE_BETWEEN,
                                  .anchor_bytes = p->seen ? strlen(TN_WIRE_BETWEEN) : 0,
                                  .question = p->seen,
                                  .question_bytes = p->seen_bytes };
    TN_RETURN_IF(tn_wire_tokenize(&r, p->words.scratch, &parts, &p->work));
    tn_wire_sequence row = tn_wire_sequence_of(&r, &p->work);
    const size_t n = tn_wire_length(&row), most = (size_t)p->about.most, behind = n - row.contexts;
    if (behind >= most) return question_too_long(p, row.askeds);
    if (n > most && !cut) return too_long(p, t, n);
    if (n > most) row.contexts = most - behind;
    if (ids) tn_wire_lay(&row, ids);
    if (length) *length = (int32_t)tn_wire_length(&row);
    return TN_OK;
}

tn_status tn_wire_post_encode(tn_wire_post *p, const tn_wire_line *text, int64_t n, bool cut, float *z)
{
    char key[2][KEY];
    tn_feed f;
    tn_dtype type;
    int64_t count;
    const int64_t each = p->about.slots * p->about.width, most = p->about.most;
    TN_RETURN_IF(tn__wire_post_begin(p, n, &f));
    int32_t *rows = tn_feed_at(&f, row_key(p, key[0])), *lengths = tn_feed_at(&f, length_key(p, key[1]));
    for (int64_t i = 0; i < n; i++) {
        if (!text[i].bytes) return tn_error(TN_USAGE, "%.300s is empty: a message needs a text", text[i].name);
        int32_t *row = rows ? rows + i * most : NULL, *length = lengths ? lengths + i : NULL;
        TN_RETURN_IF(p->sender ? put_tokens(p, &text[i], cut, row, length) : put_bytes(p, &text[i], cut, row, length));
    }
    TN_RETURN_IF(tn_trainer_run_step(p->trainer, "encode"));
    const float *made = tn_trainer_step_output(p->trainer, "encode", "z", &type, &count);
    if (!made || type != TN_F32 || count != p->batch * each)
        return tn_error(TN_INTERNAL, "step encode: z has another shape");
    memcpy(z, made, sizeof *z * (size_t)(n * each));
    return TN_OK;
}
