/* metrics.jsonl as a resumed run finds it: cut after a step, then made a table. What is cut ends with a whole line. */
#include "fuzz_file.h"
#include "train/run/metrics.h"
#include "train/run/run.h"

#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    char csv[160];
    struct stat st;
    if (bytes == 0) return 0;
    const char *path = fuzz_put("metrics.jsonl", input + 1, bytes - 1);
    snprintf(csv, sizeof csv, "%s/metrics.csv", fuzz_dir());
    tn_status s = tn_metrics_cut(path, input[0]);
    if (s != TN_OK) fuzz_refused(s);
    CHECK(stat(path, &st) == 0 && (size_t)st.st_size <= bytes - 1);
    if (s == TN_OK && st.st_size > 0) CHECK(input[st.st_size] == '\n');
    s = tn_metrics_csv(path, csv);
    if (s != TN_OK) fuzz_refused(s);
    unlink(csv);
    return 0;
}
