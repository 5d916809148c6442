/* The C interface from end to end: a small model learns a sentence, is saved, opened again and asked to go on.
 *
 *     cc train.c $(pkg-config --cflags --libs tenon) -o train && ./train
 *
 * Ends with 0 when it has learned the sentence. */
#include <stdio.h>
#include <string.h>
#include <tenon/tenon.h>

enum { B = 4, T = 32 };

static const char sentence[] = "the quick brown fox jumps over the lazy dog. ";

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tenon_error());
    return 1;
}

/* Windows of the sentence repeated for ever: bytes, and the byte that follows each. */
static void fill(int32_t *tokens, int32_t *labels)
{
    const int n = (int)sizeof sentence - 1;
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) {
            tokens[b * T + t] = sentence[(11 * b + t) % n];
            labels[b * T + t] = sentence[(11 * b + t + 1) % n];
        }
}

static int learn(tenon_net *net)
{
    int32_t tokens[B * T], labels[B * T];
    double loss = 0;
    fill(tokens, labels);
    if (tenon_shape(net, B, T) != TENON_OK) return failed("shape");
    for (int step = 0; step < 150; step++) {
        if (tenon_gradients(net, tokens, labels, &loss) != TENON_OK) return failed("gradients");
        if (tenon_step(net, NULL) != TENON_OK) return failed("step");
        if (step % 50 == 0) printf("step %3d  loss %.3f\n", step, loss);
    }
    printf("learned   loss %.3f\n", loss);
    return 0;
}

typedef struct heard {
    char text[256];
    size_t n;
} heard;

static int hear(void *user, int64_t sample, const char *text, size_t bytes)
{
    heard *h = user;
    (void)sample;
    if (h->n + bytes >= sizeof h->text) return 1;
    memcpy(h->text + h->n, text, bytes);
    h->text[h->n += bytes] = 0;
    return 0;
}

static int recite(const char *file)
{
    tenon_net *net = NULL;
    tenon_tokenizer *tokenizer = NULL;
    tenon_sample_options o;
    heard h = { .n = 0 };
    if (tenon_open(file, NULL, 0, &net) != TENON_OK) return failed("open");
    if (tenon_tokenizer_of(net, &tokenizer) != TENON_OK) return failed("tokenizer");
    tenon_sample_init(&o);
    o.prompt = "the quick ";
    o.prompt_bytes = strlen(o.prompt);
    o.temperature = 0;
    o.max_tokens = 20;
    o.text = hear;
    o.user = &h;
    if (tenon_sample(net, tokenizer, &o) != TENON_OK) return failed("sample");
    printf("%s%s\n", o.prompt, h.text);
    tenon_tokenizer_close(tokenizer);
    tenon_close(net);
    return strncmp(h.text, sentence + strlen(o.prompt), 20) != 0;
}

int main(int argc, char **argv)
{
    const char *file = argc > 1 ? argv[1] : "sentence.safetensors";
    const char *settings[] = { "dim=32",        "layers=2",        "vocab=256",      "train.context=64",
                               "train.lr=1e-2", "train.warmup=10", "train.steps=150" };
    tenon_net *net = NULL;
    if (tenon_open("ten", settings, sizeof settings / sizeof *settings, &net) != TENON_OK) return failed("open");
    printf("tenon %s, %lld parameters\n", tenon_version(), (long long)tenon_parameters(net));
    int code = learn(net);
    if (!code && tenon_save(net, file) != TENON_OK) code = failed("save");
    tenon_close(net);
    return code ? code : recite(file);
}
