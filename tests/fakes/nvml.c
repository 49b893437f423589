/* The answers: one function per NVML call, most of them one line of a table. */
#define _GNU_SOURCE
#include "nvml.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Shapes that repeat ---- */

static int answer_text(const char *text, char *buffer, u32 size)
{
    if (strlen(text) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return SUCCESS;
}

#define TEXT(call, field)                              \
    int call(handle_t device, char *buffer, u32 size)  \
    {                                                  \
        DEVICE(call);                                  \
        return answer_text(gpu->field, buffer, size);  \
    }

#define NUMBER(call, type, value)            \
    int call(handle_t device, type *answer)  \
    {                                        \
        DEVICE(call);                        \
        *answer = value;                     \
        return SUCCESS;                      \
    }

#define GAUGE(call, field) NUMBER(call, u32, gpu->field)

#define PAIR(call, value1, value2)                   \
    int call(handle_t device, u32 *one, u32 *other)  \
    {                                                \
        DEVICE(call);                                \
        *one = value1;                               \
        *other = value2;                             \
        return SUCCESS;                              \
    }

#define CHOICE(call, array)                             \
    int call(handle_t device, u32 which, u32 *answer)   \
    {                                                   \
        DEVICE(call);                                   \
        if (which >= COUNT(gpu->array))                 \
            return INVALID_ARGUMENT;                    \
        *answer = gpu->array[which];                    \
        return SUCCESS;                                 \
    }

/* ---- Consistent reading while Python writes: read again if the version moved ---- */

static u32 settled(const struct gpu *gpu)
{
    u32 version;
    while ((version = atomic_load(&gpu->version)) & 1)
        sched_yield();
    return version;
}

static bool moved(const struct gpu *gpu, u32 version)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load(&gpu->version) != version;
}

u64 nanoseconds(int clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
}

/* ---- System ---- */

const char *nvmlErrorString(int rc)
{
    static const char *const words[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power",
        "Driver Not Loaded", "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found",
        "Function Not Found", "Corrupted infoROM", "GPU is lost", "GPU requires reset",
        "Operating System Error", "Driver/library version mismatch", "In use by another client",
    };
    return rc >= 0 && (size_t)rc < COUNT(words) ? words[rc] : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *buffer, u32 size)
{
    SYSTEM(nvmlSystemGetDriverVersion);
    return answer_text(control->driver_version, buffer, size);
}

int nvmlSystemGetNVMLVersion(char *buffer, u32 size)
{
    SYSTEM(nvmlSystemGetNVMLVersion);
    return answer_text(control->nvml_version, buffer, size);
}

int nvmlSystemGetCudaDriverVersion(int *version)
{
    SYSTEM(nvmlSystemGetCudaDriverVersion);
    *version = (int)control->cuda_version;
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    SYSTEM(nvmlSystemGetCudaDriverVersion_v2);
    *version = (int)control->cuda_version;
    return SUCCESS;
}

/* ---- Enumeration ---- */

static struct gpu *at_index(u32 index)
{
    return control && index < control->count ? &control->gpus[control->order[index]] : NULL;
}

static struct gpu *with_uuid(const char *uuid)
{
    for (u32 i = 0; control && i < control->count; i++)
        if (!strcmp(at_index(i)->uuid, uuid))
            return at_index(i);
    return NULL;
}

static struct gpu *on_bus(const char *id)
{
    u32 domain, bus, slot, function;
    if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
        return NULL;
    for (u32 i = 0; control && i < control->count; i++) {
        struct gpu *gpu = at_index(i);
        if (gpu->pci_domain == domain && gpu->pci_bus == bus && gpu->pci_device == slot)
            return gpu;
    }
    return NULL;
}

int nvmlDeviceGetCount_v2(u32 *count)
{
    SYSTEM(nvmlDeviceGetCount_v2);
    *count = control->count;
    return SUCCESS;
}

