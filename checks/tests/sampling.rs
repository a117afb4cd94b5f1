//! Sampling against closed forms: frequencies, the sets that filters retain, penalties by their formulas.

use diptych::sampling::{Sampler, SamplerOptions};
use diptych::{Error, greedy};
use proptest::prelude::*;
use std::collections::BTreeSet;

const DRAWS: usize = 20_000;

fn sampling() -> SamplerOptions {
    SamplerOptions::default().with_temperature(1.0).with_seed(20_240_607)
}

fn logits(probabilities: &[f64]) -> Vec<f32> {
    // A common offset must have no effect.
    probabilities.iter().map(|p| (p.ln() + 3.0) as f32).collect()
}

fn counts(options: SamplerOptions, logits: &[f32]) -> Vec<usize> {
    let mut sampler = Sampler::new(options).unwrap();
    let mut counts = vec![0; logits.len()];
    for _ in 0..DRAWS {
        counts[sampler.sample(logits).unwrap() as usize] += 1;
    }
    counts
}

/// Returns the tokens drawn at least once: with probabilities of 1 % or more, none is missed in 20000 draws.
fn kept(options: SamplerOptions, probabilities: &[f64]) -> BTreeSet<usize> {
    let counts = counts(options, &logits(probabilities));
    (0..counts.len()).filter(|&i| counts[i] > 0).collect()
}

/// Returns Pearson's statistic against probabilities that need not sum to 1.
fn chi_square(counts: &[usize], weights: &[f64]) -> f64 {
    let (n, sum) = (counts.iter().sum::<usize>() as f64, weights.iter().sum::<f64>());
    let term = |(&c, &w): (&usize, &f64)| (c as f64 - n * w / sum).powi(2) / (n * w / sum);
    counts.iter().zip(weights).map(term).sum()
}

/// Quantile of chi-square with 4 degrees of freedom, exceeded by one seed in a thousand.
const CHI_SQUARE_4: f64 = 18.47;

#[test]
fn frequencies_follow_the_probabilities() {
    let p = [0.4, 0.25, 0.2, 0.1, 0.05];
    let found = chi_square(&counts(sampling(), &logits(&p)), &p);
    assert!(found < CHI_SQUARE_4, "{found}");
    // A wrong distribution would be detected.
    assert!(chi_square(&counts(sampling(), &logits(&p)), &[0.2; 5]) > 100.0);
}

#[test]
fn temperature_raises_probabilities_to_its_inverse() {
    let p: [f64; 5] = [0.4, 0.25, 0.2, 0.1, 0.05];
    for temperature in [0.5f32, 1.7, 4.0] {
        let options = sampling().with_temperature(temperature);
        let want: Vec<f64> = p.iter().map(|p| p.powf(1.0 / f64::from(temperature))).collect();
        let found = chi_square(&counts(options, &logits(&p)), &want);
        assert!(found < CHI_SQUARE_4, "temperature {temperature}: {found}");
    }
    // The smallest temperatures act as greedy sampling and do not overflow.
    let options = sampling().with_temperature(f32::MIN_POSITIVE);
    assert_eq!(kept(options, &p), BTreeSet::from([0]));
}

#[test]
fn top_k_keeps_the_k_largest() {
    let p = [0.1, 0.3, 0.05, 0.25, 0.1, 0.2];
    for (top_k, want) in [
        (1, vec![1]),
        (2, vec![1, 3]),
        (4, vec![0, 1, 3, 5]),
        (6, vec![0, 1, 2, 3, 4, 5]),
        (0, vec![0, 1, 2, 3, 4, 5]),
    ] {
        let found = kept(sampling().with_top_k(top_k), &p);
        assert_eq!(found, BTreeSet::from_iter(want), "top_k {top_k}");
    }
}

#[test]
fn top_p_keeps_the_smallest_set_that_reaches_p() {
    let p = [0.1, 0.4, 0.05, 0.25, 0.2];
    for (top_p, want) in [
        (0.01, vec![1]),
        (0.39, vec![1]),
        (0.41, vec![1, 3]),
        (0.84, vec![1, 3, 4]),
        (0.86, vec![0, 1, 3, 4]),
    ] {
        let found = kept(sampling().with_top_p(top_p), &p);
        assert_eq!(found, BTreeSet::from_iter(want), "top_p {top_p}");
    }
}

#[test]
fn top_p_goes_on_beyond_its_first_run() {
    // Equal probabilities: half of them are needed, many more than are sorted at first. Among equals the
    // first are retained: with 39 draws for each, none is missed.
    let flat = vec![0.5f32; 1024];
    let counts = counts(sampling().with_top_p(0.5), &flat);
    let (first, rest) = counts.split_at(512);
    assert!(rest.iter().all(|&c| c == 0) && first.iter().all(|&c| c > 0));
}

#[test]
fn min_p_keeps_a_share_of_the_largest() {
    let p = [0.4, 0.3, 0.15, 0.1, 0.05];
    for (min_p, want) in
        [(0.1, vec![0, 1, 2, 3, 4]), (0.2, vec![0, 1, 2, 3]), (0.3, vec![0, 1, 2]), (1.0, vec![0])]
    {
        let found = kept(sampling().with_min_p(min_p), &p);
        assert_eq!(found, BTreeSet::from_iter(want), "min_p {min_p}");
    }
}

