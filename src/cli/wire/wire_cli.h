/* What the subcommands of `tenon wire` share: finding a run of the model wire. */
#ifndef TN_CLI_WIRE_H
#define TN_CLI_WIRE_H

#include "base/output.h"
#include "cli/cli.h"
#include "io/wire_file.h"
#include "report/wire/wire_post.h"
#include "train/run/saved_model.h"

/* The run, checkpoint or file behind the subcommand, with settings from the command line; those that `keys` has are set there. TN_USAGE: it
 * is of another model. */
tn_status tn_wire_find(tn_cli *c, tn_settings *keys, tn_saved_model *out);
/* Header of its messages in so many bits; group: values that share a scale. */
tn_wire_options tn_wire_header_of(const tn_wire_about *a, int bits, int64_t group);
/* Rows of a subcommand's own settings. */
tn_status tn_wire_keys(const tn_setting *rows, size_t n, tn_settings **out);

#endif