#define FIND(call, type, search, otherwise)     \
    int call(type key, handle_t *handle)        \
    {                                           \
        LOOKUP(call, search(key));              \
        if (!gpu)                               \
            return otherwise;                   \
        *handle = handle_of(gpu);               \
        return SUCCESS;                         \
    }

FIND(nvmlDeviceGetHandleByIndex_v2, u32, at_index, INVALID_ARGUMENT)

static struct gpu *with_instance(const char *uuid, u32 *slot)
{
    for (u32 i = 0; control && i < control->count; i++)
        for (*slot = 0; *slot < INSTANCES; ++*slot)
            if (at_index(i)->mig_mode && !strcmp(at_index(i)->instances[*slot].uuid, uuid))
                return at_index(i);
    return NULL;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, handle_t *handle)
{
    u32 slot = 0;
    struct gpu *whole = with_uuid(uuid), *parent = whole ? NULL : with_instance(uuid, &slot);
    LOOKUP(nvmlDeviceGetHandleByUUID, whole ? whole : parent);
    if (!gpu)
        return NOT_FOUND;
    *handle = whole ? handle_of(gpu) : handle_of_instance(gpu, slot);
    return SUCCESS;
}

FIND(nvmlDeviceGetHandleByPciBusId_v2, const char *, on_bus, NOT_FOUND)

/* ---- Identity ---- */

#define TEXT_OF_EITHER(call, field)                                                           \
    int call(handle_t device, char *buffer, u32 size)                                         \
    {                                                                                         \
        EITHER(call);                                                                         \
        return answer_text(visit.instance ? visit.instance->field : gpu->field, buffer, size); \
    }

TEXT_OF_EITHER(nvmlDeviceGetUUID, uuid)
TEXT_OF_EITHER(nvmlDeviceGetName, name)
TEXT(nvmlDeviceGetSerial, serial)
TEXT(nvmlDeviceGetBoardPartNumber, part_number)
TEXT(nvmlDeviceGetVbiosVersion, vbios)
GAUGE(nvmlDeviceGetIndex, index)
GAUGE(nvmlDeviceGetMinorNumber, minor)
GAUGE(nvmlDeviceGetBrand, brand)
GAUGE(nvmlDeviceGetArchitecture, architecture)
PAIR(nvmlDeviceGetCudaComputeCapability, gpu->capability_major, gpu->capability_minor)