#[test]
fn typical_keeps_what_is_nearest_to_the_entropy() {
    // Entropy 1.290; distances of the surprise from it: 0.597 (p = 0.5), 0.320 (0.2), 1.706 (0.05).
    let p = [0.5, 0.2, 0.2, 0.05, 0.05];
    for (typical_p, want) in [
        (0.1, vec![1]),
        (0.3, vec![1, 2]),
        (0.6, vec![0, 1, 2]),
        (0.92, vec![0, 1, 2, 3]),
        (1.0, vec![0, 1, 2, 3, 4]),
    ] {
        let found = kept(sampling().with_typical_p(typical_p), &p);
        assert_eq!(found, BTreeSet::from_iter(want), "typical_p {typical_p}");
    }
}

#[test]
fn steps_follow_one_another_in_the_documented_order() {
    // top-p sees the result of top-k: 0.4 of 0.7 is more than half.
    let p = [0.4, 0.3, 0.2, 0.1];
    let options = sampling().with_top_k(2).with_top_p(0.5);
    assert_eq!(kept(options, &p), BTreeSet::from([0]));
    // Temperature is last: it does not change the filters' result.
    let options = sampling().with_top_p(0.65).with_temperature(50.0);
    assert_eq!(kept(options, &p), BTreeSet::from([0, 1]));
    // Typical comes before top-p: here it removes the largest, so that only the next two remain.
    let p = [0.5, 0.2, 0.2, 0.05, 0.05];
    let options = sampling().with_typical_p(0.3).with_top_p(0.9);
    assert_eq!(kept(options, &p), BTreeSet::from([1, 2]));
    // Penalties come first, also for greedy sampling.
    let mut sampler = Sampler::new(SamplerOptions::default().with_presence_penalty(2.0)).unwrap();
    sampler.accept(0);
    assert_eq!(sampler.sample(&[1.0, 0.0]).unwrap(), 1);
}

/// Asserts that a logit is `want` after the penalties: a rival just below loses, one just above wins.
fn assert_penalised(options: SamplerOptions, accepted: &[u32], logit: f32, want: f32) {
    let mut sampler = Sampler::new(options.with_temperature(0.0)).unwrap();
    accepted.iter().for_each(|&t| sampler.accept(t));
    assert_eq!(sampler.sample(&[logit, want - 1e-4]).unwrap(), 0, "{logit} became less than {want}");
    assert_eq!(sampler.sample(&[logit, want + 1e-4]).unwrap(), 1, "{logit} became more than {want}");
}

#[test]
fn penalties_follow_their_formulas() {
    let none = SamplerOptions::default();
    let repetition = none.clone().with_repetition_penalty(1.25);
    assert_penalised(repetition.clone(), &[0], 2.0, 1.6);
    assert_penalised(repetition.clone(), &[0, 0, 0], 2.0, 1.6);
    assert_penalised(repetition.clone(), &[0], -2.0, -2.5);
    assert_penalised(repetition, &[7], 2.0, 2.0);
    let frequency = none.clone().with_frequency_penalty(0.5);
    assert_penalised(frequency.clone(), &[0, 5, 0, 0], 2.0, 0.5);
    assert_penalised(frequency, &[5], 2.0, 2.0);
    let presence = none.clone().with_presence_penalty(0.75);
    assert_penalised(presence, &[0, 0], 2.0, 1.25);
    let rewards = none.with_presence_penalty(-0.75);
    assert_penalised(rewards.clone(), &[0, 0], 2.0, 2.75);
    let all = rewards.with_repetition_penalty(2.0).with_frequency_penalty(0.25).with_presence_penalty(1.0);
    assert_penalised(all, &[0, 0], 3.0, 1.5 - 0.5 - 1.0);
}

#[test]
fn the_window_forgets() {
    let options = SamplerOptions::default().with_frequency_penalty(1.0).with_penalty_window(3);
    assert_penalised(options.clone(), &[0, 0, 0, 0, 0], 5.0, 2.0);
    assert_penalised(options.clone(), &[0, 0, 7, 7], 5.0, 4.0);
    assert_penalised(options.clone(), &[0, 7, 7, 7], 5.0, 5.0);
    assert_penalised(options.clone().with_penalty_window(0), &[0, 0], 5.0, 5.0);
    assert_penalised(options.with_penalty_window(usize::MAX), &[0; 100], 5.0, -95.0);
}

#[test]
fn a_token_outside_the_vocabulary_is_no_penalty() {
    let options = SamplerOptions::default().with_presence_penalty(9.0);
    assert_penalised(options, &[u32::MAX], 1.0, 1.0);
}

fn tokens(sampler: &mut Sampler, n: usize) -> Vec<u32> {
    let logits: Vec<f32> = (0..100).map(|i| (i as f32 * 0.7).sin()).collect();
    (0..n).map(|_| sampler.sample(&logits).unwrap()).collect()
}

