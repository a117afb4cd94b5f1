//! Cuts of a product with many matrices into products that fit a grid: a device may allow as few as 65535
//! work-groups in a dimension.

use ggml_core::kernel::MulMatParams;
use std::ops::Range;

/// Returns the products of at most `most` matrices each that together are a product.
pub(super) fn batches(p: &MulMatParams, most: u32) -> Vec<MulMatParams> {
    if u64::from(p.ne2) * u64::from(p.ne3) <= most.into() {
        return vec![*p];
    }
    let p = merged(p);
    let inner = cuts(p.ne2, p.r2, most);
    let outer = cuts(p.ne3, p.r3, if inner.len() > 1 { 1 } else { most / p.ne2.max(1) });
    let part = |i3: &Range<u32>, i2: &Range<u32>| MulMatParams {
        ne2: i2.end - i2.start,
        ne3: i3.end - i3.start,
        off0: p.off0 + i2.start / p.r2 * p.nb0[1] + i3.start / p.r3 * p.nb0[2],
        off1: p.off1 + i2.start * p.nb1[1] + i3.start * p.nb1[2],
        offd: p.offd + i2.start * p.nbd[1] + i3.start * p.nbd[2],
        ..p
    };
    outer.iter().flat_map(|i3| inner.iter().map(move |i2| part(i3, i2))).collect()
}

/// Returns the same product with its fourth dimension as a part of the third, if strides allow that.
pub(super) fn merged(p: &MulMatParams) -> MulMatParams {
    let mut p = *p;
    if p.ne2 == 1 {
        (p.ne2, p.ne3, p.r2, p.r3) = (p.ne3, p.ne2, p.r3, p.r2);
        for nb in [&mut p.nb0, &mut p.nb1, &mut p.nbd] {
            nb.swap(1, 2);
        }
    }
    let continues = |nb: &[u32; 3], count: u32| nb[1].checked_mul(count) == Some(nb[2]);
    let one = p.r2 == p.ne2 && p.r3 == p.ne3;
    let same = p.r3 == 1 && p.ne2 % p.r2.max(1) == 0 && continues(&p.nb0, p.ne2 / p.r2.max(1));
    if let Some(all) = p.ne2.checked_mul(p.ne3)
        && (one || same)
        && continues(&p.nb1, p.ne2)
        && continues(&p.nbd, p.ne2)
    {
        (p.ne2, p.r2) = (all, if one { all } else { p.r2 });
        (p.ne3, p.r3) = (1, 1);
    }
    p
}

/// Cuts `count` indices into ranges of at most `most`. The quotient of an index and `ratio` is the same
/// within a range as from its start, because a range either starts at a multiple of `ratio` or has a single
/// quotient.
fn cuts(count: u32, ratio: u32, most: u32) -> Vec<Range<u32>> {
    let (ratio, most) = (ratio.max(1), most.max(1));
    let (span, step) = if ratio <= most { (count, most / ratio * ratio) } else { (ratio, most) };
    let spans =
        (0..count).step_by(span.max(1) as usize).map(|start| start..count.min(start.saturating_add(span)));
    spans
        .flat_map(|span| {
            let end = span.end;
            span.step_by(step as usize).map(move |start| start..end.min(start.saturating_add(step)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the offsets of each matrix of a product.
    fn matrices(p: &MulMatParams) -> Vec<[u32; 3]> {
        let of = |i2: u32, i3: u32| {
            [
                p.off0 + i2 / p.r2 * p.nb0[1] + i3 / p.r3 * p.nb0[2],
                p.off1 + i2 * p.nb1[1] + i3 * p.nb1[2],
                p.offd + i2 * p.nbd[1] + i3 * p.nbd[2],
            ]
        };
        (0..p.ne3).flat_map(|i3| (0..p.ne2).map(move |i2| of(i2, i3))).collect()
    }

    #[test]
    fn parts_have_the_matrices_of_the_whole() {
        for ne in [[12, 1], [1, 12], [12, 5], [5, 12], [6, 8]] {
            for r in [[1, 1], [2, 1], [3, 1], [1, 2], [12, 1], [12, 5], [5, 12]] {
                if ne[0] % r[0] != 0 || ne[1] % r[1] != 0 {
                    continue;
                }
                for adjacent in [true, false] {
                    let of = |ne: [u32; 2]| [1, 2, if adjacent { 2 * ne[0] } else { 100 }];
                    let whole = MulMatParams {
                        ne2: ne[0],
                        ne3: ne[1],
                        r2: r[0],
                        r3: r[1],
                        nb0: of([ne[0] / r[0], 0]),
                        nb1: of(ne),
                        nbd: of(ne),
                        off1: 7,
                        ..MulMatParams::default()
                    };
                    let sorted = |parts: &[MulMatParams]| {
                        let mut all: Vec<_> = parts.iter().flat_map(matrices).collect();
                        all.sort();
                        all
                    };
                    for most in [1, 2, 4, 5, 7, 12, 100] {
                        let parts = batches(&whole, most);
                        assert!(parts.iter().all(|p| p.ne2 * p.ne3 <= most), "{parts:?}");
                        assert_eq!(sorted(&parts), sorted(&[whole]), "{ne:?} {r:?} {adjacent} {most}");
                    }
                }
            }
        }
    }
}
