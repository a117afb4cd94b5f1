// A kernel that writes a number of words to memory of 1000 bytes, for which runtimes allocate more.
//
//   overrun LIBRARY CODE_OBJECT device | host WORDS
//
// Its last line says "end" if the words are there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *Pointer;
static void *library;

#define CALL(name, types, ...)                                                                                        \
    do {                                                                                                              \
        int (*function) types = (int (*) types)dlsym(library, #name);                                                 \
        if (!function) { printf("missing %s\n", #name); exit(3); }                                                    \
        int error = function(__VA_ARGS__);                                                                            \
        if (error) { printf("error %s = %d\n", #name, error); fflush(stdout); _exit(2); }                             \
    } while (0)

enum { BYTES = 1000 };

int main(int count, char **arguments) {
    if (count < 5) return 3;
    alarm(60);
    setvbuf(stdout, NULL, _IOLBF, 0);
    library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return puts(dlerror()), 3;
    Pointer module, kernel, before, to, after;
    CALL(hipInit, (unsigned), 0);
    CALL(hipSetDevice, (int), 0);
    CALL(hipModuleLoad, (Pointer *, const char *), &module, arguments[2]);
    CALL(hipModuleGetFunction, (Pointer *, void *, const char *), &kernel, module, "fill");
    int host = !strcmp(arguments[3], "host");
    Pointer *all[] = {&before, &to, &after};
    for (int i = 0; i < 3; i++) {
        if (host) CALL(hipHostMalloc, (Pointer *, size_t, unsigned), all[i], BYTES, 0);
        else CALL(hipMalloc, (Pointer *, size_t), all[i], BYTES);
    }
    unsigned words = atoi(arguments[4]), got[BYTES / 4], bad = 0;
    CALL(hipModuleLaunchKernel,
         (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
         kernel, 2, 1, 1, 256, 1, 1, 0, NULL, (void *[]){&to, &words}, NULL);
    CALL(hipDeviceSynchronize, (void));
    CALL(hipMemcpy, (void *, const void *, size_t, int), got, to, BYTES, 4);
    for (unsigned i = 0; i < BYTES / 4; i++) bad += got[i] != i;
    for (int i = 0; i < 3; i++) {
        if (host) CALL(hipHostFree, (void *), *all[i]);
        else CALL(hipFree, (void *), *all[i]);
    }
    puts(bad ? "wrong" : "end");
    fflush(stdout);
    _exit(0);
}
