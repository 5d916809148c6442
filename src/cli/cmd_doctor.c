/* tenon doctor: what is here, what is missing, and how to get it; one row each.
 * A row is ok, a note (something optional is missing) or missing (training cannot work); only the last makes the exit
 * code other than 0. Changes nothing, and takes well under a second. Ends with a command to try that takes less than two minutes here. */
#include "backend/backend.h"
#include "backend/cpu/gemm_kernel.h"
#include "backend/cuda_library.h"
#include "base/clock.h"
#include "cli/next.h"
#include "report/bench/ceilings.h"
#include "report/bench/timing.h"
#include "train/run/session.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xxhash.h>
#include <yaml.h>

typedef enum health { OK, NOTE, MISSING } health;

typedef struct doctor {
    tn_cli *c;
    tn_status status; /* of the first row that is missing, or of writing */
    int missing;
} doctor;

typedef struct row {
    const char *name;
    health health;
    double value; /* with a unit; none where unit is NULL */
    const char *unit;
    tn_status code; /* exit code where it is missing */
    char detail[512];
    const char *remedy; /* how to get it, or NULL */
} row;

static void show(doctor *d, const row *r)
{
    static const char *const words[] = { [OK] = "ok", [NOTE] = "note", [MISSING] = "MISSING" };
    tn_cli *c = d->c;
    if (r->health == MISSING && d->missing++ == 0) d->status = r->code;
    if (!c->json) {
        fprintf(c->out, "%-10s %-8s %s%s%s\n", r->name, words[r->health], r->detail, r->remedy ? ": " : "",
                r->remedy ? r->remedy : "");
        fflush(c->out);
        return;
    }
    json_t *o = json_pack("{s:s, s:s, s:s}", "name", r->name, "status",
                          r->health == MISSING ? "missing" : words[r->health], "detail", r->detail);
    if (o && r->unit) {
        json_object_set_new(o, "value", json_real(r->value));
        json_object_set_new(o, "unit", json_string(r->unit));
    }
    if (o && r->remedy) json_object_set_new(o, "remedy", json_string(r->remedy));
    const tn_status s = tn_cli_emit(c, o);
    if (s != TN_OK && d->status == TN_OK) d->status = s;
}

/* --- the machine ---------------------------------------------------------------------------------------------------------- */

/* The value of a line "key   : value" in a file of /proc; "" when there is none. */
static void proc_value(const char *path, const char *key, char *out, size_t bytes)
{
    char line[8192];
    FILE *f = fopen(path, "r");
    out[0] = 0;
    while (f && !out[0] && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0) continue;
        const char *value = colon + 1 + strspn(colon + 1, " \t");
        snprintf(out, bytes, "%.*s", (int)strcspn(value, "\n"), value);
    }
    if (f) fclose(f);
}

static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == 0)) return true;
    return false;
}

static void examine_cpu(doctor *d)
{
    static const char *const wanted[] = { "avx2",  "fma",  "avx512f", "avx512_bf16", "amx_bf16",
                                          "asimd", "bf16", "i8mm",    "sve" };
    char model[128], flags[8192];
    struct utsname u;
    row r = { .name = "cpu" };
    proc_value("/proc/cpuinfo", "model name", model, sizeof model);
    proc_value("/proc/cpuinfo", "flags", flags, sizeof flags);
    if (!flags[0]) proc_value("/proc/cpuinfo", "Features", flags, sizeof flags);
    if (!model[0]) snprintf(model, sizeof model, "%s", uname(&u) == 0 ? u.machine : "unknown");
    const tn_gemm_ukernel *bf16 = tn__gemm_kernel_bf16();
    size_t at =
        (size_t)snprintf(r.detail, sizeof r.detail, "%s, %ld cores; matrix products by kernel %s, in bf16 by %s; has",
                         model, sysconf(_SC_NPROCESSORS_ONLN), tn__gemm_kernel_best()->name,
                         bf16 ? bf16->name : "the same (no bf16 instructions)");
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && at < sizeof r.detail; i++)
        if (has_word(flags, wanted[i])) at += (size_t)snprintf(r.detail + at, sizeof r.detail - at, " %s", wanted[i]);
