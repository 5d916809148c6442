/* What verbs that run a model share: resolved settings, the model, its data and a trainer, opened in one call. */
#ifndef TN_CLI_SESSION_H
#define TN_CLI_SESSION_H

#include "cli/cli.h"
#include "train/source.h"
#include "train/trainer.h"

typedef struct tn_session {
    tn_settings *settings;
    const tn_model *model;
    tn_bytes *data;
    tn_bytes_source *bytes; /* what `source` works with */
    tn_source source;       /* where `data` is open */
    tn_trainer *trainer;
    int64_t batch, length;
} tn_session;

/* Settings from a target and overrides, data where the settings name some (its vocabulary becomes the model's), batch
 * size (auto: the largest of at most 4096 tokens whose memory plan fits), trainer. */
tn_status tn_session_open(const char *target, const char *const *overrides, size_t n, bool needs_data, tn_session *out);
void tn_session_close(tn_session *s);

/* "device ...", "model ...", "memory ..." lines of the session. */
void tn_session_describe(tn_session *s, FILE *f);
/* "8.4 M" */
const char *tn_count_text(double n, char buf[16]);

#endif
