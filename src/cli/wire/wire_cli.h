/* What the subcommands of `tenon wire` share: opening a run of the model wire. */
#ifndef TN_CLI_WIRE_H
#define TN_CLI_WIRE_H

#include "base/output.h"
#include "cli/cli.h"

#endif
