//! Comparisons. The result is one bit per lane; `v_cmpx` also writes it to EXEC.

use super::lanes::{CHUNK, F16, Output, ResultPart, Source, SourcePart, kinds};
use super::math::{class16, class32, class64};
use super::run::run;
use crate::isa::{Kind, Row, flag};

/// Sets each lane's bit if `RELATION` holds: a set of less (1), equal (2), greater (4), unordered (8).
#[inline(always)]
fn compare<T: Source + PartialOrd, const RELATION: u8>(from: &SourcePart<'_>, to: &mut ResultPart<'_>) {
    for lane in 0..CHUNK {
        let (a, b) = (T::get(from, 0, lane), T::get(from, 1, lane));
        let (less, equal, greater) = (u8::from(a < b), u8::from(a == b), u8::from(a > b));
        let found = less | equal << 1 | greater << 2;
        let found = found | u8::from(found == 0) << 3;
        Output::set(found & RELATION != 0, to, lane);
    }
}

/// Sets each lane's bit if the class of its first source is one of those in the second.
#[inline(always)]
fn classify<T: Source>(from: &SourcePart<'_>, to: &mut ResultPart<'_>, class: impl Fn(T) -> u32) {
    for lane in 0..CHUNK {
        let wanted = u32::get(from, 1, lane);
        Output::set(class(T::get(from, 0, lane)) & wanted != 0, to, lane);
    }
}

/// Defines the two operations of each relation of a type.
macro_rules! comparisons {
    ($($type:ty { $($relation:literal $name:ident $to_exec:ident)* })*) => {$($(
        pub(crate) static $name: Row = Row {
            name: stringify!($name),
            dst: Kind::Mask,
            carry_out: false,
            src: kinds(&[<$type as Source>::KIND; 2]),
            flags: 0,
            run: run!(bool, |mode, chunk, from, to| { compare::<$type, $relation>(from, to) }),
        };
        pub(crate) static $to_exec: Row = Row { name: stringify!($to_exec), flags: flag::EXEC, ..$name };
    )*)*};
}

/// Defines the two operations that classify values of a type.
macro_rules! classes {
    ($($type:ty, $class:path, $name:ident, $to_exec:ident;)*) => {$(
        pub(crate) static $name: Row = Row {
            name: stringify!($name),
            dst: Kind::Mask,
            carry_out: false,
            src: kinds(&[<$type as Source>::KIND, Kind::U32]),
            flags: 0,
            run: run!(bool, |mode, chunk, from, to| { classify::<$type>(from, to, $class) }),
        };
        pub(crate) static $to_exec: Row = Row { name: stringify!($to_exec), flags: flag::EXEC, ..$name };
    )*};
}

classes! {
    f32, class32, v_cmp_class_f32, v_cmpx_class_f32;
    f64, class64, v_cmp_class_f64, v_cmpx_class_f64;
    F16, class16, v_cmp_class_f16, v_cmpx_class_f16;
}

