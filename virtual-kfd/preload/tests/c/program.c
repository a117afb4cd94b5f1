// A HIP program, without HIP's headers: what applications do beside launching kernels. It says each thing that works,
// and ends at the first that does not.
//
//   program LIBRARY CODE_OBJECT [fault KERNEL]
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *Pointer;
static void *library;

#define CALL(name, types, ...)                                                                                        \
    ({                                                                                                                \
        int (*function) types = (int (*) types)dlsym(library, #name);                                                 \
        if (!function) { printf("missing %s\n", #name); exit(3); }                                                    \
        int error = function(__VA_ARGS__);                                                                            \
        if (error) { printf("failed %s = %d\n", #name, error); exit(2); }                                             \
        error;                                                                                                        \
    })

static Pointer allocate(size_t bytes) {
    Pointer p;
    CALL(hipMalloc, (Pointer *, size_t), &p, bytes);
    return p;
}
static void copy(void *to, const void *from, size_t bytes) {
    CALL(hipMemcpy, (void *, const void *, size_t, int), to, from, bytes, 4);
}
static void copy_async(void *to, const void *from, size_t bytes, void *stream) {
    CALL(hipMemcpyAsync, (void *, const void *, size_t, int, void *), to, from, bytes, 4, stream);
}
static void synchronise(void *stream) { CALL(hipStreamSynchronize, (void *), stream); }
static Pointer stream(void) {
    Pointer s;
    CALL(hipStreamCreate, (Pointer *), &s);
    return s;
}
static Pointer event(void) {
    Pointer e;
    CALL(hipEventCreate, (Pointer *), &e);
    return e;
}
static Pointer module;
static Pointer kernel(const char *name) {
    Pointer k;
    CALL(hipModuleGetFunction, (Pointer *, void *, const char *), &k, module, name);
    return k;
}
static void launch(const char *name, unsigned groups, unsigned threads, void *stream, void **arguments) {
    CALL(hipModuleLaunchKernel,
         (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
         kernel(name), groups, 1, 1, threads, 1, 1, 0, stream, arguments, NULL);
}
static void check(const char *what, int right) {
    printf("%s %s\n", right ? "right" : "wrong", what);
    fflush(stdout);
    if (!right) exit(1);
}

enum { COUNT = 1 << 18, BYTES = 4 * COUNT };
static float *x, *y, *z;
static Pointer a, b, c;

static void copies(void) {
    copy(a, x, BYTES);
    copy(z, a, BYTES);
    check("a copy to the card and back", !memcmp(x, z, BYTES));
    copy(b, y, BYTES);
    copy(c, b, BYTES);
    copy(z, c, BYTES);
    check("a copy within the card", !memcmp(y, z, BYTES));
    CALL(hipMemset, (void *, int, size_t), c, 0x5a, BYTES - 3);
    copy(z, c, BYTES);
    unsigned char *bytes = (unsigned char *)z;
    size_t bad = 0;
    for (size_t i = 0; i < BYTES - 3; i++) bad += bytes[i] != 0x5a;
    check("a fill", bad == 0 && bytes[BYTES - 1] == ((unsigned char *)y)[BYTES - 1]);
    copy((char *)c + 5, (char *)x + 3, 1001);
    copy((char *)z + 7, (char *)c + 5, 1001);
    check("a copy of odd bytes", !memcmp((char *)z + 7, (char *)x + 3, 1001));
}

static void rectangles(void) {
    size_t (*sizes)[4] = (size_t[][4]){{768, 512, 256, 100}, {770, 514, 129, 33}, {4096, 4096, 4096, 16}, {16, 16, 3, 1}};
    for (int i = 0; i < 4; i++) {
        size_t from = sizes[i][0], to = sizes[i][1], width = sizes[i][2], height = sizes[i][3], back = width + 4, bad = 0;
        CALL(hipMemcpy2D, (void *, size_t, const void *, size_t, size_t, size_t, int), c, to, x, from, width, height, 1);
        memset(z, 0, BYTES);
        CALL(hipMemcpy2D, (void *, size_t, const void *, size_t, size_t, size_t, int), z, back, c, to, width, height, 2);
        for (size_t r = 0; r < height; r++) bad += memcmp((char *)z + back * r, (char *)x + from * r, width) != 0;
        check("a copy of rows", bad == 0);
    }
}

static void kernels(void) {
    int n = COUNT - 7;
    const char *names[] = {"add", "through_scratch"};
    copy(a, x, BYTES);
    copy(b, y, BYTES);
    for (int i = 0; i < 2; i++) {
        Pointer s = stream(), begin = event(), end = event();
        float ms = -1;
        CALL(hipMemset, (void *, int, size_t), c, 0, BYTES);
        CALL(hipEventRecord, (void *, void *), begin, s);
        launch(names[i], COUNT / 256, 256, s, (void *[]){&a, &b, &c, &n});
        CALL(hipEventRecord, (void *, void *), end, s);
        synchronise(s);
        CALL(hipEventElapsedTime, (float *, void *, void *), &ms, begin, end);
        copy(z, c, BYTES);
        size_t bad = 0;
        for (int k = 0; k < n; k++) bad += z[k] != x[k] + y[k];
        check(names[i], bad == 0 && z[n] == 0 && ms >= 0);
        CALL(hipStreamDestroy, (void *), s);
    }
    unsigned total = 0, count = 100003;
    copy(c, &total, 4);
    launch("sum", (count + 255) / 256, 256, NULL, (void *[]){&c, &count});
    copy(&total, c, 4);
    check("atomics", total == (unsigned)((uint64_t)count * (count + 1) / 2));
}

static void partial_groups(void) {
    unsigned width = 70, height = 5, *cells = calloc(width * height + 1, 4), bad = 0;
    copy(c, cells, (width * height + 1) * 4);
    // A number of items, not of work-groups. 5.2 has it as a function of C++ alone.
    if (!dlsym(library, "hipExtModuleLaunchKernel")) return free(cells);
    CALL(hipExtModuleLaunchKernel,
         (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, size_t, void *, void **, void **, void *,
          void *, unsigned),
         kernel("count"), width, height, 1, 32, 4, 1, 0, NULL, (void *[]){&c, &width, &height}, NULL, NULL, NULL, 0);
    copy(cells, c, (width * height + 1) * 4);
    for (unsigned i = 0; i < width * height; i++) bad += cells[i] != 1;
    check("smaller work-groups at the edge", bad == 0 && cells[width * height] == 0);
    free(cells);
}

static void streams(void) {
    Pointer s = stream(), t = stream(), done = event(), flag;
    unsigned value = 7, n = COUNT;
    copy(a, y, BYTES);
    copy_async(a, x, BYTES, s);
    CALL(hipEventRecord, (void *, void *), done, s);
    CALL(hipStreamWaitEvent, (void *, void *, unsigned), t, done, 0);
    copy_async(z, a, BYTES, t);
    synchronise(t);
    check("a stream that waits for another", !memcmp(x, z, BYTES));
    CALL(hipMalloc, (Pointer *, size_t), &flag, 64);
    CALL(hipMemset, (void *, int, size_t), flag, 0, 64);
    launch("wait_for", 8, 64, s, (void *[]){&flag, &value});
    launch("store", 8, 1, t, (void *[]){&flag, &value});
    synchronise(s);
    synchronise(t);
    check("kernels of two streams at the same time", 1);
    for (int i = 0; i < 100; i++) launch("add", COUNT / 256, 256, i & 1 ? s : t, (void *[]){&a, &b, &c, &n});
    synchronise(s);
    synchronise(t);
    check("a hundred launches", 1);
    CALL(hipFree, (void *), flag);
}

static void host_memory(void) {
    Pointer s = stream(), device, pinned, managed;
    CALL(hipHostRegister, (void *, size_t, unsigned), x, BYTES, 0);
    CALL(hipHostGetDevicePointer, (Pointer *, void *, unsigned), &device, x, 0);
    int n = COUNT;
    copy(b, y, BYTES);
    launch("add", COUNT / 256, 256, s, (void *[]){&device, &b, &c, &n});
    synchronise(s);
    copy(z, c, BYTES);
    check("registered memory, read by a kernel", z[1000] == x[1000] + y[1000]);
    CALL(hipHostUnregister, (void *), x);
    CALL(hipHostMalloc, (Pointer *, size_t, unsigned), &pinned, BYTES, 0);
    launch("add", COUNT / 256, 256, s, (void *[]){&c, &b, &pinned, &n});
    synchronise(s);
    check("pinned memory, written by a kernel", ((float *)pinned)[1000] == z[1000] + y[1000]);
    CALL(hipHostFree, (void *), pinned);
    CALL(hipMallocManaged, (Pointer *, size_t, unsigned), &managed, BYTES, 1);
    memcpy(managed, x, BYTES);
    launch("add", COUNT / 256, 256, s, (void *[]){&managed, &b, &managed, &n});
    synchronise(s);
    check("managed memory", ((float *)managed)[1000] == x[1000] + y[1000]);
    CALL(hipFree, (void *), managed);
}

static void calls_back(void *to) { ++*(int *)to; }

static void graphs(void) {
    Pointer s = stream(), graph, executable;
    int n = COUNT, called = 0;
    CALL(hipStreamBeginCapture, (void *, int), s, 0);
    copy_async(a, x, BYTES, s);
    launch("add", COUNT / 256, 256, s, (void *[]){&a, &b, &c, &n});
    launch("add", COUNT / 256, 256, s, (void *[]){&c, &b, &c, &n});
    copy_async(z, c, BYTES, s);
    CALL(hipStreamEndCapture, (void *, Pointer *), s, &graph);
    CALL(hipGraphInstantiate, (Pointer *, void *, void *, char *, size_t), &executable, graph, NULL, NULL, 0);
    for (int i = 0; i < 3; i++) {
        memset(z, 0, BYTES);
        CALL(hipGraphLaunch, (void *, void *), executable, s);
        synchronise(s);
        check("a graph", z[1000] == x[1000] + 2 * y[1000] && z[COUNT - 1] == x[COUNT - 1] + 2 * y[COUNT - 1]);
    }
    CALL(hipGraphExecDestroy, (void *), executable);
    CALL(hipGraphDestroy, (void *), graph);
    if (!dlsym(library, "hipLaunchHostFunc")) return;
    CALL(hipLaunchHostFunc, (void *, void (*)(void *), void *), s, calls_back, &called);
    synchronise(s);
    check("a call back", called == 1);
}

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return puts(dlerror()), 1;
    char name[256] = "";
    int devices = 0, version = 0;
    size_t free_bytes, total;
    CALL(hipInit, (unsigned), 0);
    CALL(hipGetDeviceCount, (int *), &devices);
    CALL(hipDeviceGetName, (char *, int, int), name, 256, 0);
    CALL(hipRuntimeGetVersion, (int *), &version);
    printf("%d devices, %s, runtime %d\n", devices, name, version);
    CALL(hipSetDevice, (int), 0);
    CALL(hipModuleLoad, (Pointer *, const char *), &module, arguments[2]);
    a = allocate(BYTES), b = allocate(BYTES), c = allocate(BYTES);
    if (count > 4) {
        launch(arguments[4], 1, 64, NULL, (void *[]){&a});
        int (*wait)(void) = (int (*)(void))dlsym(library, "hipDeviceSynchronize");
        printf("after the fault: %d\n", wait());
        return 0;
    }
    x = malloc(BYTES + 64), y = malloc(BYTES), z = malloc(BYTES + 4096);
    for (int i = 0; i < COUNT; i++) x[i] = i, y[i] = 2.0f * i + 1;
    copies();
    rectangles();
    kernels();
    partial_groups();
    streams();
    host_memory();
    graphs();
    CALL(hipMemGetInfo, (size_t *, size_t *), &free_bytes, &total);
    check("the size of memory", total >= free_bytes && total > (size_t)1 << 28);
    CALL(hipFree, (void *), a);
    CALL(hipFree, (void *), b);
    CALL(hipFree, (void *), c);
    CALL(hipDeviceReset, (void));
    puts("end");
    return 0;
}
