/*
 * A fake libnvidia-ml.so.1 that a test steers through a shared file.
 *
 * This header is the layout of that file, the list of calls, and the guard that every call passes.
 * nvml.py states the same layout in ctypes and has the compiler compare the two, field by field.
 */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include <stdint.h>

typedef int32_t i32;
typedef uint32_t u32;
typedef uint64_t u64;

enum { GPUS = 16, PROCESSES = 512, SAMPLES = 512, FIELDS = 64, CLOCKS = 4, THRESHOLDS = 8 };
enum { INSTANCES = 8, METERS = 16, EVENTS = 64, POLICIES = 8 };

/* nvml.py reads the names from here; a call's place in the list is its number. */
#define CALLS(X)                                      \
    X(nvmlInit_v2)                                    \
    X(nvmlInitWithFlags)                              \
    X(nvmlShutdown)                                   \
    X(nvmlErrorString)                                \
    X(nvmlSystemGetDriverVersion)                     \
    X(nvmlSystemGetNVMLVersion)                       \
    X(nvmlSystemGetCudaDriverVersion)                 \
    X(nvmlSystemGetCudaDriverVersion_v2)              \
    X(nvmlDeviceGetCount_v2)                          \
    X(nvmlDeviceGetHandleByIndex_v2)                  \
    X(nvmlDeviceGetHandleByUUID)                      \
    X(nvmlDeviceGetHandleByPciBusId_v2)               \
    X(nvmlDeviceGetIndex)                             \
    X(nvmlDeviceGetUUID)                              \
    X(nvmlDeviceGetName)                              \
    X(nvmlDeviceGetSerial)                            \
    X(nvmlDeviceGetBoardPartNumber)                   \
    X(nvmlDeviceGetVbiosVersion)                      \
    X(nvmlDeviceGetMinorNumber)                       \
    X(nvmlDeviceGetBrand)                             \
    X(nvmlDeviceGetArchitecture)                      \
    X(nvmlDeviceGetCudaComputeCapability)             \
    X(nvmlDeviceGetPciInfo_v3)                        \
    X(nvmlDeviceGetMemoryInfo)                        \
    X(nvmlDeviceGetMemoryInfo_v2)                     \
    X(nvmlDeviceGetBAR1MemoryInfo)                    \
    X(nvmlDeviceGetConfComputeMemSizeInfo)            \
    X(nvmlDeviceGetUtilizationRates)                  \
    X(nvmlDeviceGetEncoderUtilization)                \
    X(nvmlDeviceGetDecoderUtilization)                \
    X(nvmlDeviceGetPowerUsage)                        \
    X(nvmlDeviceGetPowerManagementMode)               \
    X(nvmlDeviceGetEnforcedPowerLimit)                \
    X(nvmlDeviceGetPowerManagementLimit)              \
    X(nvmlDeviceGetPowerManagementDefaultLimit)       \
    X(nvmlDeviceGetPowerManagementLimitConstraints)   \
    X(nvmlDeviceGetTotalEnergyConsumption)            \
    X(nvmlDeviceGetTemperature)                       \
    X(nvmlDeviceGetTemperatureV)                      \
    X(nvmlDeviceGetTemperatureThreshold)              \
    X(nvmlDeviceGetClockInfo)                         \
    X(nvmlDeviceGetMaxClockInfo)                      \
    X(nvmlDeviceGetPerformanceState)                  \
    X(nvmlDeviceGetCurrentClocksThrottleReasons)      \
    X(nvmlDeviceGetCurrentClocksEventReasons)         \
    X(nvmlDeviceGetNumFans)                           \
    X(nvmlDeviceGetFanSpeed)                          \
    X(nvmlDeviceGetFanSpeed_v2)                       \
    X(nvmlDeviceGetPersistenceMode)                   \
    X(nvmlDeviceGetComputeMode)                       \
    X(nvmlDeviceGetEccMode)                           \
    X(nvmlDeviceGetMigMode)                           \
    X(nvmlDeviceGetMaxMigDeviceCount)                 \
    X(nvmlDeviceGetAccountingMode)                    \
    X(nvmlDeviceSetAccountingMode)                    \
    X(nvmlDeviceGetDisplayActive)                     \
    X(nvmlDeviceGetDisplayMode)                       \
    X(nvmlDeviceGetVirtualizationMode)                \
    X(nvmlDeviceGetCurrPcieLinkGeneration)            \
    X(nvmlDeviceGetCurrPcieLinkWidth)                 \
    X(nvmlDeviceGetMaxPcieLinkGeneration)             \
    X(nvmlDeviceGetMaxPcieLinkWidth)                  \
    X(nvmlDeviceGetPcieReplayCounter)                 \
    X(nvmlDeviceGetPcieThroughput)                    \
    X(nvmlDeviceGetComputeRunningProcesses)           \
    X(nvmlDeviceGetComputeRunningProcesses_v2)        \
    X(nvmlDeviceGetComputeRunningProcesses_v3)        \
    X(nvmlDeviceGetGraphicsRunningProcesses)          \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2)       \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3)       \
    X(nvmlDeviceGetMPSComputeRunningProcesses)        \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v2)     \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3)     \
    X(nvmlDeviceGetRunningProcessDetailList)          \
    X(nvmlDeviceGetProcessUtilization)                \
    X(nvmlDeviceGetFieldValues)                       \
    X(nvmlDeviceGetJpgUtilization)                    \
    X(nvmlDeviceGetOfaUtilization)                    \
    X(nvmlDeviceGetTotalEccErrors)                    \
    X(nvmlDeviceGetViolationStatus)                   \
    X(nvmlDeviceGetMigDeviceHandleByIndex)            \
    X(nvmlDeviceGetGpuInstanceId)                     \
    X(nvmlDeviceGetComputeInstanceId)                 \
    X(nvmlDeviceGetAttributes_v2)                     \
    X(nvmlDeviceGetGpuInstanceById)                   \
    X(nvmlGpuInstanceGetInfo)                         \
    X(nvmlDeviceIsMigDeviceHandle)                    \
    X(nvmlEventSetCreate)                             \
    X(nvmlEventSetFree)                               \
    X(nvmlEventSetWait_v2)                            \
    X(nvmlDeviceRegisterEvents)                       \
    X(nvmlGpmQueryDeviceSupport)                      \
    X(nvmlGpmSampleAlloc)                             \
    X(nvmlGpmSampleFree)                              \
    X(nvmlGpmSampleGet)                               \
    X(nvmlGpmMigSampleGet)                            \
    X(nvmlGpmMetricsGet)

