/* MIG instances, and GPM's meters of GPUs and instances. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int nvmlDeviceGetMigDeviceHandleByIndex(handle_t device, u32 index, handle_t *handle)
{
    DEVICE(nvmlDeviceGetMigDeviceHandleByIndex);
    if (index >= gpu->mig_devices_max || index >= INSTANCES)
        return INVALID_ARGUMENT;
    if (!gpu->mig_mode)
        return NOT_SUPPORTED;
    if (!gpu->instances[index].uuid[0])
        return NOT_FOUND;
    *handle = handle_of_instance(gpu, index);
    return SUCCESS;
}

#define OF_INSTANCE(call, field)             \
    int call(handle_t device, u32 *answer)   \
    {                                        \
        EITHER(call);                        \
        if (!visit.instance)                 \
            return INVALID_ARGUMENT;         \
        *answer = visit.instance->field;     \
        return SUCCESS;                      \
    }

OF_INSTANCE(nvmlDeviceGetGpuInstanceId, gpu_instance)
OF_INSTANCE(nvmlDeviceGetComputeInstanceId, compute_instance)

int nvmlDeviceIsMigDeviceHandle(handle_t device, u32 *answer)
{
    EITHER(nvmlDeviceIsMigDeviceHandle);
    *answer = visit.instance != NULL;
    return SUCCESS;
}

struct attributes {
    u32 multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_slices, compute_slices;
    u64 memory_mb;
};

int nvmlDeviceGetAttributes_v2(handle_t device, struct attributes *attributes)
{
    EITHER(nvmlDeviceGetAttributes_v2);
    if (!visit.instance)
        return NOT_SUPPORTED;
    u32 slices = visit.instance->slices;
    *attributes = (struct attributes){
        .multiprocessors = 14 * slices,
        .gpu_slices = slices,
        .compute_slices = slices,
        .memory_mb = visit.instance->memory_total >> 20,
    };
    return SUCCESS;
}

/* ---- GPU instances: the handle of one is that of the first compute instance in it ---- */

static const struct instance *with_gpu_instance(const struct gpu *gpu, int id)
{
    for (u32 i = 0; i < INSTANCES; i++)
        if (gpu->instances[i].uuid[0] && (int)gpu->instances[i].gpu_instance == id)
            return &gpu->instances[i];
    return NULL;
}

int nvmlDeviceGetGpuInstanceById(handle_t device, u32 id, handle_t *handle)
{
    DEVICE(nvmlDeviceGetGpuInstanceById);
    const struct instance *part = with_gpu_instance(gpu, (int)id);
    if (!part)
        return NOT_FOUND;
    *handle = handle_of_instance(gpu, (u32)(part - gpu->instances));
    return SUCCESS;
}

struct gpu_instance_info {
    handle_t device;
    u32 id, profile_id, start, size;
};

int nvmlGpuInstanceGetInfo(handle_t device, struct gpu_instance_info *info)
{
    EITHER(nvmlGpuInstanceGetInfo);
    if (!visit.instance)
        return INVALID_ARGUMENT;
    *info = (struct gpu_instance_info){
        .device = handle_of(gpu),
        .id = visit.instance->gpu_instance,
        .profile_id = visit.instance->profile_id,
        .start = visit.instance->placement_start,
        .size = visit.instance->slices,
    };
    return SUCCESS;
}

/* ---- GPM ---- */

enum { WHOLE = -1, APART_NS = 100000000 };

struct sample_of {
    const struct gpu *gpu;
    int gpu_instance;
    u64 taken_ns;
};

struct support {
    u32 version, supported;
};

struct metric {
    u32 id;
    i32 rc;
    double value;
    const char *names[3];
};

struct comparison {
    u32 version, count;
    struct sample_of *older, *newer;
    struct metric metrics[];
};

int nvmlGpmQueryDeviceSupport(handle_t device, struct support *support)
{
    DEVICE(nvmlGpmQueryDeviceSupport);
    support->supported = gpu->gpm_supported;
    return SUCCESS;
}

int nvmlGpmSampleAlloc(struct sample_of **sample)
{
    SYSTEM(nvmlGpmSampleAlloc);
    *sample = calloc(1, sizeof **sample);
    atomic_fetch_add(&control->gpm_samples, 1);
    return SUCCESS;
}

int nvmlGpmSampleFree(struct sample_of *sample)
{
    SYSTEM(nvmlGpmSampleFree);
    free(sample);
    atomic_fetch_sub(&control->gpm_samples, 1);
    return SUCCESS;
}

static int take(struct gpu *gpu, int gpu_instance, struct sample_of *sample)
{
    if (!gpu->gpm_supported)
        return NOT_SUPPORTED;
    *sample = (struct sample_of){gpu, gpu_instance, nanoseconds(CLOCK_MONOTONIC)};
    return SUCCESS;
}

int nvmlGpmSampleGet(handle_t device, struct sample_of *sample)
{
    DEVICE(nvmlGpmSampleGet);
    return gpu->mig_mode ? NOT_SUPPORTED : take(gpu, WHOLE, sample);
}

int nvmlGpmMigSampleGet(handle_t device, u32 gpu_instance, struct sample_of *sample)
{
    DEVICE(nvmlGpmMigSampleGet);
    return with_gpu_instance(gpu, (int)gpu_instance) ? take(gpu, (int)gpu_instance, sample) : NOT_FOUND;
}

static void measure(struct metric *metric, const struct sample_of *sample)
{
    const struct instance *part = with_gpu_instance(sample->gpu, sample->gpu_instance);
    metric->rc = metric->id < METERS ? SUCCESS : NOT_SUPPORTED;
    if (metric->rc == SUCCESS)
        metric->value = part ? part->meter : sample->gpu->meters[metric->id];
}

int nvmlGpmMetricsGet(struct comparison *comparison)
{
    SYSTEM(nvmlGpmMetricsGet);
    const struct sample_of *older = comparison->older, *newer = comparison->newer;
    if (comparison->version != 1)
        return ARGUMENT_VERSION_MISMATCH;
    if (older->gpu != newer->gpu || older->gpu_instance != newer->gpu_instance
        || newer->taken_ns < older->taken_ns + APART_NS)
        return INVALID_ARGUMENT;
    for (u32 i = 0; i < comparison->count; i++)
        measure(&comparison->metrics[i], newer);
    return SUCCESS;
}