#[test]
fn a_seed_gives_the_same_tokens_always() {
    let options = sampling().with_seed(42).with_top_k(10);
    let mut sampler = Sampler::new(options.clone()).unwrap();
    let first = tokens(&mut sampler, 50);
    assert_eq!(tokens(&mut Sampler::new(options.clone()).unwrap(), 50), first);
    assert_ne!(tokens(&mut sampler, 50), first);
    sampler.reset();
    assert_eq!(tokens(&mut sampler, 50), first);
    assert_ne!(tokens(&mut Sampler::new(options.with_seed(43)).unwrap(), 50), first);
    // Pinned across releases.
    assert_eq!(tokens(&mut Sampler::new(sampling().with_seed(42)).unwrap(), 8), PINNED);
}

const PINNED: [u32; 8] = [81, 30, 97, 67, 76, 57, 11, 58];

#[test]
fn greedy_takes_the_first_of_the_largest() {
    let mut sampler = Sampler::new(SamplerOptions::default()).unwrap();
    for row in [&[1.0, 3.0, 3.0, 2.0][..], &[-0.0, 0.0], &[f32::NEG_INFINITY, -1e30], &[f32::MAX, f32::MIN]] {
        assert_eq!(sampler.sample(row).unwrap(), greedy(row).unwrap(), "{row:?}");
    }
}

#[test]
fn minus_infinity_is_never_chosen() {
    let out = f32::NEG_INFINITY;
    let row = [out, 0.0, out, -50.0];
    for options in [
        sampling().with_typical_p(0.999),
        sampling().with_top_p(0.999_999).with_temperature(100.0),
        sampling().with_min_p(1e-30).with_temperature(1e30),
        sampling().with_top_k(3).with_temperature(f32::MAX),
        sampling().with_frequency_penalty(-3.0).with_temperature(1e30),
    ] {
        let mut sampler = Sampler::new(options.clone()).unwrap();
        sampler.accept(0);
        for _ in 0..1000 {
            let token = sampler.sample(&row).unwrap();
            assert!(token == 1 || token == 3, "{options:?} chose {token}");
        }
    }
}

#[test]
fn bad_logits_are_errors_and_change_nothing() {
    let mut sampler = Sampler::new(sampling()).unwrap();
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for (row, says) in [
        (&[][..], "logits: 0 of them; expected one for each token"),
        (&[0.0, nan], "logit of token 1: NaN; expected a finite number, or minus infinity"),
        (&[inf, 0.0], "logit of token 0: inf; expected a finite number, or minus infinity"),
        (&[-inf, -inf], "logits: all are minus infinity; expected a token that may be chosen"),
    ] {
        let error = sampler.sample(row).unwrap_err();
        assert!(matches!(&error, Error::InvalidArgument { .. }) && error.to_string() == says, "{error}");
    }
    assert_eq!(tokens(&mut sampler, 20), tokens(&mut Sampler::new(sampling()).unwrap(), 20));
}

#[test]
fn options_out_of_range_are_named() {
    let o = SamplerOptions::default;
    for (name, options) in [
        ("temperature", o().with_temperature(-0.1)),
        ("temperature", o().with_temperature(f32::INFINITY)),
        ("top_p", o().with_top_p(0.0)),
        ("top_p", o().with_top_p(f32::NAN)),
        ("min_p", o().with_min_p(1.1)),
        ("typical_p", o().with_typical_p(1.5)),
        ("repetition_penalty", o().with_repetition_penalty(0.0)),
        ("frequency_penalty", o().with_frequency_penalty(f32::NAN)),
        ("presence_penalty", o().with_presence_penalty(f32::NEG_INFINITY)),
    ] {
        let error = Sampler::new(options).unwrap_err();
        assert!(matches!(&error, Error::InvalidArgument { what, .. } if what == name), "{name}: {error}");
    }
}

proptest! {
    #[test]
    fn whatever_the_logits_are(
        row in proptest::collection::vec(any::<f32>(), 0..300),
        tidy in any::<bool>(),
        (top_k, top_p, min_p, typical_p) in (0usize..400, 0.001f32..=1.0, 0.0f32..=1.0, 0.001f32..=1.0),
        (temperature, penalty) in (0.0f32..1e3, 0.01f32..1e3),
        accepted in proptest::collection::vec(0u32..300, 0..9),
    ) {
        let row: Vec<f32> = if tidy { row.into_iter().filter(|x| *x < f32::INFINITY).collect() } else { row };
        let options = SamplerOptions::default().with_temperature(temperature).with_top_k(top_k).with_top_p(top_p).with_min_p(min_p).with_typical_p(typical_p).with_repetition_penalty(penalty).with_frequency_penalty(penalty).with_presence_penalty(-penalty);
        let mut sampler = Sampler::new(options).unwrap();
        accepted.iter().for_each(|&t| sampler.accept(t));
        let sound = row.iter().all(|x| *x < f32::INFINITY) && row.iter().any(|x| x.is_finite());
        match sampler.sample(&row) {
            Ok(token) => prop_assert!(sound && row[token as usize].is_finite()),
            Err(_) => prop_assert!(!sound),
        }
    }
}
