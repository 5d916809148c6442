/* Trains a model for STEPS steps under the counting preload and says what those after the first cost: "MODEL allocations N mappings
 * N opens N grown N KiB", the last being resident memory in the second half. Exit code 1 unless all are zero, and the last nearly. */
#define _GNU_SOURCE
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NEARLY_KIB = 128 }; /* a page of a stack, or of a workspace that was never needed so far */

/* Resident memory; of the file nothing is allocated. */
static long resident_kib(int file)
{
    char text[128] = "";
    long pages = 0;
    if (pread(file, text, sizeof text - 1, 0) > 0) sscanf(text, "%*s %ld", &pages);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tn_error_text());
    return 2;
}

int main(int argc, char **argv)
{
    void (*reset)(void);
    void (*total)(long[3]);
    long n[3] = { 0 }, half = 0;
    float loss;
    tn_update_result a;
    tn_settings *st;
    tn_trainer_options o = { .batch = 2, .length = 48, .threads = 2 };
    tn_trainer *t;
    const int statm = open("/proc/self/statm", O_RDONLY);
    *(void **)&reset = dlsym(RTLD_DEFAULT, "tn_count_reset");
    *(void **)&total = dlsym(RTLD_DEFAULT, "tn_count_total");
    const int steps = argc > 2 ? atoi(argv[1]) : 0;
    if (!reset || !total || steps < 2 || statm < 0)
        return fail("usage: LD_PRELOAD=count.so steps STEPS MODEL [key=value ...]");
    if (tn_settings_resolve(argv[2], (const char *const *)argv + 3, (size_t)argc - 3, &st, &o.model) != TN_OK)
        return fail("settings");
    o.settings = st;
    if (!tn_model_reads_sequences(o.model)) o.length = tn_inputs_length(o.model, st);
    if (tn_trainer_new(&o, &t) != TN_OK) return fail("trainer");
    for (int i = 0; i < steps; i++) {
        const tn_feed f = tn_trainer_feed(t);
        if (i == 1) reset();
        if (i == steps / 2) half = resident_kib(statm);
        tn_feed_random(&f, (tn_rng){ .seed = 1, .stream = (uint64_t)i * 32 });
        if (tn_trainer_grad(t, i, &loss) != TN_OK || tn_trainer_apply(t, i, 1, loss, &a) != TN_OK) return fail("step");
        if (tn_trainer_eval(t, &loss) != TN_OK) return fail("eval");
    }
    total(n);
    const long grown = resident_kib(statm) - half;
    printf("%s allocations %ld mappings %ld opens %ld grown %ld KiB\n", argv[2], n[0], n[1], n[2], grown);
    tn_trainer_free(t);
    tn_settings_free(st);
    return n[0] || n[1] || n[2] || half <= 0 || grown > NEARLY_KIB ? 1 : 0;
}
