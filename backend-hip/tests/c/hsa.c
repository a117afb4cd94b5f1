// A libhsa-runtime64 for tests: it keeps the handlers of system events, and calls them with a memory fault on a thread of
// its own when it is told to. It counts what nobody took.
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int event_type;
    uint64_t agent;
    uint64_t virtual_address;
    uint32_t fault_reason_mask;
} Event;

typedef int (*Handler)(const Event *, void *);

static Handler handlers[8];
static int count;

int hsa_amd_register_system_event_handler(Handler handler, void *data) {
    if (data || count == 8) return 0x1001;
    handlers[count++] = handler;
    return 0;
}

static void *raise_fault(void *taken) {
    Event event = {0, 0x77, 0x7f00dead0000, 1};
    *(int *)taken = 0;
    for (int i = 0; i < count; i++) *(int *)taken |= handlers[i](&event, NULL) == 0;
    return NULL;
}

// Whether a handler took the fault; the real library ends the process otherwise.
int test_fault(void) {
    int taken;
    pthread_t thread;
    pthread_create(&thread, NULL, raise_fault, &taken);
    pthread_join(thread, NULL);
    return taken;
}
