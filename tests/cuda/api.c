/* The C interface on one device, in numbers that another device, or another client, must repeat: ./api cuda|cpu FILE
 * A line is a name and numbers, or a name and a text; FILE.MODEL.safetensors is written. api.py prints the same lines. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/tenon.h>

enum { B = 4, T = 32, V = 256, D = 32, SHOWN = 20, STEPS = 150 };

static const char sentence[] = "the quick brown fox jumps over the lazy dog. ";

static void need(tenon_status s, const char *what)
{
    if (s == TENON_OK) return;
    fprintf(stderr, "%s: %s\n", what, tenon_error());
    exit((int)s);
}

static void fill(int32_t *tokens, int32_t *labels)
{
    const int n = (int)sizeof sentence - 1;
    for (int i = 0; i < B * T; i++) {
        tokens[i] = sentence[(11 * (i / T) + i % T) % n];
        labels[i] = sentence[(11 * (i / T) + i % T + 1) % n];
    }
}

static double norm(const float *x)
{
    double sum = 0;
    for (int i = 0; i < V * D; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* The first ones are shown: what they differ by in their last digits grows from step to step. */
static void train(tenon_net *net, const int32_t *tokens, const int32_t *labels, int from, int to)
{
    tenon_step_report r = { .size = sizeof r };
    double loss;
    for (int i = from; i < to; i++) {
        need(tenon_gradients(net, tokens, labels, &loss), "gradients");
        need(tenon_step(net, &r), "step");
        if (i < SHOWN) printf("step %.7g %.7g\n", loss, r.grad_norm);
    }
}

static void look(tenon_net *net, const int32_t *tokens, const int32_t *labels)
{
    static float logits[B * T * V];
    double loss, top = 0;
    need(tenon_loss(net, tokens, labels, &loss), "loss");
    printf("loss %.7g\n", loss);
    need(tenon_forward(net, tokens, logits), "forward");
    for (int i = 0; i < B * T * V; i++) top = fmax(top, (double)logits[i]);
    printf("logits %.7g\n", top);
    need(tenon_evaluate(net, tokens, B * T, &loss, NULL), "evaluate");
    printf("evaluate %.7g\n", loss);
}

/* Reads, writes, and what that does to the loss. */
static void handle(tenon_net *net, const int32_t *tokens, const int32_t *labels)
{
    static float x[V * D], g[V * D];
    double loss;
    need(tenon_gradients(net, tokens, labels, NULL), "gradients");
    need(tenon_read(net, "embed", TENON_DATA, x, sizeof x), "read");
    need(tenon_read(net, "embed", TENON_GRADIENT, g, sizeof g), "read");
    printf("embed %.7g %.7g\n", norm(x), norm(g));
    for (int i = 0; i < V * D; i++) x[i] *= 0.5f;
    need(tenon_write(net, "embed", TENON_DATA, x, sizeof x), "write");
    need(tenon_loss(net, tokens, labels, &loss), "loss");
    printf("halved %.7g\n", loss);
    for (int i = 0; i < V * D; i++) x[i] *= 2;
    need(tenon_write(net, "embed", TENON_DATA, x, sizeof x), "write");
    tenon_zero_gradients(net);
    need(tenon_read(net, "embed", TENON_GRADIENT, g, sizeof g), "read");
    printf("zeroed %.7g\n", norm(g));
}

static int hear(void *user, int64_t sample, const char *text, size_t bytes)
{
    (void)user, (void)sample;
    fwrite(text, 1, bytes, stdout);
    return 0;
}

static void recite(const char *file, const char *device)
{
    tenon_net *net = NULL;
    tenon_tokenizer *t = NULL;
    tenon_sample_options o;
    need(tenon_open(file, &device, 1, &net), "open again");
    need(tenon_tokenizer_of(net, &t), "tokenizer");
    tenon_sample_init(&o);
    o.prompt = "the lazy dog. the quick brown fox jumps ";
    o.prompt_bytes = strlen(o.prompt);
    o.temperature = 0;
    o.max_tokens = 20;
    o.text = hear;
    printf("text ");
    need(tenon_sample(net, t, &o), "sample");
    printf("\n");
    tenon_tokenizer_close(t);
    tenon_close(net);
}

int main(int argc, char **argv)
{
    static const char *const models[] = { "ten", "gpt" };
    static int32_t tokens[B * T], labels[B * T];
    char device[32], file[512];
    if (argc != 3) return 2;
    snprintf(device, sizeof device, "device=%s", argv[1]);
    fill(tokens, labels);
    for (int m = 0; m < 2; m++) {
        const char *words[] = { "dim=32",           "layers=2",      "heads=2",        "vocab=256",
                                "train.context=64", "train.lr=2e-3", "train.warmup=5", "train.schedule=constant",
                                "compute=f32",      device };
        tenon_net *net = NULL;
        need(tenon_open(models[m], words, sizeof words / sizeof *words, &net), "open");
        printf("model %s %s\n", models[m], tenon_device(net));
        need(tenon_shape(net, B, T), "shape");
        train(net, tokens, labels, 0, SHOWN);
        look(net, tokens, labels);
        handle(net, tokens, labels);
        train(net, tokens, labels, SHOWN, STEPS);
        snprintf(file, sizeof file, "%s.%s.safetensors", argv[2], models[m]);
        need(tenon_save(net, file), "save");
        tenon_close(net);
        recite(file, device);
    }
    return 0;
}
