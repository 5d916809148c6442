/* The settings of wire, and what they say. */
#include "models/wire/wire.h"

#include "base/status.h"
#include "models/gpt/gpt.h"

#include <stdio.h>
#include <string.h>

#define READER(x, what)                                                                                                \
    TN_SETTING_TEXT(x ".model", "", "frozen language model of reader " x ": a run, file or folder" what),              \
        TN_SETTING_TEXT(x ".shape", "", "its shape as settings of gpt, key=value ... (empty: the file's)"),            \
        TN_SETTING_TEXT(x ".tokenizer", "", "its tokenizer, where the file has none: a file, a folder or bytes"),      \
        TN_SETTING_TEXT(x ".hash", "", "of its weights (set when a run starts)"),                                      \
        TN_SETTING_TEXT(x ".tokenizer_hash", "", "of its tokenizer (set when a run starts)"),                          \
        TN_SETTING_AUTO_INT(x ".ids", "auto", TN_RANGE(2, 1e7), "tokens", "ids of its tokenizer are below this"),      \
        TN_SETTING_AUTO_INT(x ".length", "auto", TN_RANGE(2, 1e6), "tokens", "longest question and answer of " x),     \
        TN_SETTING_AUTO_INT(x ".before", "auto", TN_RANGE(1, 1e6), "tokens", "longest question of " x ", with BOS"),   \
        TN_SETTING_AUTO_INT(x ".text", "auto", TN_RANGE(3, 1e6), "tokens", "longest context of " x),                   \
        TN_SETTING_AUTO_INT(x ".told", "auto", TN_RANGE(3, 1e6), "tokens",                                             \
                            "longest context with question and answer of " x)