struct pci {
    char bus_id_legacy[16];
    u32 domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(handle_t device, struct pci *pci)
{
    DEVICE(nvmlDeviceGetPciInfo_v3);
    *pci = (struct pci){
        .domain = gpu->pci_domain,
        .bus = gpu->pci_bus,
        .device = gpu->pci_device,
        .device_id = gpu->pci_device_id,
        .subsystem_id = gpu->pci_subsystem_id,
    };
    u32 domain = gpu->pci_domain, bus = gpu->pci_bus & 0xFF, slot = gpu->pci_device & 0xFF;
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", domain, bus, slot);
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%04X:%02X:%02X.0", domain & 0xFFFF, bus, slot);
    return SUCCESS;
}

/* ---- Memory ---- */

static u64 memory_used(const struct gpu *gpu)
{
    if (gpu->memory_used != AUTO)
        return gpu->memory_used;
    u32 version;
    u64 sum;
    do {
        version = settled(gpu);
        sum = 0;
        for (u32 i = 0; i < gpu->process_count; i++)
            if (gpu->process_table[i].memory != NOT_AVAILABLE)
                sum += gpu->process_table[i].memory;
    } while (moved(gpu, version));
    return sum;
}

static u64 left(u64 total, u64 used)
{
    return total > used ? total - used : 0;
}

struct memory {
    u64 total, free, used;
};

/* Version 1 has no word for the reserved part and counts it as used. */
int nvmlDeviceGetMemoryInfo(handle_t device, struct memory *memory)
{
    EITHER(nvmlDeviceGetMemoryInfo);
    struct instance *part = visit.instance;
    if (part) {
        *memory = (struct memory){part->memory_total, left(part->memory_total, part->memory_used), part->memory_used};
        return SUCCESS;
    }
    u64 used = gpu->memory_reserved + memory_used(gpu);
    *memory = (struct memory){gpu->memory_total, left(gpu->memory_total, used), used};
    return SUCCESS;
}

struct memory_v2 {
    u32 version;
    u64 total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(handle_t device, struct memory_v2 *memory)
{
    EITHER(nvmlDeviceGetMemoryInfo_v2);
    if (memory->version != (2u << 24 | sizeof *memory))
        return ARGUMENT_VERSION_MISMATCH;
    struct instance *part = visit.instance;
    if (part) {
        memory->total = part->memory_total;
        memory->reserved = 0;
        memory->used = part->memory_used;
        memory->free = left(memory->total, memory->used);
        return SUCCESS;
    }
    memory->total = gpu->memory_total;
    memory->reserved = gpu->memory_reserved;
    memory->used = memory_used(gpu);
    memory->free = left(memory->total, memory->reserved + memory->used);
    return SUCCESS;
}

int nvmlDeviceGetBAR1MemoryInfo(handle_t device, struct memory *memory)
{
    DEVICE(nvmlDeviceGetBAR1MemoryInfo);
    *memory = (struct memory){gpu->bar1_total, left(gpu->bar1_total, gpu->bar1_used), gpu->bar1_used};
    return SUCCESS;
}

int nvmlDeviceGetConfComputeMemSizeInfo(handle_t device, u64 protected_and_unprotected_kib[2])
{
    DEVICE(nvmlDeviceGetConfComputeMemSizeInfo);
    protected_and_unprotected_kib[0] = 0;
    protected_and_unprotected_kib[1] = gpu->memory_total / 1024;
    return SUCCESS;
}

/* ---- Energy and power ---- */

/* nvml.py computes the same, digit for digit, when it changes the rate. */
static u64 energy_mj(const struct gpu *gpu)
{
    u32 version;
    u64 microjoules;
    do {
        version = settled(gpu);
        u64 now = nanoseconds(CLOCK_MONOTONIC);
        if (gpu->energy_quantum_ns)
            now -= now % gpu->energy_quantum_ns;
        u64 elapsed = now > gpu->energy_since_ns ? now - gpu->energy_since_ns : 0;
        microjoules = gpu->energy_uj + (u64)((unsigned __int128)gpu->energy_rate_mw * elapsed / 1000000);
    } while (moved(gpu, version));
    return microjoules / 1000;
}

NUMBER(nvmlDeviceGetTotalEnergyConsumption, u64, energy_mj(gpu))
GAUGE(nvmlDeviceGetPowerUsage, power_mw)
NUMBER(nvmlDeviceGetPowerManagementMode, u32, 1)
GAUGE(nvmlDeviceGetPowerManagementLimit, power_limit_mw)
GAUGE(nvmlDeviceGetEnforcedPowerLimit, power_limit_enforced_mw)
GAUGE(nvmlDeviceGetPowerManagementDefaultLimit, power_limit_default_mw)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, gpu->power_limit_min_mw, gpu->power_limit_max_mw)

/* ---- Gauges ---- */

enum { SAMPLING_PERIOD_US = 167000 };

struct rates {
    u32 gpu, memory;
};

int nvmlDeviceGetUtilizationRates(handle_t device, struct rates *rates)
{
    DEVICE(nvmlDeviceGetUtilizationRates);
    if (gpu->mig_mode)
        return NOT_SUPPORTED;
    *rates = (struct rates){gpu->utilization_gpu, gpu->utilization_memory};
    return SUCCESS;
}

/* Not supported in MIG mode, as nvml.h says of each. */
#define ENGINE(call, field)                                \
    int call(handle_t device, u32 *percent, u32 *period)   \
    {                                                      \
        DEVICE(call);                                      \
        if (gpu->mig_mode)                                 \
            return NOT_SUPPORTED;                          \
        *percent = gpu->field;                             \
        *period = SAMPLING_PERIOD_US;                      \
        return SUCCESS;                                    \
    }

ENGINE(nvmlDeviceGetEncoderUtilization, utilization_encoder)
ENGINE(nvmlDeviceGetDecoderUtilization, utilization_decoder)
ENGINE(nvmlDeviceGetJpgUtilization, utilization_jpeg)
ENGINE(nvmlDeviceGetOfaUtilization, utilization_ofa)
CHOICE(nvmlDeviceGetClockInfo, clocks)
CHOICE(nvmlDeviceGetMaxClockInfo, clocks_max)
GAUGE(nvmlDeviceGetPerformanceState, performance_state)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, gpu->clock_reasons)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, u64, gpu->clock_reasons)
GAUGE(nvmlDeviceGetPersistenceMode, persistence_mode)
GAUGE(nvmlDeviceGetComputeMode, compute_mode)
PAIR(nvmlDeviceGetEccMode, gpu->ecc_mode, gpu->ecc_mode_pending)
PAIR(nvmlDeviceGetMigMode, gpu->mig_mode, gpu->mig_mode_pending)
GAUGE(nvmlDeviceGetMaxMigDeviceCount, mig_devices_max)
GAUGE(nvmlDeviceGetAccountingMode, accounting_mode)

