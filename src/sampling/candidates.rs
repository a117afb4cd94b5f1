//! The tokens that are still in question, and the steps that take some away.
//!
//! No step sorts the vocabulary. What has to be in order is a beginning of the sorted list, which is found by
//! selecting the k largest in linear time, sorting these, and doubling k while that was not enough.

use std::cmp::Ordering;

/// A token and its logit.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    token: u32,
    logit: f32,
}

/// Larger logits first, of equals (0 and -0 too) the first token: a total order, as no logit is NaN.
fn by_logit(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.token.cmp(&b.token))
}

/// How many are put in order at first.
const FIRST_RUN: usize = 128;

/// The candidates, with room that is kept from token to token.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    list: Vec<Candidate>,
    /// Surprise of a candidate minus the entropy, beside the candidate.
    typical: Vec<(f64, Candidate)>,
}

/// Puts the `run` first of a list in front, in order.
fn sort_front<T>(list: &mut [T], run: usize, order: impl Fn(&T, &T) -> Ordering) {
    if run < list.len() {
        list.select_nth_unstable_by(run, &order);
    }
    let run = run.min(list.len());
    list[..run].sort_unstable_by(&order);
}

/// Puts the smallest beginning of the sorted list in front whose weights sum up to at least `wanted`; its length.
fn front_of_sum<T>(
    list: &mut [T],
    wanted: f64,
    weight: impl Fn(&T) -> f64,
    order: impl Fn(&T, &T) -> Ordering,
) -> usize {
    let (mut done, mut sum, mut run) = (0, 0.0, FIRST_RUN);
    while done < list.len() {
        sort_front(&mut list[done..], run, &order);
        let end = run.saturating_add(done).min(list.len());
        for (i, item) in list[done..end].iter().enumerate() {
            sum += weight(item);
            if sum >= wanted {
                return done + i + 1;
            }
        }
        done = end;
        run *= 2;
    }
    list.len()
}

impl Candidates {
    /// All tokens, in order of their ids.
    pub(super) fn fill(&mut self, logits: &[f32]) {
        self.list.clear();
        self.list.extend((0u32..).zip(logits).map(|(token, &logit)| Candidate { token, logit }));
    }

    /// Changes the logit of a token, while all of them are there. A logit stays out of question once it is infinite.
    pub(super) fn change(&mut self, token: u32, f: impl Fn(f32) -> f32) {
        if let Some(c) = self.list.get_mut(token as usize)
            && c.logit.is_finite()
        {
            c.logit = f(c.logit).clamp(f32::MIN, f32::MAX);
        }
    }

    /// The token of the largest logit.
    pub(super) fn largest(&self) -> u32 {
        self.list.iter().min_by(|a, b| by_logit(a, b)).map_or(0, |c| c.token)
    }

    fn max(&self) -> f32 {
        self.list.iter().fold(f32::NEG_INFINITY, |m, c| m.max(c.logit))
    }

    /// The largest logit and the sum of exp(logit - largest): what probabilities are made of.
    fn scale(&self) -> (f64, f64) {
        let max = f64::from(self.max());
        (max, self.list.iter().map(|c| weight(c, max)).sum())
    }

    pub(super) fn top_k(&mut self, k: usize) {
        if k > 0 && k < self.list.len() {
            self.list.select_nth_unstable_by(k, by_logit);
            self.list.truncate(k);
        }
    }

    pub(super) fn top_p(&mut self, p: f32) {
        if p < 1.0 {
            let (max, sum) = self.scale();
            let wanted = f64::from(p) * sum;
            let kept = front_of_sum(&mut self.list, wanted, |c| weight(c, max), by_logit);
            self.list.truncate(kept);
        }
    }

    pub(super) fn min_p(&mut self, p: f32) {
        if p > 0.0 {
            // p_i >= p * p_max is the same as logit_i >= logit_max + ln p.
            let least = f64::from(self.max()) + f64::from(p).ln();
            self.list.retain(|c| f64::from(c.logit) >= least);
        }
    }

    pub(super) fn typical(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        let (max, sum) = self.scale();
        let log_sum = sum.ln() + max;
        let surprise = |c: &Candidate| log_sum - f64::from(c.logit);
        let terms = self.list.iter().map(|c| (weight(c, max), surprise(c)));
        // A token of probability 0 adds nothing, though its surprise may be infinite.
        let entropy: f64 = terms.filter(|t| t.0 > 0.0).map(|(w, s)| w / sum * s).sum();
        self.typical.clear();
        self.typical.extend(self.list.iter().map(|c| ((surprise(c) - entropy).abs(), *c)));
        let order =
            |a: &(f64, Candidate), b: &(f64, Candidate)| a.0.total_cmp(&b.0).then(by_logit(&a.1, &b.1));
        let kept = front_of_sum(&mut self.typical, f64::from(p) * sum, |(_, c)| weight(c, max), order);
        self.list.clear();
        self.list.extend(self.typical[..kept].iter().map(|(_, c)| *c));
    }

    pub(super) fn temperature(&mut self, temperature: f32) {
        // The largest goes to 0, so that nothing overflows however small the temperature is.
        let max = self.max();
        for c in &mut self.list {
            c.logit = ((f64::from(c.logit) - f64::from(max)) / f64::from(temperature)) as f32;
        }
    }

    /// The candidate in whose share of all probability `unit` (0 to 1) falls.
    pub(super) fn draw(&self, unit: f64) -> u32 {
        let (max, sum) = self.scale();
        let mut left = unit * sum;
        let mut last = None;
        for c in &self.list {
            let w = weight(c, max);
            if w > 0.0 {
                last = Some(c.token);
                if left < w {
                    break;
                }
                left -= w;
            }
        }
        last.unwrap_or(0)
    }
}

fn weight(c: &Candidate, max: f64) -> f64 {
    (f64::from(c.logit) - max).exp()
}
