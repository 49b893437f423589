/* What a DCGM host engine answers, as it was measured: also where that is odd. */
#define _GNU_SOURCE
#include "dcgm.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef uintptr_t handle_t;

#define BLANK_I32 0x7ffffff0
#define BLANK_I64 0x7ffffffffffffff0
#define BLANK_F64 140737488355328.0
#define ALL_GPUS 0x7fffffff
#define EMBEDDED 0x7fffffff
#define VERSION(type, number) ((u32)(sizeof(type) | (number) << 24))

enum { GROUPS = 64, FIRST_PROFILING_FIELD = 1001, LIVE_DATA = 1, ENTITY_GPU = 1 };

/* ---- DCGM's own structs: public interface of 3.1 to 4.6 ---- */

struct connect_params { u32 version, persist, timeout_ms, is_unix; };
struct embedded_params {
    u32 version, mode;
    handle_t handle;
    const char *log_file;
    i32 severity;
    u32 deny_count, deny[10];
};
struct version_info { u32 version; char text[512]; };
struct attributes { u32 version; char before[4144]; char uuid[256]; char after[816]; };
struct summary64 { i64 low, high, average; };
struct summary32 { i32 low, high, average; };
struct utilization { u32 pid; double sm, memory; };
struct pid_gpu {
    u32 gpu;
    i64 energy;
    struct summary64 pcie_rx, pcie_tx;
    i64 pcie_replays, start, end;
    struct utilization process;
    struct summary32 sm, memory;
    u32 ecc_single, ecc_double;
    struct summary32 memory_clock, sm_clock;
    i32 xids;
    i64 xid_times[10];
    i32 other_compute;
    u32 other_compute_pids[16];
    i32 other_graphics;
    u32 other_graphics_pids[16];
    i64 max_memory, power_violation, thermal_violation, reliability, board_limit, low_utilization, sync_boost;
    u32 health, incidents, systems[10][2];
};
struct pid_info { u32 version, pid, unused; i32 count; struct pid_gpu summary, gpus[32]; };
struct entity { u32 group, id; };
struct value {
    u32 version, group, id;
    uint16_t field, type;
    i32 status;
    u32 unused;
    i64 at;
    union { i64 integer; double real; char blob[4096]; } number;
};

#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#define AT(type, member, offset) _Static_assert(offsetof(struct type, member) == (offset), #type "." #member)
SIZE(connect_params, 16);
SIZE(embedded_params, 72);
SIZE(version_info, 516);
SIZE(attributes, 5220);
AT(attributes, uuid, 3120 + 1028);
SIZE(pid_gpu, 536);
AT(pid_gpu, energy, 8);
AT(pid_gpu, start, 72);
AT(pid_gpu, process, 88);
AT(pid_gpu, sm, 112);
AT(pid_gpu, max_memory, 392);
SIZE(pid_info, 17704);
AT(pid_info, gpus, 552);
SIZE(value, 4128);
AT(value, number, 32);

/* ---- The shared file, and what stands before every call ---- */

static struct control *control;
static bool initialised;

/* What this process has made in the engine; gone with the epoch it was made in. */
static struct { u32 epoch, gpus; bool used; } groups[GROUPS];
static struct { u32 epoch; int count; uint16_t ids[128]; bool used; } field_groups[GROUPS];

