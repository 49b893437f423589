/*
 * A fake libdcgm.so that a test steers through a shared file, which plays the host engine.
 *
 * This header is the layout of that file and the list of calls. dcgm.py states the same layout in
 * ctypes and has the compiler compare the two, field by field.
 */
#ifndef FAKE_DCGM_H
#define FAKE_DCGM_H

#include <stdint.h>

typedef int32_t i32;
typedef int64_t i64;
typedef uint32_t u32;
typedef uint64_t u64;

enum { GPUS = 16, PROCESSES = 64, FIELDS = 64, FIELD_IDS = 2048 };

/* dcgm.py reads the names from here; a call's place in the list is its number. */
#define CALLS(X)                    \
    X(dcgmInit)                     \
    X(dcgmShutdown)                 \
    X(dcgmConnect_v2)               \
    X(dcgmDisconnect)               \
    X(dcgmStartEmbedded_v2)         \
    X(dcgmStopEmbedded)             \
    X(dcgmVersionInfo)              \
    X(dcgmHostengineVersionInfo)    \
    X(dcgmGetAllSupportedDevices)   \
    X(dcgmGetDeviceAttributes)      \
    X(dcgmGroupCreate)              \
    X(dcgmGroupAddDevice)           \
    X(dcgmGroupDestroy)             \
    X(dcgmFieldGroupCreate)         \
    X(dcgmFieldGroupDestroy)        \
    X(dcgmWatchFields)              \
    X(dcgmWatchPidFields)           \
    X(dcgmGetPidInfo)               \
    X(dcgmEntitiesGetLatestValues)

#define NUMBER(name) CALL_##name,
enum call_id { CALLS(NUMBER) CALL_COUNT };
#undef NUMBER

enum result {
    OK = 0,
    BADPARAM = -1,
    UNINITIALIZED = -10,
    VER_MISMATCH = -12,
    NO_DATA = -14,
    NOT_WATCHED = -16,
    CONNECTION_NOT_VALID = -21,
    REQUIRES_ROOT = -29,
    PROFILING_NOT_SUPPORTED = -36,
};

enum accounting { ACCOUNTING_OFF, ACCOUNTING_ON, ACCOUNTING_UNSUPPORTED };

/* What a call does: answers `rc` (0: truly), takes `delay_us`, hangs while `hang`. */
struct call {
    _Atomic u64 count;
    i32 rc;
    u32 delay_us;
    _Atomic u32 hang;
};

/* One process on one GPU, as NVML's accounting has it; times in microseconds since the epoch. */
struct process {
    u32 pid;
    u32 sm;
    i64 start_us;
    i64 end_us; /* 0 while it runs */
    i64 memory;
};

/* The latest value of a field: a double if `type` is 'd', else an int64. */
struct field {
    u32 id;
    u32 type;
    i32 status;
    u32 age_us; /* how old it is when it is read */
    i64 integer;
    double real;
};

struct gpu {
    char uuid[96];
    u32 accounting;
    u32 process_count;
    u32 field_count;
    u32 power_mw;

    /* The energy counter: `power_mw` since `energy_since_us`, sampled from `watched_us` every `every_us`. */
    i64 energy_since_us;
    i64 watched_us;   /* first sample; 0: never watched */
    i64 unwatched_us; /* 0 while watched */
    i64 every_us;
    i64 retention_us;

    struct process process_table[PROCESSES];
    struct field field_table[FIELDS];
};

struct control {
    u64 size; /* of this struct: a library and a file of different ages refuse each other */
    struct call calls[CALL_COUNT];
    char library_version[256];
    char engine_version[256];
    char address[128]; /* HOST:PORT, or the path of a socket */
    u32 is_unix;
    u32 up;
    u32 root;           /* the engine may change the accounting mode */
    u32 login_fails;    /* connecting is "OK" and leaves a dead handle */
    u32 profiling;      /* the fields from 1001 on can be watched */
    u32 shortest_wins;  /* up to 4.1.0 the shortest retention of all clients is in force */
    i64 rubbish_us;      /* what happens to lie where a start should be */
    i64 other_client_us; /* retention that another client asks for; 0: there is none */
    _Atomic u32 epoch;  /* counts starts of the engine */
    u32 connected;      /* handles that were opened and not closed, in this epoch */
    u32 embedded;
    u32 count;
    unsigned char watched[FIELD_IDS]; /* fields watched by dcgmWatchFields */
    struct gpu gpus[GPUS];
};

#endif
