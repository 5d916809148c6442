/* A rate of dropout from the epochs that are planned. */
#include "train/run/dropout_auto.h"

#include "base/text.h"

#include <math.h>
#include <stdio.h>

/* Six epochs of 4 MB: 0.1 is best or near it for each network that was tried, and 0.3 is worse for some. */
static const double FREE_EPOCHS = 1, BY_EPOCH = 0.02, STEP = 0.05, MOST = 0.2;

static const double ENDLESS = 1e15; /* larger epochs never end */

double tn_dropout_auto_rate(double epochs)
{
    if (!(epochs > FREE_EPOCHS)) return 0;
    return fmin(round(BY_EPOCH * (epochs - FREE_EPOCHS) / STEP) * STEP, MOST);
}

tn_dropout_auto tn_dropout_auto_plan(const tn_settings *st, const tn_source *source, int64_t batch, int64_t length)
{
    const double rows =
        (double)tn_settings_int(st, "train.steps") * (double)tn_settings_int(st, "train.accumulate") * (double)batch;
    const bool samples = source->train_samples > 0,
               documents = !samples && source->text && source->mode == TN_LOADER_BUCKET; /* a row each */
    const double size = samples     ? source->train_samples
                        : documents ? (double)tn_dataset_count(source->text, TN_TRAIN).documents
                                    : source->train_tokens;
    tn_dropout_auto d = { .chosen = true,
                          .size = size,
                          .unit = samples     ? "samples"
                                  : documents ? "documents"
                                              : "tokens" };
    if (size > 0 && size < ENDLESS) d.epochs = rows * (samples || documents ? 1 : (double)length) / size;
    d.rate = tn_dropout_auto_rate(d.epochs);
    return d;
}

tn_status tn_dropout_auto_take(const tn_dropout_auto *d, tn_settings *st)
{
    char text[32];
    snprintf(text, sizeof text, "%g", d->rate);
    return tn_settings_set(st, "train.dropout", text, TN_DROPOUT_CHOSEN);
}

const char *tn_dropout_auto_text(const tn_dropout_auto *d, const tn_settings *st, char buf[TN_DROPOUT_AUTO_TEXT])
{
    const double rate = tn_settings_float(st, "train.dropout");
    char count[16];
    buf[0] = 0;
    if (!d->chosen) return buf;
    const int n = snprintf(buf, TN_DROPOUT_AUTO_TEXT, "dropout %g (auto): ", rate);
    char *rest = buf + n;
    const size_t room = TN_DROPOUT_AUTO_TEXT - (size_t)n;
    if (fabs(rate - d->rate) > 1e-9) snprintf(rest, room, "the run began with it");
    else if (!(d->epochs > 0)) snprintf(rest, room, "the data have no epochs");
    else snprintf(rest, room, "%.1f epochs planned of %s %s", d->epochs, tn_count_text(d->size, count), d->unit);
    return buf;
}
