// Reads the virtual machine's files by each function that libraries use, then ends as it is told.
//
//   files end | abort | kill
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NODES "/sys/devices/virtual/kfd/kfd/topology/nodes"

static void check(const char *what, int right) { printf("%s %s\n", right ? "right" : "wrong", what); }

static int text_is(int fd, const char *text) {
    char got[64] = "";
    ssize_t bytes = read(fd, got, sizeof got - 1);
    return bytes >= 0 && !strcmp(got, text);
}

static int count(DIR *folder, const char *wanted) {
    int found = 0;
    struct dirent *entry;
    while ((entry = readdir(folder))) found += !strcmp(entry->d_name, wanted);
    return found;
}

int main(int arguments, char **argument) {
    if (arguments < 2) return 3;
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct stat status;
    struct statx other;
    char path[PATH_MAX] = "", *real;

    int fd = open(NODES "/0/gpu_id", O_RDONLY);
    check("a file", fd >= 0 && text_is(fd, "0\n") && fstat(fd, &status) == 0 && S_ISREG(status.st_mode));
    check("a file that nobody writes", write(fd, "1", 1) < 0 && open(NODES "/0/gpu_id", O_RDWR) < 0 && errno == EACCES);
    FILE *stream = fopen("/sys/class/drm/card0/device/device", "r");
    check("a stream", stream && fgets(path, sizeof path, stream) && !strcmp(path, "0x66a1\n"));
    check("no file", open(NODES "/7/gpu_id", O_RDONLY) < 0 && errno == ENOENT && !fopen(NODES "/7", "r"));

    DIR *folder = opendir(NODES);
    check("a folder", folder && count(folder, "1") == 1);
    rewinddir(folder);
    long begin = telldir(folder);
    check("a folder again", count(folder, "0") == 1);
    seekdir(folder, begin);
    check("a folder from a place", count(folder, "..") == 1 && closedir(folder) == 0);
    check("no folder", !opendir(NODES "/0/gpu_id") && errno == ENOTDIR);

    int at = open(NODES, O_RDONLY | O_DIRECTORY | O_CLOEXEC), second = dup(at);
    fd = openat(second, "1/../0/gpu_id", O_RDONLY);
    check("a file of a folder's descriptor", text_is(fd, "0\n") && fstatat(at, "1", &status, 0) == 0 && S_ISDIR(status.st_mode));
    folder = fdopendir(second);
    check("the folder of a descriptor", folder && count(folder, "1") == 1 && closedir(folder) == 0);

    check("a status", stat("/sys/class/kfd/kfd", &status) == 0 && S_ISDIR(status.st_mode) &&
                          lstat("/sys/class/kfd/kfd", &status) == 0 && S_ISLNK(status.st_mode));
    check("another status", statx(AT_FDCWD, NODES "/0/name", 0, STATX_BASIC_STATS, &other) == 0 && other.stx_size == 1 &&
                                access(NODES "/0/name", R_OK) == 0 && access(NODES "/0/name", W_OK) < 0);
    ssize_t bytes = readlink("/sys/class/drm/card0", path, sizeof path);
    check("a link", bytes > 0 && !strncmp(path, "../../devices/pci0000:00/", 25));
    real = realpath("/sys/class/drm/renderD128/device/driver", NULL);
    check("a real path", real && !strcmp(real, "/sys/bus/pci/drivers/amdgpu") &&
                             realpath("/sys/class/drm/card0/device", path) && !strcmp(path, "/sys/devices/pci0000:00/0000:03:00.0"));
    puts("end");
    fflush(stdout);
    if (!strcmp(argument[1], "abort")) abort();
    if (!strcmp(argument[1], "kill")) raise(SIGKILL);
    return 0;
}
