//! Algorithms with published results: these expectations do not depend on formulas written for the tests.

use crate::programs::KNOWN;
use crate::programs::variants::{everywhere, everywhere_spilling};
use crate::support::Arguments;

/// FIPS 180-4 and its examples.
#[test]
fn sha256() {
    let examples: [(&str, [u32; 8]); 3] = [
        (
            "abc",
            [
                0xba78_16bf,
                0x8f01_cfea,
                0x4141_40de,
                0x5dae_2223,
                0xb003_61a3,
                0x9617_7a9c,
                0xb410_ff61,
                0xf200_15ad,
            ],
        ),
        (
            "",
            [
                0xe3b0_c442,
                0x98fc_1c14,
                0x9afb_f4c8,
                0x996f_b924,
                0x27ae_41e4,
                0x649b_934c,
                0xa495_991b,
                0x7852_b855,
            ],
        ),
        (
            "The quick brown fox jumps over the lazy dog",
            [
                0xd7a8_fbb3,
                0x07d7_8094,
                0x69ca_9abc,
                0xb008_2e4f,
                0x8d56_51e4,
                0x6d3c_db76,
                0x2d02_d0bf,
                0x37c9_e592,
            ],
        ),
    ];
    let mut messages = vec![0u8; 128 * 64];
    let lengths: Vec<u32> = (0..128).map(|i| examples[i % 3].0.len() as u32).collect();
    for (i, block) in messages.chunks_mut(64).enumerate() {
        let text = examples[i % 3].0.as_bytes();
        block[..text.len()].copy_from_slice(text);
    }
    everywhere_spilling(KNOWN, |session| {
        let (from, sizes, to) =
            (session.upload(&messages), session.upload(&lengths), session.allocate(128 * 32));
        session.run("sha256", [2, 1, 1], [64, 1, 1], &Arguments::new().add(from).add(sizes).add(to));
        for (i, digest) in session.download::<[u32; 8]>(to, 128).into_iter().enumerate() {
            assert_eq!(digest, examples[i % 3].1, "work item {i}: {:?}", examples[i % 3].0);
        }
    });
}

/// RFC 8439, section 2.3.2: the block with counter 1.
#[test]
fn chacha20() {
    let mut state = vec![0x6170_7865u32, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];
    let key: Vec<u8> = (0..32).collect();
    state.extend(key.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())));
    state.extend([1, 0x0900_0000, 0x4a00_0000, 0]);
    let expected = [
        0xe4e7_f110u32,
        0x1559_3bd1,
        0x1fdd_0f50,
        0xc471_20a3,
        0xc7f4_d1c7,
        0x0368_c033,
        0x9aaa_2204,
        0x4e6c_d4c3,
        0x4664_82d2,
        0x09aa_9f07,
        0x05d7_c214,
        0xa202_8bd9,
        0xd19c_12b5,
        0xb94e_16de,
        0xe883_d0cb,
        0x4e3c_50a2,
    ];
    everywhere_spilling(KNOWN, |session| {
        let (from, to) = (session.upload(&state), session.allocate(64 * 64));
        session.run("chacha20", [1; 3], [64, 1, 1], &Arguments::new().add(from).add(to));
        let blocks: Vec<u32> = session.download(to, 64 * 16);
        assert_eq!(blocks[..16], expected);
        assert_ne!(blocks[16..32], expected, "the counter of the next work item differs");
    });
}

/// The check value of CRC-32 (ISO-HDLC).
#[test]
fn crc32() {
    everywhere(KNOWN, |session| {
        let (from, to) = (session.upload(b"123456789"), session.allocate(256));
        session.run("crc32", [1; 3], [64, 1, 1], &Arguments::new().add(from).add(9u32).add(to));
        assert_eq!(session.download::<u32>(to, 64), [0xcbf4_3926; 64]);
    });
}

/// The C++ standard specifies the 10000th value of `std::mt19937_64`.
#[test]
fn mersenne_twister() {
    everywhere(KNOWN, |session| {
        let to = session.allocate(16);
        session.run("twister", [1; 3], [2, 1, 1], &Arguments::new().add(to));
        assert_eq!(session.download::<u64>(to, 2), [9_981_545_732_273_789_042; 2]);
    });
}

#[test]
fn digits_of_pi() {
    // 3.243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 082efa98
    let digits =
        [3, 0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344, 0xa409_3822, 0x299f_31d0, 0x082e_fa98];
    everywhere_spilling(KNOWN, |session| {
        let to = session.allocate(64 * 32);
        session.run("pi", [1; 3], [64, 1, 1], &Arguments::new().add(to));
        for (lane, words) in session.download::<[u32; 8]>(to, 64).into_iter().enumerate() {
            assert_eq!(words, digits, "lane {lane}");
        }
    });
}