#if !defined(__aarch64__) /* there the portable one is NEON code */
    if (tn__gemm_kernel_best() == &tn__gemm_portable) {
        r.health = NOTE;
        r.remedy = "no kernel for this processor yet: matrix products use the portable one";
    }
#endif
    show(d, &r);
}

static void spin(void *arg, int64_t tile)
{
    volatile float *out = (float *)arg + 64 * tile; /* a cache line apart */
    float x = (float)tile;
    for (int i = 0; i < 20000; i++) x = x * 0.999f + 1;
    *out = x;
}

/* Loops of two tiles (tens of microseconds each, like a small op's) done in 50 ms by a pool of n threads. */
static tn_status loops_done(int n, double *out)
{
    tn_pool *pool;
    float scratch[128];
    int64_t loops = 0;
    TN_RETURN_IF(tn_pool_new(n, &pool));
    const double start = tn_clock_s();
    for (; tn_clock_s() - start < 0.02; loops++) tn_pool_run(pool, 2, spin, scratch);
    tn_pool_free(pool);
    *out = (double)loops;
    return TN_OK;
}

/* How much more two threads do than one: the median of several times in turn, as other processes come and go. */
static tn_status two_over_one(double *out)
{
    double ratio[7];
    for (size_t i = 0; i < sizeof ratio / sizeof *ratio; i++) {
        double one, two;
        TN_RETURN_IF(loops_done(1, &one));
        TN_RETURN_IF(loops_done(2, &two));
        ratio[i] = one > 0 ? two / one : 1;
    }
    *out = tn_median(ratio, sizeof ratio / sizeof *ratio, NULL);
    return TN_OK;
}

static void examine_threads(doctor *d)
{
    row r = { .name = "threads", .unit = "x" };
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) {
        r.unit = NULL;
        snprintf(r.detail, sizeof r.detail, "one core, one thread");
    } else if (two_over_one(&r.value) != TN_OK) {
        r = (row){ .name = "threads",
                   .health = MISSING,
                   .code = TN_MEMORY,
                   .remedy = "raise the limit on processes (ulimit -u), or threads=1" };
        snprintf(r.detail, sizeof r.detail, "a second thread could not be started");
    } else {
        snprintf(r.detail, sizeof r.detail, "two threads do %.2f times the work of one", r.value);
        if (r.value < 1.1) {
            r.health = NOTE;
            r.remedy = "the cores are shared, or the process is limited to one: threads=1 is then faster";
        }
    }
    show(d, &r);
}

static void examine_memory(doctor *d)
{
    char available[64];
    row r = { .name = "memory", .unit = "bytes" };
    proc_value("/proc/meminfo", "MemAvailable", available, sizeof available);
    const double total = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    r.value = 1024 * strtod(available, NULL);
    snprintf(r.detail, sizeof r.detail, "%.1f GB free of %.1f GB", r.value / 1e9, total / 1e9);
    if (r.value < 5e8) {
        r.health = NOTE;
        r.remedy = "little memory is free: reduce dim, train.batch or train.context";
    }
    show(d, &r);
}

static void examine_cuda(doctor *d)
{
    row r = { .name = "cuda", .health = NOTE };
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    const bool there = driver && access("/dev/nvidiactl", F_OK) == 0;
    if (driver) dlclose(driver);
    const char *device = there ? "driver and device found" : driver ? "driver found, no device" : "no driver found";
    const bool works = tn_backend_get(TN_CUDA) != NULL, loaded = tn_cuda_library_loaded() != NULL;
    r.health = works ? OK : NOTE;
    snprintf(r.detail, sizeof r.detail, "libtenon_cuda.so is %s; %s%s", loaded ? "here" : "not here", device,
             works ? "" : "; device=cpu is used");
    if (!works) r.remedy = there ? tn_error_text() : "install the vendor's driver to use device=cuda";
    show(d, &r);
}

