/* Xids: told to a set of events in which GPUs were registered, from then on. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

enum { XID_CRITICAL_ERROR = 8 };

struct event_data {
    handle_t device;
    u64 type, data;
    u32 gpu_instance, compute_instance;
};

/* One set at a time; its handle is its number, and an older one is invalid. */
static _Atomic u32 newest_set;
static _Atomic bool registered[GPUS];
static _Atomic u32 seen[GPUS];

int nvmlEventSetCreate(handle_t *set)
{
    SYSTEM(nvmlEventSetCreate);
    for (u32 i = 0; i < GPUS; i++)
        atomic_store(&registered[i], false);
    *set = atomic_fetch_add(&newest_set, 1) + 1;
    atomic_fetch_add(&control->event_sets, 1);
    return SUCCESS;
}

int nvmlEventSetFree(handle_t set)
{
    SYSTEM(nvmlEventSetFree);
    if (set != newest_set)
        return INVALID_ARGUMENT;
    for (u32 i = 0; i < GPUS; i++)
        atomic_store(&registered[i], false);
    atomic_fetch_add(&newest_set, 1);
    atomic_fetch_sub(&control->event_sets, 1);
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(handle_t device, u64 types, handle_t set)
{
    DEVICE(nvmlDeviceRegisterEvents);
    if (set != newest_set)
        return INVALID_ARGUMENT;
    if (types != XID_CRITICAL_ERROR)
        return NOT_SUPPORTED;
    atomic_store(&seen[gpu - control->gpus], control->event_count);
    atomic_store(&registered[gpu - control->gpus], true);
    return SUCCESS;
}

static bool lost(const struct gpu *gpu)
{
    return gpu->index == ABSENT || gpu->calls[CALL_ANY].rc == GPU_IS_LOST;
}

/* The oldest event of a GPU that it was not told yet. */
static bool next_of(u32 place, struct event_data *data)
{
    while (seen[place] < control->event_count) {
        struct event event = control->events[atomic_fetch_add(&seen[place], 1) % EVENTS];
        if (event.place != place)
            continue;
        handle_t device = handle_of(&control->gpus[place]);
        *data = (struct event_data){device, XID_CRITICAL_ERROR, event.xid, UINT32_MAX, UINT32_MAX};
        return true;
    }
    return false;
}

static int look(struct event_data *data)
{
    for (u32 place = 0; place < GPUS; place++)
        if (registered[place] && next_of(place, data))
            return SUCCESS;
    for (u32 place = 0; place < GPUS; place++)
        if (registered[place] && lost(&control->gpus[place]))
            return GPU_IS_LOST;
    return TIMEOUT;
}

int nvmlEventSetWait_v2(handle_t set, struct event_data *data, u32 milliseconds)
{
    SYSTEM(nvmlEventSetWait_v2);
    if (set != newest_set)
        return INVALID_ARGUMENT;
    u64 until = nanoseconds(CLOCK_MONOTONIC) + milliseconds * 1000000ull;
    int rc;
    while ((rc = look(data)) == TIMEOUT && nanoseconds(CLOCK_MONOTONIC) < until)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return rc;
}
