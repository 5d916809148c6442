/* Trains a model for STEPS steps under the counting preload and says what those after the first cost: "MODEL allocations N mappings
 * N opens N grown N KiB", the last being resident memory in the second half. Exit code 1 unless all are zero, and the last nearly.
 * TRACED=1 in the environment: all steps are traced (base/tracer.h). */
#define _GNU_SOURCE
#include "base/tracer.h"
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NEARLY_KIB = 16 };

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* Backs every page that is mapped already. A worker may first use its part of a workspace, or of its stack, in any step (it depends
 * on who took which piece of work); only what grows beyond what was reserved is a fault of the step. */
static void back_all_pages(void)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to, inode;
        char mode[8] = "";
        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &from, &to, mode, &inode) != 4 || inode ||
            strcmp(mode, "rw-p") != 0)
            continue;
        madvise((void *)from, to - from,
                MADV_POPULATE_WRITE); /* where the kernel cannot, the pages come when they are used */
    }
    if (maps) fclose(maps);
}

/* Resident memory that is no file's, counted exactly (statm may be off by what each core has not reported); nothing is allocated. */
static long resident_kib(int file)
{
    char text[4096] = "";
    const char *anonymous;
    long kib = 0;
    if (pread(file, text, sizeof text - 1, 0) > 0 && (anonymous = strstr(text, "Anonymous:")))
        sscanf(anonymous, "%*s %ld", &kib);
    return kib;
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
    const int memory = open("/proc/self/smaps_rollup", O_RDONLY);
    *(void **)&reset = dlsym(RTLD_DEFAULT, "tn_count_reset");
    *(void **)&total = dlsym(RTLD_DEFAULT, "tn_count_total");
    const int steps = argc > 2 ? atoi(argv[1]) : 0;
    if (!reset || !total || steps < 2 || memory < 0)
        return fail("usage: LD_PRELOAD=count.so steps STEPS MODEL [key=value ...]");
    if (tn_settings_resolve(argv[2], (const char *const *)argv + 3, (size_t)argc - 3, &st, &o.model) != TN_OK)
        return fail("settings");
    o.settings = st;
    if (!tn_model_reads_sequences(o.model)) o.length = tn_inputs_length(o.model, st);
    if (tn_trainer_new(&o, &t) != TN_OK) return fail("trainer");
    tn_tracer *tracer = NULL;
    const tn_tracer_options traced = { .workers = o.threads - 1, .events = 1 << 16 };
    if (getenv("TRACED") && tn_tracer_new(&traced, &tracer) != TN_OK) return fail("tracer");
    tn_trainer_trace(t, tracer);
    for (int i = 0; i < steps; i++) {
        const tn_feed f = tn_trainer_feed(t);
        if (i == 1) {
            back_all_pages();
            reset();
        }
        (void)tn_tracer_step(tracer);
        if (tracer) tn_tracer_count_resident(tracer);
        if (i == steps / 2) half = resident_kib(memory);
        tn_feed_random(&f, (tn_rng){ .seed = 1, .stream = (uint64_t)i * 32 });
        if (tn_trainer_grad(t, i, &loss) != TN_OK || tn_trainer_apply(t, i, 1, loss, &a) != TN_OK) return fail("step");
        if (tn_trainer_eval(t, &loss) != TN_OK) return fail("eval");
    }
    total(n);
    const long grown = resident_kib(memory) - half;
    printf("%s allocations %ld mappings %ld opens %ld grown %ld KiB\n", argv[2], n[0], n[1], n[2], grown);
    const tn_event *e;
    if (tracer && (tn_tracer_events(tracer, TN_TRACK_MAIN, &e) < (size_t)steps || tn_tracer_dropped(tracer)))
        return fail("the trace lacks spans");
    tn_trainer_free(t);
    tn_tracer_free(tracer);
    tn_settings_free(st);
    return n[0] || n[1] || n[2] || half <= 0 || grown > NEARLY_KIB ? 1 : 0;
}
