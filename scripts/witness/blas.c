// Calls hipBLAS on the first device and compares its results with loops on the processor: sgemm 64 x 64 x 64 plain and
// transposed, sgemv, saxpy, sdot. Prints a line for each; exit status 1 if one is wrong.
//
//   cc -O2 -o blas blas.c -ldl -lm
//
// The functions are declared here and loaded at run time, so that it takes no headers of ROCm.
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 64, HIPBLAS_OP_N = 111, HIPBLAS_OP_T = 112, TO_DEVICE = 1, TO_HOST = 2 };

static void *hip, *blas;

static void *find(void *library, const char *name) {
    void *function = library ? dlsym(library, name) : NULL;
    if (!function) {
        fprintf(stderr, "%s: %s\n", name, dlerror());
        exit(2);
    }
    return function;
}

static void check(const char *what, int status) {
    if (status) {
        fprintf(stderr, "%s: status %d\n", what, status);
        exit(2);
    }
}

#define HIP(name, ...) check(#name, ((int (*)())find(hip, #name))(__VA_ARGS__))
// Floats are passed by pointer in hipBLAS, so calls without a prototype pass what the callee expects.
#define BLAS(name, ...) check(#name, ((int (*)())find(blas, #name))(__VA_ARGS__))

static float *on_device(const float *host, size_t count) {
    float *device = NULL;
    HIP(hipMalloc, (void **)&device, count * sizeof *host);
    HIP(hipMemcpy, device, host, count * sizeof *host, TO_DEVICE);
    return device;
}

static int wrong;

static void compare(const char *what, const float *got, const double *want, int count) {
    double worst = 0;
    for (int i = 0; i < count; i++) worst = fmax(worst, fabs(got[i] - want[i]) / (1 + fabs(want[i])));
    // A NaN is never below the limit.
    int good = worst < 1e-5;
    for (int i = 0; i < count; i++) good = good && isfinite(got[i]);
    printf("%-16s %s, largest error %.1e\n", what, good ? "agrees" : "WRONG", worst);
    wrong |= !good;
}

int main(void) {
    hip = dlopen("libamdhip64.so.6", RTLD_NOW);
    blas = dlopen("libhipblas.so.2", RTLD_NOW);
    static float a[N * N], b[N * N], c[N * N], got[N * N];
    static double want[N * N];
    for (int i = 0; i < N * N; i++) {
        a[i] = (float)((i * 37) % 101) / 50 - 1;
        b[i] = (float)((i * 53) % 97) / 48 - 1;
        c[i] = (float)((i * 29) % 89) / 44 - 1;
    }
    float *da = on_device(a, N * N), *db = on_device(b, N * N), *dc;
    float alpha = 1.5f, beta = -0.5f;
    void *handle = NULL;
    BLAS(hipblasCreate, &handle);
    for (int transposed = 0; transposed < 2; transposed++) {
        dc = on_device(c, N * N);
        BLAS(hipblasSgemm, handle, transposed ? HIPBLAS_OP_T : HIPBLAS_OP_N, HIPBLAS_OP_N, N, N, N, &alpha, da, N, db, N,
             &beta, dc, N);
        HIP(hipMemcpy, got, dc, sizeof got, TO_HOST);
        for (int row = 0; row < N; row++)
            for (int column = 0; column < N; column++) {
                double sum = 0;
                for (int k = 0; k < N; k++)
                    sum += (double)(transposed ? a[k + row * N] : a[row + k * N]) * b[k + column * N];
                want[row + column * N] = alpha * sum + beta * c[row + column * N];
            }
        compare(transposed ? "sgemm, transposed" : "sgemm", got, want, N * N);
    }
    dc = on_device(c, N);
    BLAS(hipblasSgemv, handle, HIPBLAS_OP_N, N, N, &alpha, da, N, db, 1, &beta, dc, 1);
    HIP(hipMemcpy, got, dc, N * sizeof *got, TO_HOST);
    for (int row = 0; row < N; row++) {
        double sum = 0;
        for (int k = 0; k < N; k++) sum += (double)a[row + k * N] * b[k];
        want[row] = alpha * sum + beta * c[row];
    }
    compare("sgemv", got, want, N);
    dc = on_device(c, N * N);
    BLAS(hipblasSaxpy, handle, N * N, &alpha, da, 1, dc, 1);
    HIP(hipMemcpy, got, dc, sizeof got, TO_HOST);
    for (int i = 0; i < N * N; i++) want[i] = alpha * (double)a[i] + c[i];
    compare("saxpy", got, want, N * N);
    want[0] = 0;
    for (int i = 0; i < N * N; i++) want[0] += (double)a[i] * b[i];
    BLAS(hipblasSdot, handle, N * N, da, 1, db, 1, got);
    compare("sdot", got, want, 1);
    BLAS(hipblasDestroy, handle);
    return wrong;
}
