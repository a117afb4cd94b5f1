// A libamdhip64 for tests, as it is on a machine without a device: it loads, says its version, and lists nothing.
// INIT and COUNT are the codes of hipInit and hipGetDeviceCount; ON_LOAD, where it is defined, is done on loading.
#ifdef ON_LOAD
__attribute__((constructor)) static void on_load(void) { ON_LOAD; }
#endif
int hipInit(unsigned flags) { return flags ? 1 : INIT; }
int hipGetDeviceCount(int *count) {
    *count = 0;
    return COUNT;
}
int hipRuntimeGetVersion(int *version) {
    *version = 60342134;
    return 0;
}
const char *hipGetErrorName(int code) { return code == 100 ? "hipErrorNoDevice" : "hipErrorUnknown"; }

#define ABSENT(name) \
    int name(void) { return 101; }
ABSENT(hipSetDevice)
ABSENT(hipDeviceGetAttribute)
ABSENT(hipGetDeviceProperties)
ABSENT(hipMemGetInfo)
ABSENT(hipMalloc)
ABSENT(hipFree)
ABSENT(hipHostMalloc)
ABSENT(hipHostFree)
ABSENT(hipMemsetAsync)
ABSENT(hipMemcpyAsync)
ABSENT(hipStreamCreateWithFlags)
ABSENT(hipStreamDestroy)
ABSENT(hipEventCreateWithFlags)
ABSENT(hipEventDestroy)
ABSENT(hipEventRecord)
ABSENT(hipEventQuery)
ABSENT(hipModuleLoadData)
ABSENT(hipModuleUnload)
ABSENT(hipModuleGetFunction)
#ifndef OLD
ABSENT(hipModuleLaunchKernel)
#endif
