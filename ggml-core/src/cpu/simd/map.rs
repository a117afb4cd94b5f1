//! Loops over rows: whole vectors, then the rest of the row in a padded vector.
//!
//! They are macros instead of functions with closures, because a closure is a separate function: it would be
//! compiled without the instruction set's features, and each of its intrinsics would become a call.

/// Computes `x[i] = f(x[i])`: `map!(s, x, |v| f(v))`.
macro_rules! map {
    ($s:expr, $x:expr, |$v:ident| $f:expr) => {{
        let (s, x): (_, &mut [f32]) = ($s, $x);
        let mut chunks = x.chunks_exact_mut($crate::cpu::simd::lanes(s));
        for chunk in &mut chunks {
            let $v = s.load(chunk);
            s.store(chunk, $f);
        }
        let rest = chunks.into_remainder();
        if !rest.is_empty() {
            let $v = s.load_partial(rest);
            s.store_partial(rest, $f);
        }
    }};
}

/// Computes `x[i] = f(x[i], y[i])`: `zip!(s, x, y, |v, w| f(v, w))`.
macro_rules! zip {
    ($s:expr, $x:expr, $y:expr, |$v:ident, $w:ident| $f:expr) => {{
        let (s, x, y): (_, &mut [f32], &[f32]) = ($s, $x, $y);
        let mut chunks = x.chunks_exact_mut($crate::cpu::simd::lanes(s));
        let mut others = y.chunks_exact($crate::cpu::simd::lanes(s));
        for (chunk, other) in (&mut chunks).zip(&mut others) {
            let ($v, $w) = (s.load(chunk), s.load(other));
            s.store(chunk, $f);
        }
        let rest = chunks.into_remainder();
        if !rest.is_empty() {
            let ($v, $w) = (s.load_partial(rest), s.load_partial(others.remainder()));
            s.store_partial(rest, $f);
        }
    }};
}

/// Folds all vectors of `x`, the last one padded with `pad`: `fold!(s, x, pad, init, |acc, v| f(acc, v))`.
macro_rules! fold {
    ($s:expr, $x:expr, $pad:expr, $init:expr, |$acc:ident, $v:ident| $f:expr) => {{
        let (s, x): (_, &[f32]) = ($s, $x);
        let chunks = x.chunks_exact($crate::cpu::simd::lanes(s));
        let rest = chunks.remainder();
        let mut $acc = $init;
        for chunk in chunks {
            let $v = s.load(chunk);
            $acc = $f;
        }
        if !rest.is_empty() {
            let mut full = [$pad; $crate::cpu::simd::MAX_LANES];
            full.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            let $v = s.load(&full);
            $acc = $f;
        }
        $acc
    }};
}

pub(in crate::cpu) use {fold, map, zip};
