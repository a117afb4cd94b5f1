//! Tokens that may still be chosen, in order of their ids, and the filters that remove some.
//!
//! No filter sorts the vocabulary. A filter finds the last remaining candidate of a ranking by selection in
//! linear time, and retains every candidate that is ranked no lower. So the candidates stay in order, and a
//! draw depends only on logits and seed.

use std::cmp::Ordering;

/// Token and its logit.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    token: u32,
    logit: f32,
}

/// Orders larger logits first and equal ones (0 and -0 too) by token: a total order, as no logit is NaN.
fn by_logit(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.token.cmp(&b.token))
}

/// Entry of a ranking: small keys first, equal ones by token.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    key: f64,
    token: u32,
    weight: f64,
}

impl Ranked {
    fn order(&self, other: &Ranked) -> Ordering {
        self.key.partial_cmp(&other.key).unwrap_or(Ordering::Equal).then(self.token.cmp(&other.token))
    }
}

/// Candidates, with memory that is reused from token to token.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    list: Vec<Candidate>,
    ranking: Vec<Ranked>,
}

/// Returns the last entry of the smallest prefix of a ranking whose weights sum to at least `wanted`. It
/// repeatedly halves the part of the ranking that contains this entry.
fn last_of_sum(ranking: &mut [Ranked], wanted: f64) -> Option<Ranked> {
    let (mut part, mut sum) = (ranking, 0.0);
    while part.len() > 1 {
        let middle = part.len() / 2;
        part.select_nth_unstable_by(middle, Ranked::order);
        let (front, back) = part.split_at_mut(middle);
        let front_sum: f64 = front.iter().map(|r| r.weight).sum();
        if sum + front_sum >= wanted {
            part = front;
        } else {
            sum += front_sum;
            part = back;
        }
    }
    part.first().copied()
}

impl Candidates {
    /// Sets all tokens, in order of their ids.
    pub(super) fn fill(&mut self, logits: &[f32]) {
        self.list.clear();
        self.list.extend((0u32..).zip(logits).map(|(token, &logit)| Candidate { token, logit }));
    }

    /// Sets some of the tokens, given in any order.
    pub(super) fn fill_with(&mut self, tokens: &[u32], logits: &[f32]) {
        self.list.clear();
        self.list.extend(tokens.iter().zip(logits).map(|(&token, &logit)| Candidate { token, logit }));
        self.list.sort_unstable_by_key(|c| c.token);
    }

    /// Changes the logit of a token. All tokens must still be candidates. An infinite logit stays infinite.
    pub(super) fn change(&mut self, token: u32, f: impl Fn(f32) -> f32) {
        if let Some(c) = self.list.get_mut(token as usize)
            && c.logit.is_finite()
        {
            c.logit = f(c.logit).clamp(f32::MIN, f32::MAX);
        }
    }

    /// Returns the token of the largest logit.
    pub(super) fn largest(&self) -> u32 {
        self.list.iter().min_by(|a, b| by_logit(a, b)).map_or(0, |c| c.token)
    }

    fn max(&self) -> f32 {
        self.list.iter().fold(f32::NEG_INFINITY, |m, c| m.max(c.logit))
    }

    /// Returns the largest logit and the sum of exp(logit - largest), from which probabilities are computed.
    fn scale(&self) -> (f64, f64) {
        let max = f64::from(self.max());
        (max, self.list.iter().map(|c| weight(c, max)).sum())
    }

    /// Ranks the candidates by a key.
    fn rank(&mut self, key: impl Fn(&Candidate) -> f64, weight: impl Fn(&Candidate) -> f64) {
        self.ranking.clear();
        let ranked = |c: &Candidate| Ranked { key: key(c), token: c.token, weight: weight(c) };
        self.ranking.extend(self.list.iter().map(ranked));
    }

    /// Retains the candidates ranked no lower than `last`.
    fn retain_ranked(&mut self, last: Option<Ranked>, key: impl Fn(&Candidate) -> f64) {
        if let Some(last) = last {
            let rank = |c: &Candidate| Ranked { key: key(c), token: c.token, weight: 0.0 };
            self.list.retain(|c| rank(c).order(&last).is_le());
        }
    }

    pub(super) fn top_k(&mut self, k: usize) {
        if k > 0 && k < self.list.len() {
            self.rank(falling, |_| 0.0);
            let last = *self.ranking.select_nth_unstable_by(k - 1, Ranked::order).1;
            self.retain_ranked(Some(last), falling);
        }
    }

    pub(super) fn top_p(&mut self, p: f32) {
        if p < 1.0 {
            let max = f64::from(self.max());
            self.rank(falling, |c| weight(c, max));
            let sum: f64 = self.ranking.iter().map(|r| r.weight).sum();
            let last = last_of_sum(&mut self.ranking, f64::from(p) * sum);
            self.retain_ranked(last, falling);
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
        let distance = |c: &Candidate| (surprise(c) - entropy).abs();
        self.rank(distance, |c| weight(c, max));
        let last = last_of_sum(&mut self.ranking, f64::from(p) * sum);
        self.retain_ranked(last, distance);
    }

    pub(super) fn temperature(&mut self, temperature: f32) {
        // The largest logit becomes 0, so that nothing overflows however small the temperature is.
        let max = self.max();
        for c in &mut self.list {
            c.logit = ((f64::from(c.logit) - f64::from(max)) / f64::from(temperature)) as f32;
        }
    }

    /// Returns the candidate at the fraction `unit` (0 to 1) of the cumulative probability.
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

/// Returns the ranking key for descending logits.
fn falling(c: &Candidate) -> f64 {
    -f64::from(c.logit)
}

fn weight(c: &Candidate, max: f64) -> f64 {
    (f64::from(c.logit) - max).exp()
}
