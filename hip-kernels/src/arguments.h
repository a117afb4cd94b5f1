// Arguments of a kernel, for kernels that read some of them again.
#pragma once
#include "device.h"

// Pointers and parameters of a kernel, in their order in memory.
template <class OPERANDS, class PARAMS> struct Arguments {
    OPERANDS o;
    PARAMS p;
#if DEVICE_AMD
    // Where they are.
    const IN_CONSTANT u8 *at = (const IN_CONSTANT u8 *)__builtin_amdgcn_kernarg_segment_ptr();
#endif
};

// Reads the arguments again: they are too many to stay in scalar registers throughout a loop.
template <class OPERANDS, class PARAMS>
DEVICE Arguments<OPERANDS, PARAMS> arguments_here([[maybe_unused]] const Arguments<OPERANDS, PARAMS> &known) {
#if DEVICE_AMD
    auto at = (const IN_CONSTANT u64 *)known.at;
    __asm__ volatile("" : "+s"(at));
    struct { u64 of[sizeof(OPERANDS) / 8]; } pointers;
    struct { u32 of[sizeof(PARAMS) / 4]; } words;
    constexpr u32 POINTERS = sizeof(pointers) / 8, WORDS = sizeof(words) / 4;
    UNROLL for (u32 i = 0; i < POINTERS; i++) pointers.of[i] = (u64)(const u8 *)(const IN_GLOBAL u8 *)at[i];
    UNROLL for (u32 i = 0; i < WORDS; i++) words.of[i] = ((const IN_CONSTANT u32 *)(at + POINTERS))[i];
    return {__builtin_bit_cast(OPERANDS, pointers), __builtin_bit_cast(PARAMS, words), (const IN_CONSTANT u8 *)at};
#else
    return known;
#endif
}
