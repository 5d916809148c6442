/* The table of tasks and the settings they read. */
#include "base/text.h"
#include "tasks/task.h"

#include <stdio.h>
#include <string.h>

#define TN_TASK(name) extern const tn_task tn_task_##name;
#include "tasks/tasks.def"
#undef TN_TASK

static const tn_task *const table[] = {
#define TN_TASK(name) &tn_task_##name,
#include "tasks/tasks.def"
#undef TN_TASK
};

const tn_setting tn_task_settings[] = {
    TN_SETTING_TEXT(
        "task.name", "",
        "what to learn instead of text: samples, an environment, a probe or texts with questions (empty: none)"),
    TN_SETTING_TEXT("task.data", "",
                    "folder or file of the samples (digits, mnist, cifar10, snli, cls, squad; of task.images), or a "
                    "text (char, needle, "
                    "recall, cont, ae)"),
    TN_SETTING_AUTO_INT("task.size", "auto", TN_RANGE(1, 1e8), "samples",
                        "training samples of a synthetic task (held-out ones are extra; auto: per task, recall 20000); "
                        "char: characters "
                        "read; cont, ae, cls, squad: training contexts at most (auto: all)"),
    TN_SETTING_AUTO_INT("task.bits", "auto", TN_RANGE(1, 1024), "bits",
                        "inputs of parity, majority and identity (auto: 8, 5, 4)"),
    TN_SETTING_AUTO_INT("task.length", "auto", TN_RANGE(1, 4096), "symbols",
                        "symbols or digits of a sequence task; characters of context for char; tokens of a sentence of "
                        "snli; bytes of a "
                        "context of cont, ae and squad (auto: the task's own; 512, 128, 1024)"),
    TN_SETTING_FLOAT("task.valid_frac", "0.2", TN_RANGE_HI_OPEN(0, 1), "",
                     "fraction held out for validation (0: none)"),
    TN_SETTING_FLOAT("task.test_frac", "0.2", TN_RANGE_HI_OPEN(0, 1), "",
                     "fraction held out as test split (mnist and cifar10 have their own)"),
    TN_SETTING_INT("task.split_seed", "0", TN_RANGE(0, 9007199254740992.0), "",
                   "seed of generated samples, of splits and of a probe's held-out sequences"),
    TN_SETTING_TEXT("task.split", "", "file that lists the rows of train, valid and test, instead of the fractions"),
    TN_SETTING_TEXT("task.pairs", "auto",
                    "pairs per sequence, such as 8,16,32,64, taken in turn by batches (auto: mqar those, needle 1); "
                    "lines of a context of recall (auto: 16)"),
    TN_SETTING_TEXT("task.lengths", "auto",
                    "tokens of a sequence, as 64,256,1024, each trained with as many tokens (needle, tokens_copy; "
                    "auto: train.context)"),
    TN_SETTING_AUTO_INT("task.keys", "auto", TN_RANGE(1, 1e6), "tokens",
                        "different keys (auto: mqar 512, needle 64); words of recall (auto: 1024)"),
    TN_SETTING_AUTO_INT("task.values", "auto", TN_RANGE(2, 1e6), "tokens",
                        "different values; symbols of tokens_copy (auto: mqar 512, needle 64, tokens_copy 10)"),
    TN_SETTING_FLOAT("task.noise", "64", TN_RANGE_LO_OPEN(0, 1e6), "",
                     "mqar, needle without a text: different tokens between pairs and questions; restore: standard "
                     "deviation of the noise (0.3 unless set)"),
    TN_SETTING_INT("task.depths", "5", TN_RANGE(1, 20), "",
                   "equal parts of a needle sequence that are measured separately"),
    TN_SETTING_INT("task.segment", "1", TN_RANGE(1, 4096), "tokens",
                   "first tokens that tokens_copy asks for at the end"),
    TN_SETTING_INT("task.heldout", "128", TN_RANGE(1, 1e6), "sequences",
                   "held-out sequences of each kind that a probe evaluates on; contexts of recall, cont, ae, cls and "
                   "squad for validation and as many for the test"),
    TN_SETTING_INT("task.questions", "4", TN_RANGE(0, 4096), "questions",
                   "recall, cls, squad: questions of a context in a batch, others in each step (0: all)"),
    TN_SETTING_BOOL("task.fewer", "off",
                    "recall: training contexts have 1, 2, 4, ... or task.pairs pairs, held-out ones task.pairs"),
    TN_SETTING_TEXT("task.cache", "",
                    "folder for what is made once of recall, cont, ae, cls and squad: tokens (empty: not kept), a "
                    "teacher's answers"),
    TN_SETTING_INT("task.vocab", "4096", TN_RANGE(257, 1e6), "tokens",
                   "vocabulary of the BPE that snli trains on its training sentences"),
    TN_SETTING_CHOICE("task.images", "mnist", "mnist|digits|strokes",
                      "images of route and restore; strokes needs no files"),
    TN_SETTING_INT("task.pool", "1", TN_RANGE(1, 64), "pixels",
                   "images: squares of this side become one pixel, their mean (2: mnist of 14 x 14)"),
    TN_SETTING_CHOICE("task.move", "shift", "shift|mirror|transpose",
                      "route: the target is the image shifted, mirrored left to right or transposed"),
    TN_SETTING_INT("task.dx", "1", TN_RANGE(-1023, 1023), "cells", "route: columns to the right of a shift"),
    TN_SETTING_INT("task.dy", "0", TN_RANGE(-1023, 1023), "cells", "route: rows down of a shift"),
    TN_SETTING_FLOAT("task.grow", "0.6", TN_RANGE(0, 1), "",
                     "route: fraction of the training over which a shift grows from 0 to its full size"),
    TN_SETTING_CHOICE("task.damage", "noise", "hole|noise",
                      "restore: what is done to the image, a square erased in its centre or noise added"),
    TN_SETTING_INT("task.hole", "12", TN_RANGE(1, 1024), "cells", "restore: side of the square that is erased"),
};
const size_t tn_task_settings_n = sizeof tn_task_settings / sizeof *tn_task_settings;

const tn_task *tn_task_at(size_t i) { return i < sizeof table / sizeof *table ? table[i] : NULL; }

const tn_task *tn_task_named(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i]->name, name) == 0) return table[i];
    return NULL;
}

tn_status tn_task_find(const char *name, const tn_task **out)
{
    char quoted[80];
    tn_nearest near = { .word = name };
    const tn_task *t = tn_task_named(name);
    if (t) {
        *out = t;
        return TN_OK;
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) tn_nearest_try(&near, table[i]->name);
    tn_text_quote(name, quoted, sizeof quoted);
    if (near.best) return tn_error(TN_USAGE, "unknown task %s: did you mean %s?", quoted, near.best);
    char names[400] = "";
    for (size_t i = 0, at = 0; i < sizeof table / sizeof *table && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", table[i]->name);
    return tn_error(TN_USAGE, "unknown task %s: choose %s", quoted, names);
}
