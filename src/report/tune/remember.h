/* What tenon tune found, kept in a folder: one small file for each machine, version and configuration.
 *
 * The key is made of everything that decides what is fast: the machine (processor, cores, memory, GPUs), the version, the model, and all settings but
 * those that only name, log, save or schedule a run. A file has its key inside: one that was copied from another machine, renamed or damaged
 * is not used. Only the settings that tenon tune sets are read from it (tn_tune_sets). */
#ifndef TN_REPORT_TUNE_REMEMBER_H
#define TN_REPORT_TUNE_REMEMBER_H

#include "base/hash.h"
#include "report/tune/tune.h"

enum { TN_MACHINE_TEXT = 512 };

/* "AMD EPYC 7B13, 2 cores, 16 GB, NVIDIA H200". proc: where /proc is; memory: bytes that a process may use. */
const char *tn_machine_text(const char *proc, double memory, char buf[TN_MACHINE_TEXT]);

typedef struct tn_tuned_key {
    char machine[TN_MACHINE_TEXT], version[32], model[128];
    char settings[TN_HASH_BYTES]; /* hash of the settings */
    char name[TN_HASH_BYTES + 8]; /* of the file */
} tn_tuned_key;

/* Of settings as they are resolved, before data fill them and before anything is tuned. */
tn_status tn_tuned_key_of(const tn_settings *st, const char *machine, const char *version, tn_tuned_key *out);

typedef struct tn_tuned {
    char word[TN_TUNE_WORDS][TN_TUNE_WORD]; /* (n) "key=value" */
    size_t n;
    tn_ratio gain; /* n is 0 where nothing was faster */
    char when[32]; /* "2026-11-18" */
} tn_tuned;

/* Replaced whole; the folder is made. TN_DISK. */
tn_status tn_tuned_save(const char *dir, const tn_tuned_key *k, const tn_tuned *t);
/* *found: there is one for this key. TN_BAD_FILE: it is damaged, or another's; the message names it and the remedy. */
tn_status tn_tuned_load(const char *dir, const tn_tuned_key *k, tn_tuned *out, bool *found);

#endif
