// Kernels that write to standard output: compiled by the runtime's own compiler, whose library for devices has printf.
//
//   printf LIBRARY TARGET ITEMS STREAMS
//
// ITEMS: of a work-group of which all print. STREAMS: queues beside the first. Prints what the kernels print, and "end".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *Pointer;
static void *library, *compiler;

#define CALL(from, name, types, ...)                                                                                  \
    do {                                                                                                              \
        int (*function) types = (int (*) types)dlsym(from, #name);                                                    \
        if (!function) { printf("missing %s\n", #name); exit(3); }                                                    \
        int error = function(__VA_ARGS__);                                                                            \
        if (error) { printf("failed %s = %d\n", #name, error); log_of(); exit(2); }                                   \
    } while (0)

static const char source[] =
    "extern \"C\" __device__ int printf(const char *, ...);\n"
    // One item of a wavefront: numbers, text, and more arguments than a packet to the host has.
    "extern \"C\" __global__ void few(int round) {\n"
    "    if (threadIdx.x % 64 == 5)\n"
    "        printf(\"round %d group %d of %d: %s %.3f %c %llx %d %d %d %d %d %d%%\\n\", round, (int)blockIdx.x,\n"
    "               (int)gridDim.x, blockIdx.x % 2 ? \"odd\" : \"even\", blockIdx.x + 0.25, 'a' + (int)blockIdx.x,\n"
    "               0x123456789abcdefULL, 1, 2, 3, 4, 5, (int)blockIdx.x);\n"
    "}\n"
    // All items, several times each, from branches that diverge.
    "extern \"C\" __global__ void many(int launch, int lines) {\n"
    "    int item = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    for (int i = 0; i < lines + (item & 1); i++) printf(\"launch %d item %d line %d\\n\", launch, item, i);\n"
    "}\n"
    // Text that no packet holds at once.
    "extern \"C\" __global__ void text(const char *words) {\n"
    "    if (threadIdx.x == 0) printf(\"text %s|\\n\", words);\n"
    "}\n";

static Pointer program;

// Says what the compiler says.
static void log_of(void) {
    size_t bytes = 0;
    int (*size)(void *, size_t *) = (int (*)(void *, size_t *))dlsym(compiler, "hiprtcGetProgramLogSize");
    int (*get)(void *, char *) = (int (*)(void *, char *))dlsym(compiler, "hiprtcGetProgramLog");
    if (!program || !size || !get || size(program, &bytes) || !bytes) return;
    char *log = calloc(1, bytes + 1);
    if (!get(program, log)) puts(log);
    free(log);
}

// Since version 6, the compiler has a library of its own.
static void *compiler_of(void) {
    if (dlsym(library, "hiprtcCompileProgram")) return library;
    const char *names[] = {"libhiprtc.so.7", "libhiprtc.so.6"};
    for (int i = 0; i < 2; i++) {
        void *found = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (found) return found;
    }
    puts("missing the compiler");
    exit(3);
}

static Pointer module;
static void launch(const char *name, unsigned groups, unsigned threads, Pointer stream, void **arguments) {
    Pointer kernel;
    CALL(library, hipModuleGetFunction, (Pointer *, void *, const char *), &kernel, module, name);
    CALL(library, hipModuleLaunchKernel,
         (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
         kernel, groups, 1, 1, threads, 1, 1, 0, stream, arguments, NULL);
}

int main(int count, char **arguments) {
    if (count < 5) return 3;
    alarm(100);
    setvbuf(stdout, NULL, _IOLBF, 0);
    library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return puts(dlerror()), 3;
    compiler = compiler_of();
    CALL(library, hipInit, (unsigned), 0);
    CALL(library, hipSetDevice, (int), 0);
    CALL(compiler, hiprtcCreateProgram, (Pointer *, const char *, const char *, int, const char **, const char **),
         &program, source, "printf.hip", 0, NULL, NULL);
    char target[64];
    snprintf(target, sizeof target, "--offload-arch=%s", arguments[2]);
    CALL(compiler, hiprtcCompileProgram, (void *, int, const char **), program, 2,
         (const char *[]){target, "-O2"});
    size_t bytes = 0;
    CALL(compiler, hiprtcGetCodeSize, (void *, size_t *), program, &bytes);
    char *code = malloc(bytes);
    CALL(compiler, hiprtcGetCode, (void *, char *), program, code);
    CALL(library, hipModuleLoadData, (Pointer *, const void *), &module, code);

    for (int round = 0; round < 3; round++) {
        launch("few", 5, 128, NULL, (void *[]){&round});
        CALL(library, hipDeviceSynchronize, (void));
    }
    Pointer streams[4] = {NULL};
    int lines = 2, others = atoi(arguments[4]);
    for (int i = 0; i < others && i < 4; i++) CALL(library, hipStreamCreate, (Pointer *), &streams[i]);
    for (int i = 0; i < 4; i++) launch("many", 3, atoi(arguments[3]), streams[i % (others ? others : 1)], (void *[]){&i, &lines});
    CALL(library, hipDeviceSynchronize, (void));
    char words[1001], *device;
    for (int i = 0; i < 1000; i++) words[i] = 'a' + i % 26;
    words[1000] = 0;
    CALL(library, hipMalloc, (Pointer *, size_t), (Pointer *)&device, sizeof words);
    CALL(library, hipMemcpy, (void *, const void *, size_t, int), device, words, sizeof words, 1);
    launch("text", 1, 64, NULL, (void *[]){&device});
    CALL(library, hipDeviceSynchronize, (void));
    puts("end");
    fflush(stdout);
    _exit(0);
}
