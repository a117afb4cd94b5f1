//! Loops over rows: whole vectors, then what remains of the row through a padded one.

use super::Simd;

/// `x[i] = f(x[i])`.
#[inline(always)]
pub(in crate::cpu) fn map<S: Simd>(s: S, x: &mut [f32], f: impl Fn(S::F) -> S::F) {
    let mut chunks = x.chunks_exact_mut(S::LANES);
    for chunk in &mut chunks {
        let v = s.load(chunk);
        s.store(chunk, f(v));
    }
    let rest = chunks.into_remainder();
    if !rest.is_empty() {
        s.store_partial(rest, f(s.load_partial(rest)));
    }
}

/// `x[i] = f(x[i], y[i])`.
#[inline(always)]
pub(in crate::cpu) fn zip<S: Simd>(s: S, x: &mut [f32], y: &[f32], f: impl Fn(S::F, S::F) -> S::F) {
    let mut chunks = x.chunks_exact_mut(S::LANES);
    let mut others = y.chunks_exact(S::LANES);
    for (chunk, other) in (&mut chunks).zip(&mut others) {
        let v = f(s.load(chunk), s.load(other));
        s.store(chunk, v);
    }
    let rest = chunks.into_remainder();
    if !rest.is_empty() {
        s.store_partial(rest, f(s.load_partial(rest), s.load_partial(others.remainder())));
    }
}

/// Every vector of `x`, the last one filled up with `pad`.
#[inline(always)]
pub(in crate::cpu) fn fold<S: Simd, A: Copy>(s: S, x: &[f32], pad: f32, init: A, f: impl Fn(A, S::F) -> A) -> A {
    let mut chunks = x.chunks_exact(S::LANES);
    let mut acc = init;
    for chunk in &mut chunks {
        acc = f(acc, s.load(chunk));
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let mut full = [pad; super::MAX_LANES];
        full.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        acc = f(acc, s.load(&full));
    }
    acc
}