/* --- libraries and tools ---------------------------------------------------------------------------------------------------- */

static void examine_libraries(doctor *d)
{
    const unsigned x = XXH_versionNumber();
    row r = { .name = "libraries" };
    snprintf(r.detail, sizeof r.detail, "jansson %s, yaml %s, xxhash %u.%u.%u", JANSSON_VERSION,
             yaml_get_version_string(), x / 10000, x / 100 % 100, x % 100);
    show(d, &r);
}

/* The first folder of PATH that has the program, joined with its name. */
static bool in_path(const char *program, char out[TN_PATH_BYTES])
{
    const char *path = getenv("PATH");
    for (; path && *path; path += strcspn(path, ":"), path += *path == ':') {
        const int n = snprintf(out, TN_PATH_BYTES, "%.*s/%s", (int)strcspn(path, ":"), path, program);
        if (n > 0 && n < TN_PATH_BYTES && access(out, X_OK) == 0) return true;
    }
    return false;
}

static void examine_compiler(doctor *d)
{
    char cc[TN_PATH_BYTES], make[TN_PATH_BYTES];
    row r = { .name = "compiler" };
    const bool compiler = in_path("cc", cc) || in_path("gcc", cc) || in_path("clang", cc),
               maker = in_path("make", make);
    if (compiler && maker) {
        snprintf(r.detail, sizeof r.detail, "%.200s, %.200s", cc, make);
    } else {
        r.health = NOTE;
        r.remedy = "apt-get install gcc make";
        snprintf(r.detail, sizeof r.detail, "no %s for models of your own",
                 compiler ? "make"
                 : maker  ? "C compiler"
                          : "C compiler and make");
    }
    show(d, &r);
}

static void examine_headers(doctor *d)
{
    tn_headers h;
    char tool[TN_PATH_BYTES];
    row r = { .name = "headers" };
    if (tn_headers_find(NULL, &h) == TN_OK && h.dir[0][0]) {
        snprintf(r.detail, sizeof r.detail, "%.240s%s%.240s", h.dir[0], h.dir[1][0] ? " and " : "", h.dir[1]);
    } else if (in_path("pkg-config", tool) && system("pkg-config --exists tenon 2>/dev/null") == 0) {
        snprintf(r.detail, sizeof r.detail, "found by pkg-config");
    } else {
        r.health = NOTE;
        r.remedy = "`make install` in the source tree puts them beside the command";
        snprintf(r.detail, sizeof r.detail, "no tenon/model.h beside this binary, for models of your own");
    }
    show(d, &r);
}

/* --- this folder ----------------------------------------------------------------------------------------------------------------- */

static void examine_disk(doctor *d)
{
    struct statvfs v;
    row r = { .name = "disk", .unit = "bytes", .code = TN_DISK };
    if (access(".", W_OK) != 0 || statvfs(".", &v) != 0) {
        r.health = MISSING;
        r.unit = NULL;
        r.remedy = "change to a folder you own, or name one with run=DIR";
        snprintf(r.detail, sizeof r.detail, "this folder is not writable");
    } else {
        r.value = (double)v.f_bavail * (double)v.f_frsize;
        snprintf(r.detail, sizeof r.detail, "%.1f GB free here", r.value / 1e9);
        if (r.value < 1e9) r.remedy = "a run needs three times its parameters; run=DIR puts it elsewhere";
        if (r.value < 1e9) r.health = r.value < 1e7 ? MISSING : NOTE;
    }
    show(d, &r);
}