int nvmlDeviceSetAccountingMode(handle_t device, u32 mode)
{
    DEVICE(nvmlDeviceSetAccountingMode);
    if (gpu->mig_mode)
        return NOT_SUPPORTED;
    gpu->accounting_mode = mode;
    return SUCCESS;
}

GAUGE(nvmlDeviceGetDisplayActive, display_active)
GAUGE(nvmlDeviceGetDisplayMode, display_mode)
GAUGE(nvmlDeviceGetVirtualizationMode, virtualization_mode)
GAUGE(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation)
GAUGE(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
GAUGE(nvmlDeviceGetMaxPcieLinkGeneration, pcie_generation_max)
GAUGE(nvmlDeviceGetMaxPcieLinkWidth, pcie_width_max)
GAUGE(nvmlDeviceGetPcieReplayCounter, pcie_replays)
CHOICE(nvmlDeviceGetPcieThroughput, pcie_throughput_kb)
GAUGE(nvmlDeviceGetNumFans, fans)

int nvmlDeviceGetFanSpeed(handle_t device, u32 *percent)
{
    DEVICE(nvmlDeviceGetFanSpeed);
    if (!gpu->fans)
        return NOT_SUPPORTED;
    *percent = gpu->fan_speed;
    return SUCCESS;
}

int nvmlDeviceGetFanSpeed_v2(handle_t device, u32 fan, u32 *percent)
{
    DEVICE(nvmlDeviceGetFanSpeed_v2);
    if (fan >= gpu->fans)
        return gpu->fans ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *percent = gpu->fan_speed;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(handle_t device, u32 sensor, u32 *celsius)
{
    DEVICE(nvmlDeviceGetTemperature);
    if (sensor)
        return INVALID_ARGUMENT;
    *celsius = gpu->temperature;
    return SUCCESS;
}

struct temperature {
    u32 version;
    u32 sensor;
    i32 celsius;
};

int nvmlDeviceGetTemperatureV(handle_t device, struct temperature *temperature)
{
    DEVICE(nvmlDeviceGetTemperatureV);
    if (temperature->version != (1u << 24 | sizeof *temperature))
        return ARGUMENT_VERSION_MISMATCH;
    if (temperature->sensor)
        return INVALID_ARGUMENT;
    temperature->celsius = (i32)gpu->temperature;
    return SUCCESS;
}

int nvmlDeviceGetTemperatureThreshold(handle_t device, u32 which, u32 *celsius)
{
    DEVICE(nvmlDeviceGetTemperatureThreshold);
    if (which >= THRESHOLDS)
        return INVALID_ARGUMENT;
    *celsius = gpu->thresholds[which];
    return *celsius ? SUCCESS : NOT_SUPPORTED;
}

/* ---- Errors and violations ---- */

int nvmlDeviceGetTotalEccErrors(handle_t device, u32 uncorrected, u32 aggregate, u64 *errors)
{
    DEVICE(nvmlDeviceGetTotalEccErrors);
    if (uncorrected > 1 || aggregate > 1)
        return INVALID_ARGUMENT;
    if (!gpu->ecc_mode)
        return NOT_SUPPORTED;
    *errors = gpu->ecc_errors[2 * aggregate + uncorrected];
    return SUCCESS;
}

struct violation {
    u64 reference_us, violation_ns;
};

int nvmlDeviceGetViolationStatus(handle_t device, u32 policy, struct violation *violation)
{
    DEVICE(nvmlDeviceGetViolationStatus);
    if (policy >= POLICIES)
        return INVALID_ARGUMENT;
    *violation = (struct violation){nanoseconds(CLOCK_REALTIME) / 1000, gpu->violation_ns[policy]};
    return SUCCESS;
}

/* ---- Processes ---- */

enum { NEWCOMER_PID = 4000000 };

static void put(void *records, size_t stride, u32 at, struct process process)
{
    char *record = (char *)records + at * stride;
    process.lists = 0;
    memset(record, 0, stride);
    memcpy(record, &process, stride < sizeof process ? stride : sizeof process);
}

static bool lies_in(const struct instance *part, const struct process *process)
{
    return !part || (part->gpu_instance == process->gpu_instance && part->compute_instance == process->compute_instance);
}

static int answer_processes(const struct visit *visit, u32 lists, u32 *count, void *records, size_t stride)
{
    struct gpu *gpu = visit->gpu;
    if (gpu->mig_mode && gpu->mig_parent_refuses & lists && !visit->instance)
        return NO_PERMISSION;
    u32 room = records ? *count : 0, newcomers = gpu->growing ? atomic_fetch_add(&gpu->grown, 1) + 1 : 0;
    u32 version, found;
    do {
        version = settled(gpu);
        found = 0;
        for (u32 i = 0; i < gpu->process_count; i++)
            if (gpu->process_table[i].lists & lists && lies_in(visit->instance, &gpu->process_table[i])
                && found++ < room)
                put(records, stride, found - 1, gpu->process_table[i]);
    } while (moved(gpu, version));
    for (u32 i = 0; i < newcomers; i++)
        if (found++ < room)
            put(records, stride, found - 1,
                (struct process){NEWCOMER_PID + i, 0, 1 << 20, UINT32_MAX, UINT32_MAX, 0});
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#define LIST(call, lists, stride)                                     \
    int call(handle_t device, u32 *count, void *records)              \
    {                                                                 \
        EITHER(call);                                                 \
        return answer_processes(&visit, lists, count, records, stride); \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, COMPUTE, 16)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE, 24)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE, control->process_stride)
LIST(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS, 16)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS, 24)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS, control->process_stride)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, MPS, 16)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS, 24)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS, control->process_stride)