const tn_setting wire_settings[WIRE_SETTINGS] = {
    READER("a", ""),
    READER("b", ""),
    READER("c", " (one that joins later)"),
    TN_SETTING_TEXT("readers", "", "letters of those that read, such as c (empty: all that have a model)"),
    TN_SETTING_TEXT("encoder_from", "",
                    "a run whose encoder is used as it is: readers that join later train their adapter alone"),
    TN_SETTING_INT("slots", "16", TN_RANGE(0, 4096), "slots", "slots of a message that all readers read"),
    TN_SETTING_INT("private", "0", TN_RANGE(0, 4096), "slots", "slots of a message for each reader alone"),
    TN_SETTING_INT("width", "32", TN_RANGE(1, 65536), "", "numbers of a slot"),
    TN_SETTING_CHOICE("encoder", "bytes", "bytes|sender|free|constant",
                      "what reads the text: bytes, the states of a frozen reader; or no encoder: a message for each "
                      "training text, or one for all"),
    TN_SETTING_CHOICE("encoder_sees", "context", "context|both",
                      "what a message is made of: a text alone, or with its question (one: task.questions=1)"),
    TN_SETTING_CHOICE("sender", "a", "a|b|c", "the reader whose states encoder=sender takes"),
    TN_SETTING_AUTO_INT("sender_layer", "auto", TN_RANGE(1, 1024), "",
                        "its layer whose input is taken (auto: behind the last)"),
    TN_SETTING_CHOICE("sender_features", "live", "live|cached",
                      "its states of training texts: made in every step, or once before the first, into a file in "
                      "task.cache or the run"),
    TN_SETTING_AUTO_INT("bytes", "auto", TN_RANGE(1, 1e6), "bytes", "longest text (auto: the data's)"),
    TN_SETTING_AUTO_INT("sent", "auto", TN_RANGE(3, 1e6), "tokens",
                        "longest text with its question, as the sender reads them (auto: the data's)"),
    TN_SETTING_AUTO_INT("questions", "auto", TN_RANGE(1, 64), "", "questions on a text (auto: the data's)"),
    TN_SETTING_AUTO_INT("contexts", "auto", TN_RANGE(1, 1e9), "", "training texts (auto: the data's)"),
    TN_SETTING_INT("dim", "256", TN_RANGE(1, 65536), "", "width of the encoder"),
    TN_SETTING_INT("layers", "4", TN_RANGE(0, 64), "", "layers of the encoder"),
    TN_SETTING_INT("heads", "8", TN_RANGE(1, 1024), "", "attention heads of the encoder; dim is a multiple of it"),
    TN_SETTING_INT("ffn", "1024", TN_RANGE(1, 1e6), "", "inner width of the encoder's layers"),
    TN_SETTING_INT("refiner", "0", TN_RANGE(0, 64), "", "layers in which the slots of a message see each other"),
    TN_SETTING_FLOAT("keep", "1", TN_RANGE_LO_OPEN(0, 1), "",
                     "part of the shared slots that training keeps, drawn anew each time"),
    TN_SETTING_CHOICE("place", "keys", "embeddings|keys",
                      "what a reader gets: vectors among its embeddings, or keys and values of every layer"),
    TN_SETTING_INT("hidden", "512", TN_RANGE(1, 65536), "", "width inside an adapter"),
    TN_SETTING_FLOAT("loss.first", "0", TN_RANGE(0, 1e3), "", "weight of an answer's first token, once more"),
    TN_SETTING_INT("loss.k", "0", TN_RANGE(0, 64), "tokens",
                   "first tokens of an answer that loss.k_ce and distillation see (0: distillation sees all)"),
    TN_SETTING_FLOAT("loss.k_ce", "0", TN_RANGE(0, 1e3), "", "weight of an answer's first loss.k tokens, once more"),
    TN_SETTING_SWITCH("opt.one_pass", "on",
                      "wire: all terms of an answer from one pass over it (off: a pass for each term and token)"),
    TN_SETTING_FLOAT("loss.kd", "0", TN_RANGE(0, 1e3), "",
                     "weight of distillation from the reader with the text before it"),
    TN_SETTING_FLOAT("loss.kd_temperature", "2", TN_RANGE_LO_OPEN(0, 100), "", "its temperature"),
    TN_SETTING_FLOAT("loss.state", "0", TN_RANGE(0, 1e3), "", "weight of the mean squared distance to its states"),
    TN_SETTING_INT("loss.states", "3", TN_RANGE(1, 1024), "", "last layers whose states are compared"),
    TN_SETTING_CHOICE("loss.teacher", "live", "live|cached",
                      "the reader with the text before it: runs in every step, or once for all questions before the "
                      "first, into a file in task.cache or the run"),
    TN_SETTING_INT("loss.kd_top", "64", TN_RANGE(1, 65536), "tokens",
                   "cached: its most likely tokens that are kept; the others are one"),
    TN_SETTING_FLOAT("loss.ae", "0", TN_RANGE(0, 1e3), "", "weight of saying the text itself (autoencoding)"),
    TN_SETTING_INT("ae.alone", "0", TN_RANGE(0, 1e12), "steps", "first steps that are autoencoding alone"),
    TN_SETTING_INT("ae.until", "0", TN_RANGE(0, 1e12), "steps", "step from which there is none (0: it goes on)"),
    TN_SETTING_FLOAT("loss.nce", "0", TN_RANGE(0, 1e3), "", "weight of InfoNCE between the halves of a message"),
    TN_SETTING_FLOAT("loss.nce_temperature", "0.1", TN_RANGE_LO_OPEN(0, 100), "", "its temperature"),
    TN_SETTING_FLOAT("loss.entropy", "0", TN_RANGE(0, 1e3), "",
                     "weight of minus the entropy of an answer's first token: readers are less sure of it"),
    TN_SETTING_FLOAT("loss.manifold", "0", TN_RANGE(0, 1e6), "",
                     "weight of the distance of means and deviations, by number, of slots and embeddings"),
    TN_SETTING_FLOAT("loss.rms", "0", TN_RANGE(0, 1e6), "",
                     "weight of the squared distance of sizes: of slots before they are scaled, and of embeddings"),
    TN_SETTING_FLOAT("loss.scale", "0", TN_RANGE(0, 1e6), "",
                     "weight of the squared distance of an adapter's gain to 1"),
    TN_SETTING_FLOAT("loss.align", "0", TN_RANGE(0, 1e6), "",
                     "weight of the mean squared distance of slots to the embeddings of an answer's first tokens"),
    TN_SETTING_FLOAT("loss.cosine", "0", TN_RANGE(0, 1e3), "", "weight of 1 - cosine between the same"),
    TN_SETTING_INT("loss.align_k", "1", TN_RANGE(0, 4096), "slots",
                   "first slots that loss.align and loss.cosine see (0: one for each token of an answer)"),
};

