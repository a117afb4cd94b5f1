// What a HIP program sees of a fault: it launches a kernel twenty times, waits, copies and compares. Its last line is the
// outcome: "end", "wrong result", "error FUNCTION = NUMBER", or "hang in FUNCTION" if one takes so many seconds. A runtime
// that aborts leaves none.
//
//   watch LIBRARY CODE_OBJECT SECONDS
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *Pointer;
static void *library;
static const char *volatile now = "nothing";
static unsigned limit;

static void late(int number) {
    (void)number;
    const char *parts[] = {"hang in ", now, "\n"};
    for (int i = 0; i < 3; i++)
        if (write(1, parts[i], strlen(parts[i])) < 0) break;
    _exit(9);
}

#define CALL(name, types, ...)                                                                                        \
    do {                                                                                                              \
        int (*function) types = (int (*) types)dlsym(library, #name);                                                 \
        if (!function) { printf("missing %s\n", #name); exit(3); }                                                    \
        now = #name;                                                                                                  \
        alarm(limit);                                                                                                 \
        int error = function(__VA_ARGS__);                                                                            \
        if (error) { printf("error %s = %d\n", #name, error); fflush(stdout); _exit(2); }                             \
    } while (0)

enum { COUNT = 1 << 16, BYTES = 4 * COUNT, LAUNCHES = 20 };

int main(int count, char **arguments) {
    if (count < 4) return 3;
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGALRM, late);
    alarm(limit = atoi(arguments[3]));
    library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return puts(dlerror()), 3;
    Pointer module, add, stream, a, b, c;
    int n = COUNT, devices = 0;
    CALL(hipInit, (unsigned), 0);
    CALL(hipGetDeviceCount, (int *), &devices);
    CALL(hipModuleLoad, (Pointer *, const char *), &module, arguments[2]);
    CALL(hipModuleGetFunction, (Pointer *, void *, const char *), &add, module, "add");
    CALL(hipStreamCreate, (Pointer *), &stream);
    Pointer *all[] = {&a, &b, &c};
    for (int i = 0; i < 3; i++) CALL(hipMalloc, (Pointer *, size_t), all[i], BYTES);
    float *x = malloc(BYTES), *z = malloc(BYTES);
    for (int i = 0; i < COUNT; i++) x[i] = i;
    CALL(hipMemcpy, (void *, const void *, size_t, int), a, x, BYTES, 1);
    CALL(hipMemcpy, (void *, const void *, size_t, int), b, x, BYTES, 1);
    Pointer kernel_arguments[] = {&a, &b, &c, &n};
    for (int i = 0; i < LAUNCHES; i++) {
        // Each result is the next one's operand: what is left out shows.
        CALL(hipModuleLaunchKernel,
             (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
             add, COUNT / 256, 1, 1, 256, 1, 1, 0, stream, kernel_arguments, NULL);
        CALL(hipStreamSynchronize, (void *), stream);
        Pointer swap = a;
        a = c, c = swap;
    }
    CALL(hipMemcpy, (void *, const void *, size_t, int), z, a, BYTES, 2);
    for (int i = 0; i < COUNT; i++)
        if (z[i] != (LAUNCHES + 1.0f) * x[i]) return puts("wrong result"), 1;
    puts("end");
    fflush(stdout);
    _exit(0);
}
