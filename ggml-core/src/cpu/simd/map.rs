//! Loops over rows: whole vectors, and the rest of the row in a padded vector. The function is compiled once
//! for both.
//!
//! They are macros instead of functions with closures, because a closure is a separate function: it would be
//! compiled without the instruction set's features, and each of its intrinsics would become a call.

/// Computes `x[i] = f(x[i])`: `map!(s, x, |v| f(v))`.
macro_rules! map {
    ($s:expr, $x:expr, |$v:ident| $f:expr) => {{
        let (s, x): (_, &mut [f32]) = ($s, $x);
        let lanes = $crate::cpu::simd::lanes(s);
        for chunk in x.chunks_mut(lanes) {
            let is_whole = chunk.len() == lanes;
            let $v = if is_whole { s.load(chunk) } else { s.load_partial(chunk) };
            let result = $f;
            if is_whole { s.store(chunk, result) } else { s.store_partial(chunk, result) }
        }
    }};
}

/// Computes `x[i] = f(x[i], y[i])`: `zip!(s, x, y, |v, w| f(v, w))`.
macro_rules! zip {
    ($s:expr, $x:expr, $y:expr, |$v:ident, $w:ident| $f:expr) => {{
        let (s, x, y): (_, &mut [f32], &[f32]) = ($s, $x, $y);
        let lanes = $crate::cpu::simd::lanes(s);
        for (chunk, other) in x.chunks_mut(lanes).zip(y.chunks(lanes)) {
            let is_whole = chunk.len() == lanes && other.len() == lanes;
            let ($v, $w) = match is_whole {
                true => (s.load(chunk), s.load(other)),
                false => (s.load_partial(chunk), s.load_partial(other)),
            };
            let result = $f;
            if is_whole { s.store(chunk, result) } else { s.store_partial(chunk, result) }
        }
    }};
}

/// Folds all vectors of `x`, the last one padded with `pad`: `fold!(s, x, pad, init, |acc, v| f(acc, v))`.
macro_rules! fold {
    ($s:expr, $x:expr, $pad:expr, $init:expr, |$acc:ident, $v:ident| $f:expr) => {{
        let (s, x): (_, &[f32]) = ($s, $x);
        let lanes = $crate::cpu::simd::lanes(s);
        let mut $acc = $init;
        for chunk in x.chunks(lanes) {
            let mut full;
            let vector = match chunk.len() == lanes {
                true => chunk,
                false => {
                    full = [$pad; $crate::cpu::simd::MAX_LANES];
                    full.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
                    &full[..]
                }
            };
            let $v = s.load(vector);
            $acc = $f;
        }
        $acc
    }};
}

pub(in crate::cpu) use {fold, map, zip};
