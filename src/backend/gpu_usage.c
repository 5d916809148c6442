/* A thread that asks NVML. */
#include "backend/gpu_usage.h"

#include "backend/cuda_library.h"
#include "base/alloc.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { PERIOD_MS = 1000, PCI_BYTES = 32 };
enum { BUSY, CLOCK, POWER, MEANS };

struct tn_gpu_usage {
    tn_nvml nvml;
    void *device;
    void *library; /* or NULL: the functions are the caller's */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool stop;
    double sum[MEANS]; /* of the samples since the last read */
    int64_t since[MEANS];
    tn_gpu_sample last;
};

/* --- NVML ------------------------------------------------------------------------------------------------------------- */

static void *open_library(void)
{
    const char *given = getenv("TENON_NVML");
    if (given && given[0]) return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    return tn_cuda_has_driver() ? dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
}

static bool find_functions(void *library, tn_nvml *out)
{
    struct {
        const char *name;
        void *to;
        bool optional;
    } wanted[] = { { "nvmlInit_v2", &out->init, false },
                   { "nvmlShutdown", &out->shutdown, false },
                   { "nvmlDeviceGetHandleByIndex_v2", &out->by_index, false },
                   { "nvmlDeviceGetHandleByPciBusId_v2", &out->by_pci, false },
                   { "nvmlDeviceGetUtilizationRates", &out->rates, false },
                   { "nvmlDeviceGetMemoryInfo", &out->memory, false },
                   { "nvmlDeviceGetClockInfo", &out->clock, true },
                   { "nvmlDeviceGetPowerUsage", &out->power, true } };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *f = dlsym(library, wanted[i].name);
        if (!f && !wanted[i].optional) return false;
        *(void **)wanted[i].to = f;
    }
    return true;
}

/* The GPU that this process uses: its number is CUDA's, which counts only those that are visible. */
static bool find_device(tn_gpu_usage *u)
{
    char id[PCI_BYTES];
    const tn_cuda_library *cuda = tn_cuda_library_loaded();
    if (cuda && cuda->pci(id, sizeof id) && u->nvml.by_pci(id, &u->device) == 0) return true;
    return u->nvml.by_index(0, &u->device) == 0;
}

/* --- the thread ------------------------------------------------------------------------------------------------------- */

static void ask(tn_gpu_usage *u)
{
    tn_nvml_rates rates;
    tn_nvml_memory memory;
    unsigned mhz, milliwatts;
    if (u->nvml.rates(u->device, &rates) != 0 || u->nvml.memory(u->device, &memory) != 0) return;
    const bool has_clock = u->nvml.clock && u->nvml.clock(u->device, TN_NVML_CLOCK_SM, &mhz) == 0,
               has_power = u->nvml.power && u->nvml.power(u->device, &milliwatts) == 0;
    const double now[MEANS] = { rates.gpu, has_clock ? mhz : NAN, has_power ? 1e-3 * milliwatts : NAN };
    pthread_mutex_lock(&u->lock);
    for (int i = 0; i < MEANS; i++)
        if (!isnan(now[i])) u->sum[i] += now[i], u->since[i]++;
    u->last = (tn_gpu_sample){ .busy = now[BUSY],
                               .clock_mhz = now[CLOCK],
                               .watt = now[POWER],
                               .used = (double)memory.used,
                               .all = (double)memory.total,
                               .heard = u->last.heard + 1 };
    pthread_mutex_unlock(&u->lock);
}

static void *run(void *arg)
{
    tn_gpu_usage *u = arg;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    for (bool stop = false; !stop;) {
        ask(u);
        until.tv_sec += PERIOD_MS / 1000;
        pthread_mutex_lock(&u->lock);
        while (!u->stop && pthread_cond_timedwait(&u->ended, &u->lock, &until) == 0) {
        }
        stop = u->stop;
        pthread_mutex_unlock(&u->lock);
    }
    return NULL;
}

static void release(tn_gpu_usage *u)
{
    if (u->library) dlclose(u->library);
    tn_free(u);
}

tn_gpu_usage *tn_gpu_usage_start(const tn_nvml *from)
{
    tn_gpu_usage *u = tn_alloc(sizeof *u);
    if (!u) return NULL;
    *u = (tn_gpu_usage){ .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER };
    if (from) u->nvml = *from;
    else u->library = open_library();
    if ((!from && (!u->library || !find_functions(u->library, &u->nvml))) || u->nvml.init() != 0) {
        release(u);
        return NULL;
    }
    if (find_device(u) && pthread_create(&u->thread, NULL, run, u) == 0) return u;
    u->nvml.shutdown();
    release(u);
    return NULL;
}

bool tn_gpu_usage_read(tn_gpu_usage *u, tn_gpu_sample *out)
{
    if (!u) return false;
    pthread_mutex_lock(&u->lock);
    *out = u->last;
    double *const mean[MEANS] = { &out->busy, &out->clock_mhz, &out->watt };
    for (int i = 0; i < MEANS; i++) {
        if (u->since[i]) *mean[i] = u->sum[i] / (double)u->since[i];
        u->sum[i] = 0, u->since[i] = 0;
    }
    pthread_mutex_unlock(&u->lock);
    return out->heard > 0;
}

bool tn_gpu_usage_last(tn_gpu_usage *u, tn_gpu_sample *out)
{
    if (!u) return false;
    pthread_mutex_lock(&u->lock);
    *out = u->last;
    pthread_mutex_unlock(&u->lock);
    return out->heard > 0;
}

void tn_gpu_usage_stop(tn_gpu_usage *u)
{
    if (!u) return;
    pthread_mutex_lock(&u->lock);
    u->stop = true;
    pthread_cond_signal(&u->ended);
    pthread_mutex_unlock(&u->lock);
    pthread_join(u->thread, NULL);
    u->nvml.shutdown();
    release(u);
}