#define NUMBER(name) CALL_##name,
enum call_id { CALL_ANY, CALLS(NUMBER) CALL_COUNT };
#undef NUMBER

enum result {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999,
    CRASH = -1, /* not NVML's: the call ends the process with SIGSEGV */
};

/* What one call does on one GPU: it answers `rc` from its `first` to before its `last` time. */
struct call {
    _Atomic u64 count;
    u64 first;
    u64 last;
    i32 rc;
    u32 delay_us;
    _Atomic u32 hang;
};

enum list { COMPUTE = 1, GRAPHICS = 2, MPS = 4 };

/* NVML's process records of 16, 24 and 32 bytes are prefixes of this one; `lists` lies in their padding. */
struct process {
    u32 pid;
    u32 lists;
    u64 memory;
    u32 gpu_instance;
    u32 compute_instance;
    u64 protected_memory;
};

/* NVML's sample; timestamp 0 stands for the time of the call. */
struct sample {
    u32 pid;
    u64 timestamp;
    u32 sm;
    u32 mem;
    u32 enc;
    u32 dec;
};

/* The answer to one field of nvmlDeviceGetFieldValues. */
struct field {
    u32 id;
    u32 scope;
    u32 type;
    i32 rc;
    u64 value;
};

/* A MIG instance; without a uuid its place is empty. */
struct instance {
    char uuid[96];
    char name[96];
    u32 gpu_instance;
    u32 compute_instance;
    u32 slices;
    u32 meter; /* GPM's graphics utilization, in percent */
    u32 profile_id;
    u32 placement_start;
    u64 memory_total;
    u64 memory_used;
};

/* An Xid that happened on a GPU (its place in `gpus`). */
struct event {
    u32 place;
    u32 xid;
};

struct gpu {
    struct call calls[CALL_COUNT];

    _Atomic u32 version; /* odd while Python changes the tables or the energy */
    _Atomic u32 in_flight;
    _Atomic u64 overlaps;

    char uuid[96];
    char name[96];
    char serial[32];
    char part_number[80];
    char vbios[32];
    u32 index; /* ABSENT while unplugged */
    u32 minor;
    u32 brand;
    u32 architecture;
    u32 capability_major;
    u32 capability_minor;
    u32 pci_domain;
    u32 pci_bus;
    u32 pci_device;
    u32 pci_device_id;
    u32 pci_subsystem_id;

    u64 memory_total;
    u64 memory_reserved;
    u64 memory_used; /* AUTO: what the processes hold */
    u64 bar1_total;
    u64 bar1_used;

