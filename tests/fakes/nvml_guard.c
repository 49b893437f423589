/* What stands before every call: the shared file, init and handles, counting, faults. */
#define _GNU_SOURCE
#include "nvml.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct control *control;

static _Atomic u32 references;
static _Atomic u32 epoch;
static _Atomic u32 under_way[GPUS]; /* ours alone: another process on the same GPU is no overlap */

__attribute__((constructor)) static void map_control(void)
{
    const char *path = getenv("FAKE_NVML_CONTROL");
    if (!path)
        return;
    int file = open(path, O_RDWR | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat(file, &status) || status.st_size != sizeof(struct control)) {
        fprintf(stderr, "fake nvml: %s is not a control file of this build\n", path);
        abort();
    }
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED || ((struct control *)mapped)->size != sizeof(struct control)) {
        fprintf(stderr, "fake nvml: cannot use %s\n", path);
        abort();
    }
    control = mapped;
}

static void pause_us(u32 microseconds)
{
    struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000L};
    while (nanosleep(&left, &left))
        ;
}

/* Counts the call, holds it as long as the test wants, and says how often it was made before. */
static u64 stall(struct call *call)
{
    u64 before = atomic_fetch_add(&call->count, 1);
    if (call->delay_us)
        pause_us(call->delay_us);
    while (atomic_load(&call->hang))
        pause_us(1000);
    return before;
}

static int verdict(const struct call *call, u64 before)
{
    int rc = call->first <= before && before < call->last ? call->rc : SUCCESS;
    if (rc == CRASH)
        raise(SIGSEGV);
    return rc;
}

static int pass(struct call *call)
{
    return verdict(call, stall(call));
}

/* The call's own fault, or else that of every call; judged last: what is set while it hangs counts. */
static int pass_both(struct call *calls, enum call_id id)
{
    struct call *every = &calls[CALL_ANY], *own = &calls[id];
    u64 every_before = stall(every), own_before = stall(own);
    int rc = verdict(own, own_before);
    return rc != SUCCESS ? rc : verdict(every, every_before);
}

static void occupy(struct visit *visit, struct gpu *gpu)
{
    if (atomic_fetch_add(&under_way[gpu - control->gpus], 1))
        atomic_fetch_add(&gpu->overlaps, 1);
    atomic_fetch_add(&gpu->in_flight, 1);
    visit->occupied = gpu;
}

void leave(struct visit *visit)
{
    struct gpu *gpu = visit->occupied;
    if (!gpu)
        return;
    atomic_fetch_sub(&gpu->in_flight, 1);
    atomic_fetch_sub(&under_way[gpu - control->gpus], 1);
}

handle_t handle_of(const struct gpu *gpu)
{
    return (handle_t)epoch << 32 | (handle_t)(gpu - control->gpus + 1);
}

/* Of an instance: its slot and the generation in which it was found lie between epoch and place. */
handle_t handle_of_instance(const struct gpu *gpu, u32 slot)
{
    return handle_of(gpu) | (handle_t)(gpu->mig_generation & 0xFFFF) << 16 | (handle_t)(slot + 1) << 8;
}

static struct gpu *gpu_of(handle_t handle)
{
    u32 place = handle & 0xFF;
    bool valid = handle >> 32 == epoch && place >= 1 && place <= GPUS;
    return valid ? &control->gpus[place - 1] : NULL;
}

static struct instance *instance_of(struct gpu *gpu, handle_t handle)
{
    u32 slot = handle >> 8 & 0xFF, generation = handle >> 16 & 0xFFFF;
    bool valid = slot >= 1 && slot <= INSTANCES && generation == (gpu->mig_generation & 0xFFFF);
    return valid && gpu->instances[slot - 1].uuid[0] ? &gpu->instances[slot - 1] : NULL;
}

struct visit enter_system(enum call_id call)
{
    struct visit visit = {0};
    visit.rc = references ? pass_both(control->calls, call) : UNINITIALIZED;
    return visit;
}

/* A lookup belongs to the GPU it finds; it is neither under its wildcard nor an overlap. */
struct visit enter_lookup(enum call_id call, struct gpu *gpu)
{
    if (!gpu)
        return enter_system(call);
    struct visit visit = {.gpu = gpu};
    visit.rc = references ? pass(&gpu->calls[call]) : UNINITIALIZED;
    return visit;
}

struct visit enter_device(enum call_id call, handle_t device)
{
    struct visit visit = enter_either(call, device);
    if (visit.rc == SUCCESS && visit.instance)
        visit.rc = NOT_SUPPORTED;
    return visit;
}

struct visit enter_either(enum call_id call, handle_t device)
{
    struct visit visit = {0};
    if (!references) {
        visit.rc = UNINITIALIZED;
    } else if (!(visit.gpu = gpu_of(device))) {
        visit.rc = INVALID_ARGUMENT;
    } else {
        occupy(&visit, visit.gpu);
        visit.rc = pass_both(visit.gpu->calls, call);
        if (visit.gpu->index == ABSENT)
            visit.rc = GPU_IS_LOST;
        bool of_instance = device >> 8 & 0xFF;
        if (of_instance && visit.rc == SUCCESS && !(visit.instance = instance_of(visit.gpu, device)))
            visit.rc = INVALID_ARGUMENT;
    }
    return visit;
}

/* Old handles end, and so do the calls of a process that was killed in the middle of them. */
static void begin_epoch(void)
{
    atomic_fetch_add(&epoch, 1);
    for (u32 i = 0; i < GPUS; i++)
        atomic_store(&control->gpus[i].in_flight, under_way[i]);
}

int nvmlInit_v2(void)
{
    if (!control)
        return DRIVER_NOT_LOADED;
    int rc = pass_both(control->calls, CALL_nvmlInit_v2);
    if (rc != SUCCESS)
        return rc;
    if (!references)
        begin_epoch();
    atomic_store(&control->initialised, atomic_fetch_add(&references, 1) + 1);
    return SUCCESS;
}

/* The binding calls this one only: the faults of nvmlInit_v2 are its own, too. */
int nvmlInitWithFlags(u32 flags)
{
    (void)flags;
    int rc = control ? pass(&control->calls[CALL_nvmlInitWithFlags]) : DRIVER_NOT_LOADED;
    return rc == SUCCESS ? nvmlInit_v2() : rc;
}

int nvmlShutdown(void)
{
    SYSTEM(nvmlShutdown);
    atomic_store(&control->initialised, atomic_fetch_sub(&references, 1) - 1);
    return SUCCESS;
}