static wire_config read_settings(const tn_settings *st)
{
    return (wire_config){ .shared = tn_settings_int(st, "slots"),
                          .private_slots = tn_settings_int(st, "private"),
                          .width = tn_settings_int(st, "width"),
                          .encoder = (wire_encoder)tn_settings_choice(st, "encoder"),
                          .bytes = tn_settings_int(st, "bytes"),
                          .dim = tn_settings_int(st, "dim"),
                          .heads = tn_settings_int(st, "heads"),
                          .ffn = tn_settings_int(st, "ffn"),
                          .layers = tn_settings_int(st, "layers"),
                          .refine = tn_settings_int(st, "refiner"),
                          .contexts = tn_settings_int(st, "contexts"),
                          .sender_layer = tn_settings_int(st, "sender_layer"),
                          .features = strcmp(tn_settings_text(st, "sender_features"), "cached") == 0,
                          .place = (wire_place)tn_settings_choice(st, "place"),
                          .hidden = tn_settings_int(st, "hidden"),
                          .questions = tn_settings_int(st, "questions"),
                          .keep = (float)tn_settings_float(st, "keep"),
                          .dropout = (float)tn_settings_float(st, "train.dropout"),
                          .first = tn_settings_float(st, "loss.first"),
                          .k = tn_settings_int(st, "loss.k"),
                          .k_ce = tn_settings_float(st, "loss.k_ce"),
                          .kd = tn_settings_float(st, "loss.kd"),
                          .kd_temperature = (float)tn_settings_float(st, "loss.kd_temperature"),
                          .state = tn_settings_float(st, "loss.state"),
                          .states = tn_settings_int(st, "loss.states"),
                          .cached = strcmp(tn_settings_text(st, "loss.teacher"), "cached") == 0,
                          .kd_top = tn_settings_int(st, "loss.kd_top"),
                          .ae = tn_settings_float(st, "loss.ae"),
                          .nce = tn_settings_float(st, "loss.nce"),
                          .nce_temperature = (float)tn_settings_float(st, "loss.nce_temperature"),
                          .entropy = tn_settings_float(st, "loss.entropy"),
                          .manifold = tn_settings_float(st, "loss.manifold"),
                          .rms = tn_settings_float(st, "loss.rms"),
                          .scale = tn_settings_float(st, "loss.scale"),
                          .align = tn_settings_float(st, "loss.align"),
                          .cosine = tn_settings_float(st, "loss.cosine"),
                          .align_k = tn_settings_int(st, "loss.align_k") };
}

static tn_status check(const wire_config *c)
{
    if (c->shared + c->private_slots < 1) return tn_model_error("a message needs slots: slots=16");
    if (c->dim % c->heads)
        return tn_model_error("dim=%lld must be a multiple of heads=%lld", (long long)c->dim, (long long)c->heads);
    if (c->refine && c->width % 4)
        return tn_model_error("the refiner has 4 heads: width=%lld must be a multiple of 4", (long long)c->width);
    if (c->k_ce != 0 && !c->k)
        return tn_model_error("loss.k_ce weighs the first loss.k tokens of an answer: set loss.k=4");
    const char *none = c->manifold != 0 ? "manifold"
                       : c->scale != 0  ? "scale"
                       : c->align != 0  ? "align"
                       : c->cosine != 0 ? "cosine"
                                        : NULL;
    if (none && c->place == WIRE_KEYS)
        return tn_model_error("loss.%s is of vectors among a reader's embeddings, and place=keys puts none there: set "
                              "place=embeddings",
                              none);
    return TN_OK;
}

/* A reader that neither file nor settings describe: two small ones, so that the model can be looked at and checked without any. */
static const char *const small[] = { "dim=32",   "layers=2",           "heads=4", "kv_heads=2",
                                     "vocab=97", "train.context=4096", NULL };

static bool named(const tn_settings *st, char x)
{
    char key[2][16];
    snprintf(key[0], sizeof key[0], "%c.model", x);
    snprintf(key[1], sizeof key[1], "%c.shape", x);
    return *tn_settings_text(st, key[0]) || *tn_settings_text(st, key[1]);
}