    u32 utilization_gpu;
    u32 utilization_memory;
    u32 utilization_encoder;
    u32 utilization_decoder;
    u32 utilization_jpeg;
    u32 utilization_ofa;
    u32 power_mw;
    u32 power_limit_mw;
    u32 power_limit_enforced_mw;
    u32 power_limit_default_mw;
    u32 power_limit_min_mw;
    u32 power_limit_max_mw;
    u32 temperature;
    u32 temperature_memory;
    u32 thresholds[THRESHOLDS]; /* 0: not supported */
    u32 clocks[CLOCKS];
    u32 clocks_max[CLOCKS];
    u32 performance_state;
    u32 fans;
    u32 fan_speed;
    u64 clock_reasons;

    u32 persistence_mode;
    u32 compute_mode;
    u32 ecc_mode;
    u32 ecc_mode_pending;
    u32 mig_mode;
    u32 mig_mode_pending;
    u32 mig_devices_max;
    u32 accounting_mode;
    u32 display_active;
    u32 display_mode;
    u32 virtualization_mode;
    u32 pcie_generation;
    u32 pcie_width;
    u32 pcie_generation_max;
    u32 pcie_width_max;
    u32 pcie_replays;
    u32 pcie_throughput_kb[2];
    u32 recovery_action;
    u64 pcie_bytes[2];
    u64 nvlink_kib[2];
    u64 ecc_errors[4]; /* corrected and uncorrected: volatile, then aggregate */
    u64 violation_ns[POLICIES];

    u32 mig_generation; /* handles of instances of an older one are invalid */
    u32 mig_parent_refuses; /* these process lists of the whole GPU need rights that we have not */
    struct instance instances[INSTANCES];
    u32 gpm_supported;
    double meters[METERS]; /* GPM's metrics by number, in percent */

    /* The energy counter: `uj` at `since_ns` (CLOCK_MONOTONIC), growing by `rate_mw`, each `quantum_ns`. */
    u64 energy_uj;
    u64 energy_since_ns;
    u64 energy_quantum_ns;
    u32 energy_rate_mw;

    u32 growing; /* each process list is one longer than the last */
    _Atomic u32 grown;

    u32 process_count;
    u32 sample_count;
    u32 field_count;
    struct process process_table[PROCESSES];
    struct sample sample_table[SAMPLES];
    struct field field_table[FIELDS];
};

#define ABSENT UINT32_MAX
#define AUTO UINT64_MAX
#define NOT_AVAILABLE UINT64_MAX

struct control {
    u64 size; /* of this struct: a library and a file of different ages refuse each other */
    struct call calls[CALL_COUNT];
    char driver_version[80];
    char nvml_version[80];
    u32 cuda_version;
    u32 process_stride; /* bytes per record of the _v3 lists: 24, or 32 as in 535.54 to 535.98 */
    _Atomic u32 initialised;
    u32 count;
    _Atomic u32 gpm_samples; /* allocated and not freed */
    _Atomic u32 event_sets;
    _Atomic u32 event_count;
    struct event events[EVENTS]; /* the first is overwritten after the last */
    u32 order[GPUS]; /* index to place in `gpus` */
    struct gpu gpus[GPUS];
};

extern struct control *control;

/* A handle is a number, not an address: what outlives nvmlShutdown is recognised and never followed. */
typedef uintptr_t handle_t;
handle_t handle_of(const struct gpu *gpu);
handle_t handle_of_instance(const struct gpu *gpu, u32 slot);
u64 nanoseconds(int clock);

/* One call under way. */
struct visit {
    struct gpu *gpu;
    struct instance *instance; /* where the handle is that of a MIG instance */
    struct gpu *occupied; /* the GPU on which it is the only call allowed */
    int rc;
};

struct visit enter_system(enum call_id call);
struct visit enter_lookup(enum call_id call, struct gpu *gpu); /* none found: a system call */
struct visit enter_device(enum call_id call, handle_t device); /* a GPU's alone */
struct visit enter_either(enum call_id call, handle_t device); /* or an instance's */
void leave(struct visit *visit);

/* Opens every function: counts the call, stalls it, and returns early with what the test wants returned. */
#define ENTER(visiting)                                                    \
    __attribute__((cleanup(leave))) struct visit visit = enter_##visiting; \
    struct gpu *gpu = visit.gpu;                                           \
    (void)gpu;                                                             \
    if (visit.rc != SUCCESS)                                               \
        return visit.rc
#define SYSTEM(call) ENTER(system(CALL_##call))
#define LOOKUP(call, found) ENTER(lookup(CALL_##call, found))
#define DEVICE(call) ENTER(device(CALL_##call, device))
#define EITHER(call) ENTER(either(CALL_##call, device))

#endif