__attribute__((constructor)) static void map_control(void)
{
    const char *path = getenv("FAKE_DCGM_CONTROL");
    if (!path)
        return;
    int file = open(path, O_RDWR | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat(file, &status) || status.st_size != sizeof(struct control)) {
        fprintf(stderr, "fake dcgm: %s is not a control file of this build\n", path);
        abort();
    }
    void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED || ((struct control *)mapped)->size != sizeof(struct control)) {
        fprintf(stderr, "fake dcgm: cannot use %s\n", path);
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

static int pass(enum call_id id)
{
    struct call *call = &control->calls[id];
    atomic_fetch_add(&call->count, 1);
    if (call->delay_us)
        pause_us(call->delay_us);
    while (atomic_load(&call->hang))
        pause_us(1000);
    return call->rc;
}

static bool connected(handle_t handle)
{
    if (handle == EMBEDDED)
        return control->embedded;
    return control->up && handle >> 8 == control->epoch && (handle & 0xFF) == 1;
}

#define LOCAL(call)                       \
    do {                                  \
        if (!control || !initialised)     \
            return UNINITIALIZED;         \
        int rc_ = pass(CALL_##call);      \
        if (rc_ != OK)                    \
            return rc_;                   \
    } while (0)

#define ENGINE(call)                      \
    do {                                  \
        LOCAL(call);                      \
        if (!connected(handle))           \
            return CONNECTION_NOT_VALID;  \
    } while (0)

static i64 now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

const char *errorString(int rc)
{
    switch (rc) {
    case OK: return "Success";
    case BADPARAM: return "Bad parameter passed to function";
    case UNINITIALIZED: return "DCGM has not been initialized";
    case VER_MISMATCH: return "Version mismatch between API and library";
    case NO_DATA: return "No data is available";
    case NOT_WATCHED: return "Field is not being watched";
    case CONNECTION_NOT_VALID: return "The connection is not valid";
    case REQUIRES_ROOT: return "Operation requires root";
    case PROFILING_NOT_SUPPORTED: return "Profiling is not supported";
    default: return "Error";
    }
}

/* ---- Connections ---- */

int dcgmInit(void)
{
    if (!control)
        return UNINITIALIZED;
    int rc = pass(CALL_dcgmInit);
    initialised = rc == OK;
    return rc;
}

int dcgmShutdown(void)
{
    LOCAL(dcgmShutdown);
    initialised = false;
    return OK;
}

int dcgmConnect_v2(const char *address, const struct connect_params *params, handle_t *handle)
{
    LOCAL(dcgmConnect_v2);
    if (params->version != VERSION(*params, 2))
        return VER_MISMATCH;
    if (!control->up || params->is_unix != control->is_unix || strcmp(address, control->address))
        return CONNECTION_NOT_VALID;
    if (control->login_fails) {
        *handle = (handle_t)control->epoch << 8 | 2;
        return OK;
    }
    *handle = (handle_t)control->epoch << 8 | 1;
    control->connected++;
    return OK;
}

/* The watches of a client end with it; what was sampled stays. */
static void end_watches(void)
{
    memset(control->watched, 0, sizeof control->watched);
    for (u32 i = 0; i < control->count; i++)
        if (control->gpus[i].watched_us && !control->gpus[i].unwatched_us)
            control->gpus[i].unwatched_us = now_us();
    memset(groups, 0, sizeof groups);
    memset(field_groups, 0, sizeof field_groups);
}

int dcgmDisconnect(handle_t handle)
{
    ENGINE(dcgmDisconnect);
    control->connected--;
    end_watches();
    return OK;
}

int dcgmStartEmbedded_v2(struct embedded_params *params)
{
    LOCAL(dcgmStartEmbedded_v2);
    if (params->version != VERSION(*params, 1))
        return VER_MISMATCH;
    if (!control->embedded) /* a second start leaves the handle as it is */
        params->handle = EMBEDDED;
    control->embedded = 1;
    return OK;
}

int dcgmStopEmbedded(handle_t handle)
{
    ENGINE(dcgmStopEmbedded);
    control->embedded = 0;
    end_watches();
    return OK;
}

static int answer_version(struct version_info *info, const char *text)
{
    if (info->version != VERSION(*info, 2))
        return VER_MISMATCH;
    snprintf(info->text, sizeof info->text, "%s", text);
    return OK;
}

int dcgmVersionInfo(struct version_info *info)
{
    LOCAL(dcgmVersionInfo);
    return answer_version(info, control->library_version);
}

int dcgmHostengineVersionInfo(handle_t handle, struct version_info *info)
{
    ENGINE(dcgmHostengineVersionInfo);
    return answer_version(info, control->engine_version);
}

/* ---- GPUs and groups ---- */

int dcgmGetAllSupportedDevices(handle_t handle, u32 ids[32], int *count)
{
    ENGINE(dcgmGetAllSupportedDevices);
    for (u32 i = 0; i < control->count; i++)
        ids[i] = i;
    *count = (int)control->count;
    return OK;
}

int dcgmGetDeviceAttributes(handle_t handle, u32 gpu, struct attributes *attributes)
{
    ENGINE(dcgmGetDeviceAttributes);
    if (attributes->version != VERSION(*attributes, 3))
        return VER_MISMATCH;
    if (gpu >= control->count)
        return BADPARAM;
    snprintf(attributes->uuid, sizeof attributes->uuid, "%s", control->gpus[gpu].uuid);
    return OK;
}

static bool group_known(handle_t group)
{
    return group == ALL_GPUS || (group < GROUPS && groups[group].used && groups[group].epoch == control->epoch);
}

static bool in_group(handle_t group, u32 gpu)
{
    return group == ALL_GPUS || groups[group].gpus >> gpu & 1;
}

int dcgmGroupCreate(handle_t handle, int type, const char *name, handle_t *group)
{
    ENGINE(dcgmGroupCreate);
    (void)name;
    for (u32 i = 1; i < GROUPS; i++)
        if (!groups[i].used) {
            groups[i].used = true;
            groups[i].epoch = control->epoch;
            groups[i].gpus = type == 0 ? (1u << control->count) - 1 : 0;
            *group = i;
            return OK;
        }
    return BADPARAM;
}

int dcgmGroupAddDevice(handle_t handle, handle_t group, u32 gpu)
{
    ENGINE(dcgmGroupAddDevice);
    if (!group_known(group) || gpu >= control->count)
        return BADPARAM;
    groups[group].gpus |= 1u << gpu;
    return OK;
}

int dcgmGroupDestroy(handle_t handle, handle_t group)
{
    ENGINE(dcgmGroupDestroy);
    if (!group_known(group) || group == ALL_GPUS)
        return BADPARAM;
    groups[group].used = false;
    return OK;
}

/* ---- Fields ---- */

int dcgmFieldGroupCreate(handle_t handle, int count, const uint16_t *ids, const char *name, handle_t *group)
{
    ENGINE(dcgmFieldGroupCreate);
    (void)name;
    for (u32 i = 1; i < GROUPS; i++)
        if (!field_groups[i].used) {
            field_groups[i].used = true;
            field_groups[i].epoch = control->epoch;
            field_groups[i].count = count;
            memcpy(field_groups[i].ids, ids, (size_t)count * sizeof *ids);
            *group = i;
            return OK;
        }
    return BADPARAM;
}

int dcgmFieldGroupDestroy(handle_t handle, handle_t group)
{
    ENGINE(dcgmFieldGroupDestroy);
    field_groups[group].used = false;
    return OK;
}

int dcgmWatchFields(handle_t handle, handle_t group, handle_t fields, long long every, double keep, int samples)
{
    ENGINE(dcgmWatchFields);
    (void)every, (void)keep, (void)samples;
    if (!group_known(group) || fields >= GROUPS || !field_groups[fields].used)
        return BADPARAM;
    for (int i = 0; i < field_groups[fields].count; i++)
        if (field_groups[fields].ids[i] >= FIRST_PROFILING_FIELD && !control->profiling)
            return PROFILING_NOT_SUPPORTED;
    for (int i = 0; i < field_groups[fields].count; i++)
        control->watched[field_groups[fields].ids[i] % FIELD_IDS] = 1;
    return OK;
}

static const struct field *field_of(const struct gpu *gpu, u32 id)
{
    for (u32 i = 0; i < gpu->field_count; i++)
        if (gpu->field_table[i].id == id)
            return &gpu->field_table[i];
    return NULL;
}

static bool is_double(u32 id)
{
    return id == 155 || id == 157 || (id >= 1001 && id <= 1008);
}

/* Not watched: the call is "OK", the value says -16 and is blank. */
static void answer_value(struct value *value, const struct field *field)
{
    bool real = field ? field->type == 'd' : is_double(value->field);
    bool known = field && control->watched[value->field % FIELD_IDS];
    value->type = real ? 'd' : 'i';
    value->status = !control->watched[value->field % FIELD_IDS] ? NOT_WATCHED : field ? field->status : OK;
    value->at = known ? now_us() - field->age_us : 0;
    if (real)
        value->number.real = known ? field->real : BLANK_F64;
    else
        value->number.integer = known ? field->integer : BLANK_I64;
}

int dcgmEntitiesGetLatestValues(handle_t handle, const struct entity *entities, u32 entity_count,
                                const uint16_t *ids, u32 id_count, u32 flags, struct value *values)
{
    ENGINE(dcgmEntitiesGetLatestValues);
    for (u32 i = 0; i < entity_count * id_count; i++) {
        u32 gpu = entities[i / id_count].id;
        if (entities[i / id_count].group != ENTITY_GPU || gpu >= control->count)
            return BADPARAM;
        if (flags & LIVE_DATA && ids[i % id_count] >= FIRST_PROFILING_FIELD)
            raise(SIGSEGV); /* as nv-hostengine does */
        values[i] = (struct value){.version = VERSION(*values, 2), .group = ENTITY_GPU, .id = gpu};
        values[i].field = ids[i % id_count];
        answer_value(&values[i], field_of(&control->gpus[gpu], ids[i % id_count]));
    }
    return OK;
}

/* ---- Records of processes ---- */

static i64 larger(i64 one, i64 other)
{
    return one > other ? one : other;
}

static i64 smaller(i64 one, i64 other)
{
    return one < other ? one : other;
}

static i64 retention_us(i64 every, double keep, int samples)
{
    i64 asked = larger(larger((i64)keep, 1) * 1000000, larger((i64)(1.1 * samples * (double)every), 1000000));
    if (!control->other_client_us)
        return asked;
    return control->shortest_wins ? smaller(asked, control->other_client_us)
                                  : larger(asked, control->other_client_us);
}

int dcgmWatchPidFields(handle_t handle, handle_t group, long long every, double keep, int samples)
{
    ENGINE(dcgmWatchPidFields);
    if (!group_known(group))
        return BADPARAM;
    for (u32 i = 0; i < control->count; i++) /* accounting is the first field: if it fails, none is watched */
        if (in_group(group, i) && control->gpus[i].accounting == ACCOUNTING_OFF && !control->root)
            return REQUIRES_ROOT;
    for (u32 i = 0; i < control->count; i++) {
        struct gpu *gpu = &control->gpus[i];
        if (!in_group(group, i))
            continue;
        if (gpu->accounting == ACCOUNTING_OFF)
            gpu->accounting = ACCOUNTING_ON; /* silently, and for good */
        if (!gpu->watched_us)
            gpu->watched_us = now_us();
        gpu->unwatched_us = 0;
        gpu->every_us = every;
        gpu->retention_us = retention_us(every, keep, samples);
    }
    return OK;
}

/* Difference of the whole GPU's counter between the first and last sample kept of the process's life. */
static i64 energy_mj(const struct gpu *gpu, const struct process *process)
{
    i64 now = now_us(), every = larger(gpu->every_us, 1);
    i64 kept = larger(gpu->watched_us, now - gpu->retention_us);
    i64 from = larger(process->start_us, kept);
    i64 to = smaller(process->end_us ? process->end_us : now, gpu->unwatched_us ? gpu->unwatched_us : now);
    i64 first = gpu->watched_us + (larger(from - gpu->watched_us, 0) + every - 1) / every * every;
    i64 last = gpu->watched_us + (to - gpu->watched_us) / every * every;
    if (to < gpu->watched_us || last < first)
        return BLANK_I64;
    first = larger(first, gpu->energy_since_us);
    return last > first ? (i64)((__int128)gpu->power_mw * (last - first) / 1000000) : 0;
}

static const struct process *newest(const struct gpu *gpu, u32 pid)
{
    const struct process *found = NULL;
    for (u32 i = 0; i < gpu->process_count; i++)
        if (gpu->process_table[i].pid == pid && (!found || gpu->process_table[i].start_us >= found->start_us))
            found = &gpu->process_table[i];
    return found;
}

static void answer_record(struct pid_gpu *answer, const struct gpu *gpu, const struct process *process)
{
    u32 running = 0;
    for (u32 i = 0; i < gpu->process_count; i++)
        running += !gpu->process_table[i].end_us;
    answer->energy = energy_mj(gpu, process);
    answer->start = process->start_us;
    answer->end = process->end_us;
    answer->max_memory = process->memory;
    answer->process.pid = process->pid;
    answer->process.sm = (double)process->sm / (running ? running : 1); /* over the samples of all pids */
    answer->reliability = answer->board_limit = answer->low_utilization = BLANK_I64;
}

/* No accounting: what the struct held before is taken for start, end and memory. */
static void answer_rubbish(struct pid_gpu *answer)
{
    answer->start = control->rubbish_us;
    answer->max_memory = 140676330378256;
    answer->energy = 1234567;
}

int dcgmGetPidInfo(handle_t handle, handle_t group, struct pid_info *info)
{
    ENGINE(dcgmGetPidInfo);
    if (info->version != VERSION(*info, 2))
        return VER_MISMATCH;
    if (!info->pid || !group_known(group))
        return BADPARAM;
    info->count = 0;
    for (u32 i = 0; i < control->count; i++) {
        const struct gpu *gpu = &control->gpus[i];
        if (!in_group(group, i))
            continue;
        if (!gpu->watched_us)
            return NOT_WATCHED;
        const struct process *process = newest(gpu, info->pid);
        if (!process && gpu->accounting != ACCOUNTING_UNSUPPORTED)
            continue;
        struct pid_gpu *answer = &info->gpus[info->count++];
        memset(answer, 0, sizeof *answer);
        answer->gpu = i;
        if (gpu->accounting == ACCOUNTING_UNSUPPORTED)
            answer_rubbish(answer);
        else
            answer_record(answer, gpu, process);
    }
    return info->count ? OK : NO_DATA;
}