static int entries(const char *dir)
{
    DIR *f = opendir(dir);
    if (!f) return -1;
    int n = 0;
    for (const struct dirent *e; (e = readdir(f));) n += e->d_name[0] != '.';
    closedir(f);
    return n;
}

static void examine_data(doctor *d)
{
    const int data = entries("data"), runs = entries("runs");
    row r = { .name = "data" };
    if (data < 0) {
        r.health = NOTE;
        r.remedy = "any text file will do, `tenon train data=FILE`";
        snprintf(r.detail, sizeof r.detail, "no folder data/ here");
    } else {
        snprintf(r.detail, sizeof r.detail, "data/ has %d entr%s", data, data == 1 ? "y" : "ies");
    }
    show(d, &r);
    r = (row){ .name = "runs" };
    if (runs < 0) snprintf(r.detail, sizeof r.detail, "none here yet");
    else snprintf(r.detail, sizeof r.detail, "runs/ has %d", runs);
    show(d, &r);
}

/* --- what to try ------------------------------------------------------------------------------------------------------------------ */

/* Keeps the largest text of a folder that is worth training on, up to some megabytes: encoding more would take longer than training. */
static void look_for_text(const char *dir, char found[TN_PATH_BYTES], off_t *bytes)
{
    static const char *const endings[] = { ".txt", ".md" };
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d));) {
        char path[TN_PATH_BYTES];
        struct stat st;
        const char *dot = strrchr(e->d_name, '.');
        bool text = false;
        for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
            text = text || strcmp(dot, endings[i]) == 0;
        if (!text || e->d_name[0] == '.' ||
            tn_path_join(strcmp(dir, ".") == 0 ? "" : dir, e->d_name, path, sizeof path) != TN_OK ||
            stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size <= *bytes || st.st_size > (32 << 20))
            continue;
        *bytes = st.st_size;
        memcpy(found, path, sizeof path);
    }
    if (d) closedir(d);
}

/* Steps of ten_tiny (4096 tokens, about 3 GFLOP each) that take about a minute here at a fifth of the peak, which small matrix
 * products reach also on a busy machine. */
static int64_t steps_in_a_minute(void)
{
    static const double gflop = 3, seconds = 60, part = 0.2;
    tn_ceilings c;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (tn_ceilings_arithmetic(cores > 0 ? (int)cores : 1, &c) != TN_OK) return 100;
    const double steps = seconds * part * c.fma_gflops / gflop;
    return steps < 100 ? 100 : steps > 2000 ? 2000 : (int64_t)(steps / 100) * 100;
}

static void propose(const tn_cli *c)
{
    char text[TN_PATH_BYTES], word[TN_PATH_BYTES];
    off_t bytes = 20000; /* of less there is not enough to hold some of it out */
    const off_t none = bytes;
    look_for_text("data", text, &bytes);
    if (bytes == none) look_for_text(".", text, &bytes);
    if (c->json) return;
    if (bytes == none) tn_next(c, "train xor_tep");
    else
        tn_next(c, "train ten_tiny data=%s train.steps=%lld", tn_shell_word(text, word, sizeof word),
                (long long)steps_in_a_minute());
}

tn_status tn_cmd_doctor(tn_cli *c)
{
    static void (*const examine[])(doctor *) = { examine_cpu,     examine_threads,   examine_memory,
                                                 examine_cuda,    examine_libraries, examine_compiler,
                                                 examine_headers, examine_disk,      examine_data };
    doctor d = { .c = c };
    row version = { .name = "tenon", .detail = TN_VERSION };
    TN_RETURN_IF(tn_args_expect(&c->args, 0, 0));
    show(&d, &version);
    for (size_t i = 0; i < sizeof examine / sizeof *examine; i++) examine[i](&d);
    if (d.missing)
        return tn_error(d.status, "%d requirement%s of training %s missing", d.missing, d.missing > 1 ? "s" : "",
                        d.missing > 1 ? "are" : "is");
    propose(c);
    return d.status;
}
