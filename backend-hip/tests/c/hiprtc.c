// A hiprtc for tests: it compiles nothing and gives what lies in a directory.
//
// CODE (a string) is the directory: `<stem>.co` is the code object of `<stem>.hip`; without it compilation fails with a
// log, and where there is a file `hang` it never ends. Each compilation is a line in the file `calls`: the source's
// name, the options, how many headers came with it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char name[256];
    int headers;
    int has_device_h;
    size_t size;
    char *code;
    char log[512];
} Program;

int hiprtcVersion(int *major, int *minor) {
    *major = 9;
    *minor = 1;
    return 0;
}

int hiprtcCreateProgram(Program **program, const char *source, const char *name, int count, const char **headers,
                        const char **names) {
    Program *p = calloc(1, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", name);
    if (!strstr(source, "#include \"")) return 1;
    for (int i = 0; i < count; i++) {
        p->headers += headers[i][0] != 0;
        p->has_device_h |= !strcmp(names[i], "device.h");
    }
    *program = p;
    return 0;
}

int hiprtcCompileProgram(Program *p, int count, const char **options) {
    FILE *calls = fopen(CODE "/calls", "a");
    fprintf(calls, "%s", p->name);
    for (int i = 0; i < count; i++) fprintf(calls, " %s", options[i]);
    fprintf(calls, " headers=%d\n", p->headers);
    fclose(calls);
    while (!access(CODE "/hang", F_OK)) usleep(10000);
    char path[4096];
    snprintf(path, sizeof path, CODE "/%.*s.co", (int)(strlen(p->name) - 4), p->name);
    FILE *file = fopen(path, "rb");
    if (!file || !p->has_device_h) {
        snprintf(p->log, sizeof p->log, "%s:7:1: error: no code for this one", p->name);
        return 6;
    }
    fseek(file, 0, SEEK_END);
    p->size = ftell(file);
    rewind(file);
    p->code = malloc(p->size + 1);
    if (fread(p->code, 1, p->size, file) != p->size) return 1;
    fclose(file);
    return 0;
}

int hiprtcGetProgramLogSize(Program *p, size_t *size) {
    *size = strlen(p->log) + 1;
    return 0;
}

int hiprtcGetProgramLog(Program *p, char *log) {
    strcpy(log, p->log);
    return 0;
}

int hiprtcGetCodeSize(Program *p, size_t *size) {
    *size = p->size;
    return 0;
}

int hiprtcGetCode(Program *p, char *code) {
    memcpy(code, p->code, p->size);
    return 0;
}

int hiprtcDestroyProgram(Program **p) {
    free((*p)->code);
    free(*p);
    *p = NULL;
    return 0;
}

const char *hiprtcGetErrorString(int code) { return code == 6 ? "HIPRTC_ERROR_COMPILATION" : NULL; }
