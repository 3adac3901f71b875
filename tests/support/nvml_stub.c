/* A libnvidia-ml.so.1 with two devices whose utilisation and memory stand in a file that a test writes: a line for each
   device, "percent bytes pid bytes-of-pid"; and in another their health, "is-lost ecc-errors xid number-of-the-xid". Only what the runner asks of NVML is here; the real binding, nvidia-ml-py, calls it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} pci_t;

static long indices[] = {1, 2}; /* a handle is a pointer, and must not be null */

typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu, compute; } process_t;

static unsigned int pid_there;
static unsigned long long used_by_pid;

static int row(void *handle, unsigned int *percent, unsigned long long *used) {
    FILE *file = fopen(getenv("NVML_STUB_FILE"), "r");
    long wanted = *(long *)handle;
    int found = 0;
    if (!file) return 0;
    for (long at = 1; at <= wanted; at++) found = fscanf(file, "%u %llu %u %llu", percent, used, &pid_there, &used_by_pid) == 4;
    fclose(file);
    return found;
}

static unsigned long seen[2]; /* the number of the last Xid error that was told, of each device */

static void health(long index, unsigned *lost, unsigned long long *ecc, unsigned long *xid, unsigned long *number) {
    char path[4096];
    *lost = 0, *ecc = 0, *xid = 0, *number = 0;
    snprintf(path, sizeof path, "%s.health", getenv("NVML_STUB_FILE"));
    FILE *file = fopen(path, "r");
    if (!file) return;
    for (long at = 0; at <= index; at++)
        if (fscanf(file, "%u %llu %lu %lu", lost, ecc, xid, number) != 4) *lost = 0, *ecc = 0, *xid = 0, *number = 0;
    fclose(file);
}

static int is_lost(void *handle) {
    unsigned lost;
    unsigned long long ecc;
    unsigned long xid, number;
    health(*(long *)handle - 1, &lost, &ecc, &xid, &number);
    return lost;
}

int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned int flags) { (void)flags; return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { (void)code; return "stub"; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
    if (index > 1) return 2;
    *handle = &indices[index];
    return is_lost(*handle) ? 15 : 0;
}

int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, unsigned long long *count) {
    unsigned lost;
    unsigned long xid, number;
    (void)kind, (void)counter;
    health(*(long *)handle - 1, &lost, count, &xid, &number);
    return 0;
}

int nvmlDeviceGetRemappedRows(void *handle, unsigned *a, unsigned *b, unsigned *c, unsigned *d) {
    (void)handle, (void)a, (void)b, (void)c, (void)d;
    return 3; /* not supported */
}

typedef struct { void *device; unsigned long long type, data; unsigned int gpu, compute; } event_t;

int nvmlEventSetCreate(void **set) { *set = seen; return 0; }
int nvmlEventSetFree(void *set) { (void)set; return 0; }
int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set) { (void)handle, (void)types, (void)set; return 0; }

int nvmlEventSetWait_v2(void *set, event_t *event, unsigned int timeout) {
    unsigned lost;
    unsigned long long ecc;
    unsigned long xid, number;
    (void)set, (void)timeout;
    for (long index = 0; index < 2; index++) {
        health(index, &lost, &ecc, &xid, &number);
        if (number > seen[index]) {
            seen[index] = number;
            memset(event, 0, sizeof *event);
            event->device = &indices[index], event->type = 8, event->data = xid;
            return 0;
        }
    }
    return 10; /* timeout */
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    int index = atoi(uuid + strlen(uuid) - 1);
    return nvmlDeviceGetHandleByIndex_v2((unsigned int)index, handle);
}

int nvmlDeviceGetName(void *handle, char *name, unsigned int length) {
    (void)handle;
    snprintf(name, length, "NVIDIA H100 80GB HBM3");
    return 0;
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned int length) {
    snprintf(uuid, length, "GPU-stub-%ld", *(long *)handle - 1);
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *handle, pci_t *pci) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, sizeof pci->busId, "00000000:3%ld:00.0", *(long *)handle);
    return 0;
}

/* The driver numbers them the other way round, from 4 on. */
int nvmlDeviceGetMinorNumber(void *handle, unsigned int *minor) {
    *minor = (unsigned int)(6 - *(long *)handle);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory) {
    unsigned int percent = 0;
    memory->total = 80ULL << 30;
    memory->used = 0;
    row(handle, &percent, &memory->used);
    memory->free = memory->total - memory->used;
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *handle, utilization_t *rates) {
    unsigned long long used;
    rates->memory = 0;
    return row(handle, &rates->gpu, &used) ? 0 : 15; /* GPU is lost */
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *count, process_t *found) {
    unsigned int percent, room = *count;
    unsigned long long used;
    *count = row(handle, &percent, &used) && pid_there ? 1 : 0;
    if (*count > room) return 7; /* insufficient size */
    if (*count) {
        memset(found, 0, sizeof *found);
        found->pid = pid_there;
        found->used = used_by_pid;
    }
    return 0;
}
