/* Logits of token sequences by a model as verbs open it, frozen and in the type that its file leads to, for check_texts.py:
 *   model_logits MODEL      reads lines of ids, writes (tokens of the line, vocab) f32 for each */
#include "train/run/saved_model.h"
#include "train/trainer/graph_setup.h"
#include "train/trainer/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 512 };

static int64_t read_ids(char *line, int32_t *ids)
{
    int64_t n = 0;
    for (char *word = strtok(line, " \n"); word && n < LONGEST; word = strtok(NULL, " \n"))
        ids[n++] = (int32_t)atoi(word);
    return n;
}

static tn_status run(const char *path)
{
    static char line[1 << 16];
    static int32_t ids[LONGEST];
    const char *words[] = { "threads=2", "device=cpu" };
    tn_saved_model m = { 0 };
    TN_RETURN_IF(tn_saved_model_find(NULL, path, words, 2, "best", &m));
    TN_RETURN_IF(tn_graph_setup_here(m.settings, false));
    while (fgets(line, sizeof line, stdin)) {
        tn_trainer *t;
        int64_t count;
        float loss;
        const int64_t n = read_ids(line, ids);
        TN_RETURN_IF(tn_trainer_new(&(tn_trainer_options){ .model = m.model,
                                                           .settings = m.settings,
                                                           .batch = 1,
                                                           .length = n,
                                                           .logits = true,
                                                           .forward_only = true,
                                                           .frozen = true,
                                                           .weights = m.matrices.type },
                                    &t));
        TN_RETURN_IF(tn_saved_model_load(&m, tn_trainer_store(t)));
        memcpy(tn_trainer_input(t, "tokens"), ids, sizeof *ids * (size_t)n);
        memcpy(tn_trainer_input(t, "labels"), ids, sizeof *ids * (size_t)n);
        TN_RETURN_IF(tn_trainer_eval(t, &loss));
        const float *logits = tn_trainer_output(t, "logits", &count);
        fwrite(logits, sizeof *logits, (size_t)count, stdout);
        tn_trainer_free(t);
    }
    tn_saved_model_free(&m);
    return TN_OK;
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    if (run(argv[1]) == TN_OK) return fflush(stdout) != 0;
    fprintf(stderr, "%s\n", tn_error_text());
    return 3;
}
