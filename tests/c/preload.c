// Loaded into every process that a test starts (LD_PRELOAD): in the child that CHILD names, a part of its command line,
// it does ACT when it is loaded.
#include <signal.h>
#include <stdio.h>
#include <string.h>
__attribute__((unused)) static void die(void) { raise(SIGKILL); }
__attribute__((unused)) static void wait_for_ever(void) { for (;;) pause(); }
__attribute__((unused)) static void leave(void) { _exit(3); }
__attribute__((constructor)) static void on_load(void) {
    char text[4096] = {0};
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    for (size_t i = 0; i < n; i++)
        if (!text[i]) text[i] = ' ';
    if (strstr(text, CHILD)) { ACT; }
}