struct detail_list {
    u32 version, mode, count;
    struct process *records;
};

int nvmlDeviceGetRunningProcessDetailList(handle_t device, struct detail_list *list)
{
    static const u32 modes[] = {COMPUTE, GRAPHICS, MPS, COMPUTE | GRAPHICS | MPS};
    DEVICE(nvmlDeviceGetRunningProcessDetailList);
    if (list->version != (1u << 24 | sizeof *list))
        return ARGUMENT_VERSION_MISMATCH;
    if (list->mode >= COUNT(modes))
        return INVALID_ARGUMENT;
    return answer_processes(&visit, modes[list->mode], &list->count, list->records, sizeof(struct process));
}

int nvmlDeviceGetProcessUtilization(handle_t device, struct sample *samples, u32 *count, u64 last_seen)
{
    DEVICE(nvmlDeviceGetProcessUtilization);
    if (gpu->mig_mode)
        return NOT_SUPPORTED;
    u64 now = nanoseconds(CLOCK_REALTIME) / 1000;
    u32 room = samples ? *count : 0, version, found;
    do {
        version = settled(gpu);
        found = 0;
        for (u32 i = 0; i < gpu->sample_count; i++) {
            struct sample sample = gpu->sample_table[i];
            if (!sample.timestamp)
                sample.timestamp = now;
            if (sample.timestamp > last_seen && found++ < room)
                samples[found - 1] = sample;
        }
    } while (moved(gpu, version));
    *count = found;
    return !found ? NOT_FOUND : found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

/* ---- Field values ---- */

enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };

struct field_value {
    u32 id, scope;
    int64_t timestamp, latency_us;
    u32 type;
    i32 rc;
    u64 value;
};

static struct field known_field(const struct gpu *gpu, u32 id)
{
    switch (id) {
    case 3: return (struct field){.type = UNSIGNED_LONG_LONG, .value = gpu->ecc_errors[0]};
    case 4: return (struct field){.type = UNSIGNED_LONG_LONG, .value = gpu->ecc_errors[1]};
    case 5: return (struct field){.type = UNSIGNED_LONG_LONG, .value = gpu->ecc_errors[2]};
    case 6: return (struct field){.type = UNSIGNED_LONG_LONG, .value = gpu->ecc_errors[3]};
    case 94: return (struct field){.type = UNSIGNED_INT, .value = gpu->pcie_replays};
    case 138: return (struct field){.type = UNSIGNED_LONG_LONG, .value = gpu->nvlink_kib[0]};
    case 139: return (struct field){.type = UNSIGNED_LONG_LONG, .value = gpu->nvlink_kib[1]};
    case 197: return (struct field){.type = UNSIGNED_LONG_LONG, .value = gpu->pcie_bytes[0]};
    case 198: return (struct field){.type = UNSIGNED_LONG_LONG, .value = gpu->pcie_bytes[1]};
    case 230: return (struct field){.type = UNSIGNED_INT, .value = gpu->recovery_action};
    case 82: return (struct field){.type = UNSIGNED_INT, .value = gpu->temperature_memory};
    case 83: return (struct field){.type = UNSIGNED_LONG_LONG, .value = energy_mj(gpu)};
    case 185: /* average */
    case 186: /* instant */ return (struct field){.type = UNSIGNED_INT, .value = gpu->power_mw};
    case 187: return (struct field){.type = UNSIGNED_INT, .value = gpu->power_limit_min_mw};
    case 188: return (struct field){.type = UNSIGNED_INT, .value = gpu->power_limit_max_mw};
    case 189: return (struct field){.type = UNSIGNED_INT, .value = gpu->power_limit_default_mw};
    case 190: return (struct field){.type = UNSIGNED_INT, .value = gpu->power_limit_enforced_mw};
    default: return (struct field){.rc = NOT_SUPPORTED};
    }
}

/* What the test gave comes before what the gauges say. */
static struct field answer_field(const struct gpu *gpu, u32 id, u32 scope)
{
    for (u32 i = 0; i < gpu->field_count; i++)
        if (gpu->field_table[i].id == id && gpu->field_table[i].scope == scope)
            return gpu->field_table[i];
    return known_field(gpu, id);
}

int nvmlDeviceGetFieldValues(handle_t device, int count, struct field_value *values)
{
    DEVICE(nvmlDeviceGetFieldValues);
    int64_t now = (int64_t)(nanoseconds(CLOCK_REALTIME) / 1000);
    for (int i = 0; i < count; i++) {
        struct field field = answer_field(gpu, values[i].id, values[i].scope);
        values[i] = (struct field_value){
            values[i].id, values[i].scope, now, 0, field.type, field.rc, field.value,
        };
    }
    return SUCCESS;
}
