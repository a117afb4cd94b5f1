// A libamdhip64 for tests with a device that does everything but compute: memory is the host's, and the second launch is
// a memory fault, after which nothing completes. HSA (a string) is the file of libhsa-runtime64, as in tests/c/hsa.c.
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int (*test_fault)(void);
static int launches;
static int dead;

int hipInit(unsigned flags) {
    void *hsa = dlopen(HSA, RTLD_NOW | RTLD_LOCAL);
    if (!hsa || flags) return 1;
    *(void **)&test_fault = dlsym(hsa, "test_fault");
    return test_fault ? 0 : 1;
}
int hipGetDeviceCount(int *count) {
    *count = 1;
    return 0;
}
int hipRuntimeGetVersion(int *version) {
    *version = 60342134;
    return 0;
}
int hipGetDevicePropertiesR0600(char *to, int device) {
    if (device) return 101;
    memset(to, 0, 1472);
    strcpy(to, "Faulting");
    *(size_t *)(to + 288) = 1 << 30;
    *(size_t *)(to + 296) = 65536;
    *(int *)(to + 308) = 64;
    *(int *)(to + 320) = 1024;
    *(int *)(to + 388) = 60;
    strcpy(to + 1160, "gfx906:sramecc+:xnack-");
    return 0;
}
int hipGetDeviceProperties(char *to, int device) { return 1; }
int hipDeviceGetAttribute(int *value, int attribute, int device) { return 1; }
int hipSetDevice(int device) { return device ? 101 : 0; }
int hipMemGetInfo(size_t *free, size_t *total) {
    *free = *total = 1 << 30;
    return 0;
}
int hipMalloc(void **to, size_t bytes) { return posix_memalign(to, 4096, bytes) ? 2 : 0; }
int hipFree(void *at) {
    free(at);
    return 0;
}
int hipHostMalloc(void **to, size_t bytes, unsigned flags) { return hipMalloc(to, bytes); }
int hipHostFree(void *at) { return hipFree(at); }
int hipMemsetAsync(void *to, int byte, size_t bytes, void *stream) {
    memset(to, byte, bytes);
    return 0;
}
int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    memcpy(to, from, bytes);
    return 0;
}
static int make(void **to) {
    *to = (void *)0x10;
    return 0;
}
int hipStreamCreateWithFlags(void **to, unsigned flags) { return make(to); }
int hipStreamDestroy(void *stream) { return 0; }
int hipEventCreateWithFlags(void **to, unsigned flags) { return make(to); }
int hipEventDestroy(void *event) { return 0; }
int hipEventRecord(void *event, void *stream) { return 0; }
int hipEventQuery(void *event) { return dead ? 600 : 0; }
int hipModuleLoadData(void **to, const void *image) { return make(to); }
int hipModuleUnload(void *module) { return 0; }
int hipModuleGetFunction(void **to, void *module, const char *name) { return make(to); }
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned lds, void *stream, void **arguments, void **extra) {
    if (++launches == 2) {
        if (!test_fault()) abort();
        dead = 1;
    }
    return 0;
}
const char *hipGetErrorName(int code) { return "hipErrorUnknown"; }
