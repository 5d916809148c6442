/* NVML is a table of functions here, so that everything but the library itself is tried. */
#include "backend/gpu_usage.h"

#include "base/clock.h"
#include "testlib.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static atomic_int asked, shut;

static int fine(void) { return 0; }
static int count_shutdown(void) { return atomic_fetch_add(&shut, 1), 0; }
static int refuses(void) { return 9; }
static int device_0(unsigned index, void **device) { return *device = &asked, index ? 1 : 0; }
static int no_device(unsigned index, void **device) { return (void)index, (void)device, 6; }
static int by_pci(const char *id, void **device) { return *device = &asked, id[0] ? 0 : 1; }

/* 40 and 60 per cent in turn. */
static int rates(void *device, tn_nvml_rates *out)
{
    *out = (tn_nvml_rates){ .gpu = atomic_fetch_add(&asked, 1) % 2 ? 60 : 40 };
    return device == &asked ? 0 : 1;
}

static int memory(void *device, tn_nvml_memory *out)
{
    *out = (tn_nvml_memory){ .total = 100, .free = 75, .used = 25 };
    return device == &asked ? 0 : 1;
}

static int clock_of(void *device, int kind, unsigned *mhz)
{
    *mhz = 1500;
    return device == &asked && kind == TN_NVML_CLOCK_SM ? 0 : 1;
}

static int power_of(void *device, unsigned *milliwatts) { return *milliwatts = 250500, device == &asked ? 0 : 1; }
static int not_supported(void *device, unsigned *milliwatts) { return (void)device, *milliwatts = 7, 3; }

static const tn_nvml working = { fine, count_shutdown, device_0, by_pci, rates, memory, clock_of, power_of };

static void wait_for(int n)
{
    for (int i = 0; atomic_load(&asked) < n && i < 500; i++) nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
}

/* The first question is asked at once, the next a second later; readers get means, then the last. */
static void samples_once_a_second(void **state)
{
    (void)state;
    tn_gpu_sample now;
    const double start = tn_clock_s();
    atomic_store(&asked, 0);
    atomic_store(&shut, 0);
    tn_gpu_usage *u = tn_gpu_usage_start(&working);
    assert_non_null(u);
    wait_for(2);
    while (tn_gpu_usage_read(u, &now) && now.heard < 2) nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    assert_true(now.heard >= 2 && now.used == 25 && now.all == 100);
    assert_true(now.busy >= 40 && now.busy <= 60);
    assert_true(now.clock_mhz == 1500 && now.watt == 250.5);
    const double before = now.busy;
    assert_true(tn_gpu_usage_read(u, &now) && (now.busy == 40 || now.busy == 60 || now.busy == before));
    const int heard = atomic_load(&asked);
    assert_true(heard <= 1 + tn_clock_s() - start); /* at most 1 Hz */
    tn_gpu_usage_stop(u);
    assert_int_equal(atomic_load(&shut), 1);
}

static void absent(void **state)
{
    (void)state;
    tn_gpu_sample now;
    tn_nvml broken = working;
    broken.init = refuses;
    assert_null(tn_gpu_usage_start(&broken));
    broken = working, broken.by_index = no_device, broken.by_pci = (int (*)(const char *, void **))NULL;
    atomic_store(&shut, 0);
    assert_null(tn_gpu_usage_start(&broken));
    assert_int_equal(atomic_load(&shut), 1); /* what was opened is closed */
    assert_false(tn_gpu_usage_read(NULL, &now));
    tn_gpu_usage_stop(NULL);
}

/* An old driver without the clock, a GPU that does not say its power: the rest is heard. */
static void optional(void **state)
{
    (void)state;
    tn_gpu_sample now;
    tn_nvml old = working;
    old.clock = NULL, old.power = not_supported;
    atomic_store(&asked, 0);
    tn_gpu_usage *u = tn_gpu_usage_start(&old);
    assert_non_null(u);
    wait_for(1);
    while (!tn_gpu_usage_read(u, &now)) nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    assert_true(now.busy == 40 && now.used == 25 && isnan(now.clock_mhz) && isnan(now.watt));
    tn_gpu_usage_stop(u);
}

/* A library that is none, and one that is not NVML. */
static void other_libraries(void **state)
{
    (void)state;
    const char *const names[] = { "/nowhere/libnvidia-ml.so.1", "libm.so.6" };
    for (size_t i = 0; i < 2; i++) {
        setenv("TENON_NVML", names[i], 1);
        assert_null(tn_gpu_usage_start(NULL));
    }
    unsetenv("TENON_NVML");
}

void tn_tests_gpu_usage(tn_test_list *l)
{
    tn_test_add(l, samples_once_a_second, NULL, "gpu usage: once a second, off the caller's thread");
    tn_test_add(l, absent, NULL, "gpu usage: no GPU, no answer");
    tn_test_add(l, optional, NULL, "gpu usage: without clock and power");
    tn_test_add(l, other_libraries, NULL, "gpu usage: a library that is not NVML");
}
