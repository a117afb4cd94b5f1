//! Changes of a source by modifiers, each as an operation of its own: what instructions in short need.

use super::half;
use super::run::valu;
use crate::isa::Row;

valu! {
    mode, lane;
    negative (a: u32) -> u32 { a ^ 1 << 31 }
    absolute (a: u32) -> u32 { a & !(1 << 31) }
    negative_absolute (a: u32) -> u32 { a | 1 << 31 }
    value_of_low_half (a: u32) -> f32 { half::to_f32(a as u16) }
    value_of_high_half (a: u32) -> f32 { half::to_f32((a >> 16) as u16) }
    byte_0 (a: u32) -> u32 { a & 0xff }
    byte_1 (a: u32) -> u32 { a >> 8 & 0xff }
    byte_2 (a: u32) -> u32 { a >> 16 & 0xff }
    byte_3 (a: u32) -> u32 { a >> 24 }
    half_0 (a: u32) -> u32 { a & 0xffff }
    half_1 (a: u32) -> u32 { a >> 16 }
    signed_byte_0 (a: i32) -> i32 { a << 24 >> 24 }
    signed_byte_1 (a: i32) -> i32 { a << 16 >> 24 }
    signed_byte_2 (a: i32) -> i32 { a << 8 >> 24 }
    signed_byte_3 (a: i32) -> i32 { a >> 24 }
    signed_half_0 (a: i32) -> i32 { a << 16 >> 16 }
    signed_half_1 (a: i32) -> i32 { a >> 16 }
}

/// Parts that SDWA selects, by number: without and with their sign.
pub(crate) static PARTS: [[&Row; 6]; 2] = [
    [&byte_0, &byte_1, &byte_2, &byte_3, &half_0, &half_1],
    [&signed_byte_0, &signed_byte_1, &signed_byte_2, &signed_byte_3, &signed_half_0, &signed_half_1],
];
