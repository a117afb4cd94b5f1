// Algorithms whose results are published: every work item computes the same thing from its own copy.

CONSTANT u32 round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

DEVICE static inline u32 turn(u32 x, u32 by) { return __builtin_rotateright32(x, by); }

// SHA-256 of a message that fits one block.
GLOBAL void sha256(const u8* messages, const u32* lengths, u32* digests) {
    u32 item = group_x() * 64 + local_x();
    const u8* message = messages + 64 * item;
    u32 length = lengths[item], w[64];
    for (u32 i = 0; i < 16; i++) {
        w[i] = 0;
        for (u32 k = 0; k < 4; k++) {
            u32 at = 4 * i + k;
            u32 byte = at < length ? message[at] : at == length ? 0x80u : 0u;
            w[i] = w[i] << 8 | byte;
        }
    }
    w[15] = length * 8;
    for (u32 i = 16; i < 64; i++) {
        u32 s0 = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
        u32 s1 = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    u32 start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    u32 v[8];
    for (u32 i = 0; i < 8; i++) v[i] = start[i];
    for (u32 i = 0; i < 64; i++) {
        u32 s1 = turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25);
        u32 choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        u32 first = v[7] + s1 + choice + round_constants[i] + w[i];
        u32 s0 = turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22);
        u32 majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        for (u32 k = 7; k > 0; k--) v[k] = v[k - 1];
        v[4] += first;
        v[0] = first + s0 + majority;
    }
    for (u32 i = 0; i < 8; i++) digests[8 * item + i] = start[i] + v[i];
}

DEVICE static inline void quarter(u32* s, u32 a, u32 b, u32 c, u32 d) {
    s[a] += s[b]; s[d] = __builtin_rotateleft32(s[d] ^ s[a], 16);
    s[c] += s[d]; s[b] = __builtin_rotateleft32(s[b] ^ s[c], 12);
    s[a] += s[b]; s[d] = __builtin_rotateleft32(s[d] ^ s[a], 8);
    s[c] += s[d]; s[b] = __builtin_rotateleft32(s[b] ^ s[c], 7);
}

// The block function of ChaCha20; the work item's number is added to the block counter.
GLOBAL void chacha20(const u32* state, u32* blocks) {
    u32 item = group_x() * 64 + local_x(), s[16], start[16];
    for (u32 i = 0; i < 16; i++) start[i] = s[i] = state[i] + (i == 12 ? item : 0);
    for (u32 i = 0; i < 10; i++) {
        quarter(s, 0, 4, 8, 12);
        quarter(s, 1, 5, 9, 13);
        quarter(s, 2, 6, 10, 14);
        quarter(s, 3, 7, 11, 15);
        quarter(s, 0, 5, 10, 15);
        quarter(s, 1, 6, 11, 12);
        quarter(s, 2, 7, 8, 13);
        quarter(s, 3, 4, 9, 14);
    }
    for (u32 i = 0; i < 16; i++) blocks[16 * item + i] = s[i] + start[i];
}

GLOBAL void crc32(const u8* message, u32 length, u32* sums) {
    u32 sum = ~0u;
    for (u32 i = 0; i < length; i++) {
        sum ^= message[i];
        for (u32 k = 0; k < 8; k++) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0u);
    }
    sums[local_x()] = ~sum;
}

// The Mersenne twister, its whole state in scratch: 64 bits, seeded with 5489. Its ten-thousandth number is published.
GLOBAL void twister(u64* out) {
    u64 s[312];
    s[0] = 5489u;
    for (u32 i = 1; i < 312; i++) s[i] = 6364136223846793005ull * (s[i - 1] ^ s[i - 1] >> 62) + i;
    u64 y = 0;
    for (u32 n = 0, at = 312; n < 10000; n++) {
        if (at == 312) {
            for (u32 i = 0; i < 312; i++) {
                u64 x = (s[i] & 0xffffffff80000000ull) | (s[(i + 1) % 312] & 0x7fffffffull);
                s[i] = s[(i + 156) % 312] ^ x >> 1 ^ (x & 1 ? 0xb5026f5aa96619e9ull : 0);
            }
            at = 0;
        }
        y = s[at++];
        y ^= y >> 29 & 0x5555555555555555ull;
        y ^= y << 17 & 0x71d67fffeda60000ull;
        y ^= y << 37 & 0xfff7eee000000000ull;
        y ^= y >> 43;
    }
    out[local_x()] = y;
}

// Pi by Machin's formula in fixed point, 4 words of 32 bits a work item: long division, digit by digit.
GLOBAL void pi(u32* out) {
    u32 sum[10], power[10], term[10];
    for (u32 i = 0; i < 10; i++) sum[i] = 0;
    for (u32 which = 0; which < 2; which++) {
        u32 divisor = which ? 239 : 5, factor = which ? 4 : 16;
        for (u32 i = 0; i < 10; i++) power[i] = 0;
        power[0] = factor * divisor;
        for (u32 n = 1; n < 220; n += 2) {
            u64 rest = 0;
            for (u32 i = 0; i < 10; i++) {
                rest = rest << 32 | power[i];
                power[i] = (u32)(rest / (divisor * divisor));
                rest %= divisor * divisor;
            }
            rest = 0;
            for (u32 i = 0; i < 10; i++) {
                rest = rest << 32 | power[i];
                term[i] = (u32)(rest / n);
                rest %= n;
            }
            bool subtract = ((n >> 1) & 1) != which;
            i64 carry = 0;
            for (u32 i = 10; i-- > 0;) {
                carry += (i64)(u64)sum[i] + (subtract ? -(i64)(u64)term[i] : (i64)(u64)term[i]);
                sum[i] = (u32)carry;
                carry >>= 32;
            }
        }
    }
    for (u32 i = 0; i < 8; i++) out[8 * local_x() + i] = sum[i];
}