comparisons! {
    F16 {
        0 v_cmp_f_f16 v_cmpx_f_f16
        1 v_cmp_lt_f16 v_cmpx_lt_f16
        2 v_cmp_eq_f16 v_cmpx_eq_f16
        3 v_cmp_le_f16 v_cmpx_le_f16
        4 v_cmp_gt_f16 v_cmpx_gt_f16
        5 v_cmp_lg_f16 v_cmpx_lg_f16
        6 v_cmp_ge_f16 v_cmpx_ge_f16
        7 v_cmp_o_f16 v_cmpx_o_f16
        8 v_cmp_u_f16 v_cmpx_u_f16
        9 v_cmp_nge_f16 v_cmpx_nge_f16
        10 v_cmp_nlg_f16 v_cmpx_nlg_f16
        11 v_cmp_ngt_f16 v_cmpx_ngt_f16
        12 v_cmp_nle_f16 v_cmpx_nle_f16
        13 v_cmp_neq_f16 v_cmpx_neq_f16
        14 v_cmp_nlt_f16 v_cmpx_nlt_f16
        15 v_cmp_tru_f16 v_cmpx_tru_f16
    }
    f32 {
        0 v_cmp_f_f32 v_cmpx_f_f32
        1 v_cmp_lt_f32 v_cmpx_lt_f32
        2 v_cmp_eq_f32 v_cmpx_eq_f32
        3 v_cmp_le_f32 v_cmpx_le_f32
        4 v_cmp_gt_f32 v_cmpx_gt_f32
        5 v_cmp_lg_f32 v_cmpx_lg_f32
        6 v_cmp_ge_f32 v_cmpx_ge_f32
        7 v_cmp_o_f32 v_cmpx_o_f32
        8 v_cmp_u_f32 v_cmpx_u_f32
        9 v_cmp_nge_f32 v_cmpx_nge_f32
        10 v_cmp_nlg_f32 v_cmpx_nlg_f32
        11 v_cmp_ngt_f32 v_cmpx_ngt_f32
        12 v_cmp_nle_f32 v_cmpx_nle_f32
        13 v_cmp_neq_f32 v_cmpx_neq_f32
        14 v_cmp_nlt_f32 v_cmpx_nlt_f32
        15 v_cmp_tru_f32 v_cmpx_tru_f32
    }
    f64 {
        0 v_cmp_f_f64 v_cmpx_f_f64
        1 v_cmp_lt_f64 v_cmpx_lt_f64
        2 v_cmp_eq_f64 v_cmpx_eq_f64
        3 v_cmp_le_f64 v_cmpx_le_f64
        4 v_cmp_gt_f64 v_cmpx_gt_f64
        5 v_cmp_lg_f64 v_cmpx_lg_f64
        6 v_cmp_ge_f64 v_cmpx_ge_f64
        7 v_cmp_o_f64 v_cmpx_o_f64
        8 v_cmp_u_f64 v_cmpx_u_f64
        9 v_cmp_nge_f64 v_cmpx_nge_f64
        10 v_cmp_nlg_f64 v_cmpx_nlg_f64
        11 v_cmp_ngt_f64 v_cmpx_ngt_f64
        12 v_cmp_nle_f64 v_cmpx_nle_f64
        13 v_cmp_neq_f64 v_cmpx_neq_f64
        14 v_cmp_nlt_f64 v_cmpx_nlt_f64
        15 v_cmp_tru_f64 v_cmpx_tru_f64
    }
    i16 {
        0 v_cmp_f_i16 v_cmpx_f_i16
        1 v_cmp_lt_i16 v_cmpx_lt_i16
        2 v_cmp_eq_i16 v_cmpx_eq_i16
        3 v_cmp_le_i16 v_cmpx_le_i16
        4 v_cmp_gt_i16 v_cmpx_gt_i16
        5 v_cmp_ne_i16 v_cmpx_ne_i16
        6 v_cmp_ge_i16 v_cmpx_ge_i16
        7 v_cmp_t_i16 v_cmpx_t_i16
    }
    u16 {
        0 v_cmp_f_u16 v_cmpx_f_u16
        1 v_cmp_lt_u16 v_cmpx_lt_u16
        2 v_cmp_eq_u16 v_cmpx_eq_u16
        3 v_cmp_le_u16 v_cmpx_le_u16
        4 v_cmp_gt_u16 v_cmpx_gt_u16
        5 v_cmp_ne_u16 v_cmpx_ne_u16
        6 v_cmp_ge_u16 v_cmpx_ge_u16
        7 v_cmp_t_u16 v_cmpx_t_u16
    }
    i32 {
        0 v_cmp_f_i32 v_cmpx_f_i32
        1 v_cmp_lt_i32 v_cmpx_lt_i32
        2 v_cmp_eq_i32 v_cmpx_eq_i32
        3 v_cmp_le_i32 v_cmpx_le_i32
        4 v_cmp_gt_i32 v_cmpx_gt_i32
        5 v_cmp_ne_i32 v_cmpx_ne_i32
        6 v_cmp_ge_i32 v_cmpx_ge_i32
        7 v_cmp_t_i32 v_cmpx_t_i32
    }
    u32 {
        0 v_cmp_f_u32 v_cmpx_f_u32
        1 v_cmp_lt_u32 v_cmpx_lt_u32
        2 v_cmp_eq_u32 v_cmpx_eq_u32
        3 v_cmp_le_u32 v_cmpx_le_u32
        4 v_cmp_gt_u32 v_cmpx_gt_u32
        5 v_cmp_ne_u32 v_cmpx_ne_u32
        6 v_cmp_ge_u32 v_cmpx_ge_u32
        7 v_cmp_t_u32 v_cmpx_t_u32
    }
    i64 {
        0 v_cmp_f_i64 v_cmpx_f_i64
        1 v_cmp_lt_i64 v_cmpx_lt_i64
        2 v_cmp_eq_i64 v_cmpx_eq_i64
        3 v_cmp_le_i64 v_cmpx_le_i64
        4 v_cmp_gt_i64 v_cmpx_gt_i64
        5 v_cmp_ne_i64 v_cmpx_ne_i64
        6 v_cmp_ge_i64 v_cmpx_ge_i64
        7 v_cmp_t_i64 v_cmpx_t_i64
    }
    u64 {
        0 v_cmp_f_u64 v_cmpx_f_u64
        1 v_cmp_lt_u64 v_cmpx_lt_u64
        2 v_cmp_eq_u64 v_cmpx_eq_u64
        3 v_cmp_le_u64 v_cmpx_le_u64
        4 v_cmp_gt_u64 v_cmpx_gt_u64
        5 v_cmp_ne_u64 v_cmpx_ne_u64
        6 v_cmp_ge_u64 v_cmpx_ge_u64
        7 v_cmp_t_u64 v_cmpx_t_u64
    }
}
