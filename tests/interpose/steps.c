/* Trains a model for ten steps under the counting preload and says what steps 2..10 cost: "MODEL allocations N mappings
 * N opens N". Exit code 1 unless all are zero. */
#define _GNU_SOURCE
#include "train/run/train_settings.h"
#include "train/trainer/trainer.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tn_error_text());
    return 2;
}

int main(int argc, char **argv)
{
    void (*reset)(void);
    void (*total)(long[3]);
    long n[3];
    float loss;
    tn_update_result a;
    tn_settings *st;
    tn_trainer_options o = { .batch = 2, .length = 48, .threads = 2 };
    tn_trainer *t;
    *(void **)&reset = dlsym(RTLD_DEFAULT, "tn_count_reset");
    *(void **)&total = dlsym(RTLD_DEFAULT, "tn_count_total");
    if (!reset || !total || argc < 2) return fail("usage: LD_PRELOAD=count.so steps MODEL [key=value ...]");
    if (tn_settings_resolve(argv[1], (const char *const *)argv + 2, (size_t)argc - 2, &st, &o.model) != TN_OK)
        return fail("settings");
    o.settings = st;
    if (tn_trainer_new(&o, &t) != TN_OK) return fail("trainer");
    memset(n, 0, sizeof n);
    for (int i = 0; i < 10; i++) {
        if (i == 1) reset();
        for (int k = 0; k < 2 * 48; k++)
            ((int32_t *)tn_trainer_input(t, "tokens"))[k] = ((int32_t *)tn_trainer_input(t, "labels"))[k] =
                (k * 7 + i) % 61;
        if (tn_trainer_grad(t, i, &loss) != TN_OK || tn_trainer_apply(t, i, 1, loss, &a) != TN_OK) return fail("step");
        if (tn_trainer_eval(t, &loss) != TN_OK) return fail("eval");
    }
    total(n);
    printf("%s allocations %ld mappings %ld opens %ld\n", argv[1], n[0], n[1], n[2]);
    tn_trainer_free(t);
    tn_settings_free(st);
    return n[0] || n[1] || n[2] ? 1 : 0;
}