/* words NULL: those of the setting x.shape. */
static tn_status open_reader(tn_graph *g, const tn_settings *st, char x, const char *const *words, wire_reader *r)
{
    char shape[16], before[16];
    const int64_t own = r->own;
    *r = (wire_reader){ .letter = { x }, .own = own };
    snprintf(shape, sizeof shape, "%c.shape", x);
    snprintf(before, sizeof before, "%c.before", x);
    r->before = tn_settings_int(st, before);
    if (words) TN_RETURN_IF(tn_part_open(g, st, r->letter, "gpt", words, &r->part));
    else TN_RETURN_IF(tn_part_open_file(g, st, r->letter, shape, &r->part));
    TN_RETURN_IF(tn_gpt_shape(g, r->part.settings, NULL, &r->shape));
    if (!r->shape.llama)
        return tn_model_error("reader %c has learned positions (shape=gpt2): a reader must have rotary ones", x);
    r->shape.dropout = 0;
    return TN_OK;
}

static tn_status open_readers(tn_graph *g, const tn_settings *st, wire_config *c)
{
    const char *only = tn_settings_text(st, "readers");
    bool any = false;
    for (char x = 'a'; x < 'a' + WIRE_READERS; x++) any |= named(st, x);
    for (const char *p = only; *p; p++)
        if (!strchr("abc, ", *p) || (strchr("abc", *p) && any && !named(st, *p)))
            return tn_model_error("readers=%s: %c is no reader: name its model with %c.model", only, *p, *p);
    for (char x = 'a'; x < 'a' + WIRE_READERS; x++) {
        if (any ? !named(st, x) : x > 'b') continue;
        if (*only && !strchr(only, x)) continue;
        c->reader[c->readers].own = c->readers;
        TN_RETURN_IF(open_reader(g, st, x, any ? NULL : small, &c->reader[c->readers]));
        c->readers++;
    }
    return c->readers ? TN_OK : tn_model_error("readers=%s names none: use letters, as in readers=c", only);
}

/* A batch may have shorter texts, and places are those of the longest. */
static int64_t places_of(const tn_settings *st, const wire_config *c)
{
    char text[16];
    if (c->encoder != WIRE_SENDER) return c->bytes;
    if (tn_settings_int(st, "sent")) return tn_settings_int(st, "sent");
    snprintf(text, sizeof text, "%s.text", tn_settings_text(st, "sender"));
    return tn_settings_int(st, text);
}

static tn_status find_sender(tn_graph *g, const tn_settings *st, wire_config *c)
{
    const char *x = tn_settings_text(st, "sender");
    bool found = false;
    if (c->encoder != WIRE_SENDER) return TN_OK;
    for (int64_t i = 0; i < c->readers && !found; i++)
        if ((found = strcmp(c->reader[i].letter, x) == 0)) c->sender = c->reader[i];
    if (!found && !named(st, *x)) return tn_model_error("sender=%s is no reader: set %s.model", x, x);
    if (!found) TN_RETURN_IF(open_reader(g, st, *x, NULL, &c->sender));
    const int64_t most = c->sender.shape.layers;
    if (!c->sender_layer) c->sender_layer = most;
    if (c->sender_layer > most)
        return tn_model_error("sender_layer=%lld: reader %s has %lld layers", (long long)c->sender_layer, x,
                              (long long)most);
    return TN_OK;
}

tn_status wire_config_read(tn_graph *g, const tn_settings *st, const tn_batch *b, wire_config *c)
{
    *c = read_settings(st);
    c->places = places_of(st, c);
    TN_RETURN_IF(check(c));
    c->given = *tn_settings_text(st, "encoder_from");
    if (c->given && c->encoder != WIRE_BYTES && c->encoder != WIRE_SENDER)
        return tn_model_error("encoder_from is for encoder=bytes and encoder=sender: there is no encoder here");
    TN_RETURN_IF(open_readers(g, st, c));
    TN_RETURN_IF(find_sender(g, st, c));
    c->slots = c->shared + c->readers * c->private_slots;
    if (b && tn_in(b, "kind").id && wire_in(b, &c->reader[0], "tokens").id)
        c->questions = tn_ref_dim(g, wire_in(b, &c->reader[0], "tokens"), 1);
    if (c->questions > 64)
        return tn_model_error("%lld questions on a text are more than 64: set task.questions=16",
                              (long long)c->questions);
    if (!c->contexts) c->contexts = 1;
    return TN_OK;
}
