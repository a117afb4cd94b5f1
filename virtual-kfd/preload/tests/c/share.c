// Memory that goes through descriptors: virtual memory management, and memory of another process.
//
//   share LIBRARY vmm | ipc | fork | children
//
// Its last line says "end", or which function the runtime refuses.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *Pointer;
static void *library;

#define CALL(name, types, ...)                                                                                        \
    do {                                                                                                              \
        int (*function) types = (int (*) types)dlsym(library, #name);                                                 \
        if (!function) { printf("missing %s\n", #name); fflush(stdout); _exit(4); }                                   \
        int error = function(__VA_ARGS__);                                                                            \
        if (error) { printf("error %s = %d\n", #name, error); fflush(stdout); _exit(2); }                             \
    } while (0)

static void check(const char *what, int right) {
    printf("%s %s\n", right ? "right" : "wrong", what);
    fflush(stdout);
    if (!right) _exit(1);
}

static void begin(const char *path) {
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) puts(dlerror()), _exit(3);
    CALL(hipInit, (unsigned), 0);
    CALL(hipSetDevice, (int), 0);
}

enum { COUNT = 1 << 19, BYTES = 4 * COUNT };
static unsigned x[COUNT], z[COUNT];

static void fill(unsigned seed) {
    for (unsigned i = 0; i < COUNT; i++) x[i] = i * 2654435761u + seed;
}
static void copy(void *to, const void *from) {
    CALL(hipMemcpy, (void *, const void *, size_t, int), to, from, BYTES, 4);
}

// hipMemLocation, hipMemAllocationProp, hipMemAccessDesc.
struct location { int type, id; };
struct properties { int type, handle; struct location location; void *other; unsigned char flags[4]; };
struct access { struct location location; int flags; };

static Pointer map(size_t bytes, Pointer handle) {
    Pointer at;
    struct access access = {{1, 0}, 3};
    CALL(hipMemAddressReserve, (Pointer *, size_t, size_t, void *, unsigned long long), &at, bytes, 0, NULL, 0);
    CALL(hipMemMap, (void *, size_t, size_t, void *, unsigned long long), at, bytes, 0, handle, 0);
    CALL(hipMemSetAccess, (void *, size_t, const void *, size_t), at, bytes, &access, 1);
    return at;
}
static void unmap(Pointer at, size_t bytes) {
    CALL(hipMemUnmap, (void *, size_t), at, bytes);
    CALL(hipMemAddressFree, (void *, size_t), at, bytes);
}

static void vmm(const char *path) {
    begin(path);
    struct properties properties = {.type = 1, .handle = 1, .location = {1, 0}};
    size_t granularity = 0;
    CALL(hipMemGetAllocationGranularity, (size_t *, const void *, int), &granularity, &properties, 0);
    if (!granularity) puts("error hipMemGetAllocationGranularity gives 0"), fflush(stdout), _exit(2);
    size_t bytes = (BYTES + granularity - 1) / granularity * granularity;
    Pointer handle, imported, a, b;
    CALL(hipMemCreate, (Pointer *, size_t, const void *, unsigned long long), &handle, bytes, &properties, 0);
    a = map(bytes, handle);
    fill(1);
    copy(a, x);
    copy(z, a);
    check("memory at a reserved address", !memcmp(x, z, BYTES));
    int fd = -1;
    CALL(hipMemExportToShareableHandle, (void *, void *, int, unsigned long long), &fd, handle, 1, 0);
    // The address of the descriptor, and since version 7 the descriptor itself.
    int version = 0;
    CALL(hipRuntimeGetVersion, (int *), &version);
    void *of = version < 70000000 ? (void *)&fd : (void *)(size_t)fd;
    CALL(hipMemImportFromShareableHandle, (Pointer *, void *, int), &imported, of, 1);
    b = map(bytes, imported);
    memset(z, 0, BYTES);
    copy(z, b);
    check("the same memory, imported from a descriptor", !memcmp(x, z, BYTES));
    fill(2);
    copy(b, x);
    copy(z, a);
    check("one memory at two addresses", !memcmp(x, z, BYTES));
    unmap(b, bytes);
    unmap(a, bytes);
    CALL(hipMemRelease, (void *), imported);
    CALL(hipMemRelease, (void *), handle);
    close(fd);
    puts("end");
}

struct handle { char bytes[64]; };

static void ipc(const char *path) {
    int there[2], back[2];
    char byte = 0;
    struct handle handle;
    Pointer memory;
    if (pipe(there) || pipe(back)) exit(3);
    pid_t child = fork();
    if (!child) {
        close(there[1]);
        if (read(there[0], &handle, sizeof handle) != sizeof handle) _exit(5);
        begin(path);
        CALL(hipIpcOpenMemHandle, (Pointer *, struct handle, unsigned), &memory, handle, 1);
        fill(3);
        copy(z, memory);
        check("memory of another process", !memcmp(x, z, BYTES));
        fill(4);
        copy(memory, x);
        CALL(hipDeviceSynchronize, (void));
        CALL(hipIpcCloseMemHandle, (void *), memory);
        _exit(write(back[1], &byte, 1) == 1 ? 0 : 6);
    }
    close(back[1]);
    begin(path);
    CALL(hipMalloc, (Pointer *, size_t), &memory, BYTES);
    fill(3);
    copy(memory, x);
    CALL(hipDeviceSynchronize, (void));
    CALL(hipIpcGetMemHandle, (void *, void *), &handle, memory);
    if (write(there[1], &handle, sizeof handle) != sizeof handle) exit(3);
    int status = -1;
    int got = read(back[0], &byte, 1) == 1;
    waitpid(child, &status, 0);
    check("the other process ends well", got && status == 0);
    fill(4);
    copy(z, memory);
    check("what the other process wrote", !memcmp(x, z, BYTES));
    puts("end");
}

// GET_VERSION.
static int version(int fd) {
    unsigned words[2] = {0, 0};
    return ioctl(fd, _IOR('K', 1, unsigned[2]), words) ? -errno : (int)words[0];
}

// Knows nothing of HIP: how the devices behave after a fork, and when they are closed.
static void forks(void) {
    int kfd = open("/dev/kfd", O_RDWR | O_CLOEXEC), render = open("/dev/dri/renderD128", O_RDWR), status = -1;
    check("devices open", kfd >= 0 && render >= 0 && version(kfd) == 1);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        check("the parent's device is not the child's", version(kfd) == -EBADF);
        int own = open("/dev/kfd", O_RDWR);
        check("a device that the child opens is", own >= 0 && version(own) == 1 && version(kfd) == -EBADF);
        pid_t grandchild = fork();
        if (!grandchild) _exit(version(own) == -EBADF ? 0 : 7);
        waitpid(grandchild, &status, 0);
        check("neither is the child's its own child's", status == 0);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    check("the child ends well", status == 0);
    check("the parent goes on", version(kfd) == 1);
    int second = dup(kfd);
    close(kfd);
    check("a duplicate works, what is closed does not", version(second) == 1 && version(kfd) == -EBADF);
    int null = open("/dev/null", O_RDWR);
    check("its number may be that of another file", version(null) == -ENOTTY);
    puts("end");
}

// Children of a process that has used the card: one that ends, one that runs another program, and one that uses the
// card through the runtime's state that it has inherited.
static void children(const char *path) {
    Pointer memory, other;
    int status = -1;
    begin(path);
    CALL(hipMalloc, (Pointer *, size_t), &memory, BYTES);
    fill(5);
    copy(memory, x);
    fflush(stdout);
    pid_t child = fork();
    if (!child) _exit(0);
    waitpid(child, &status, 0);
    check("a child that ends", status == 0);
    check("a child that runs a program", system("exit 7") >> 8 == 7);
    child = fork();
    if (!child) {
        alarm(5);
        CALL(hipMalloc, (Pointer *, size_t), &other, BYTES);
        copy(other, x);
        CALL(hipDeviceSynchronize, (void));
        puts("works");
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) printf("the child: signal %d\n", WTERMSIG(status));
    else printf("the child: exit %d\n", WEXITSTATUS(status));
    memset(z, 0, BYTES);
    copy(z, memory);
    check("the parent's memory is as it was", !memcmp(x, z, BYTES));
    fill(6);
    copy(memory, x);
    copy(z, memory);
    check("the parent goes on", !memcmp(x, z, BYTES));
    CALL(hipFree, (void *), memory);
    puts("end");
}

int main(int count, char **arguments) {
    if (count < 3) return 3;
    alarm(60);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(arguments[2], "vmm")) vmm(arguments[1]);
    if (!strcmp(arguments[2], "ipc")) ipc(arguments[1]);
    if (!strcmp(arguments[2], "fork")) forks();
    if (!strcmp(arguments[2], "children")) children(arguments[1]);
    fflush(stdout);
    _exit(0);
}
