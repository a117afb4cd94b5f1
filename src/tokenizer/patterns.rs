//! Search for the longest text of a set that begins at each offset of a text.
//!
//! The automaton of Aho and Corasick ("Efficient string matching", 1975), built over the reversed texts of
//! the set. It reads a text from its end, and its state gives the longest text of the set that begins at the
//! current offset. A state stores only this one; shorter ones are found by links. So memory is linear in the
//! set and time in the text, regardless of common prefixes: a thousand tokens with a common prefix cost as
//! much as a thousand without.

use std::collections::HashMap;

/// Text of the set, as its index in the list that the set was made from.
pub(super) type Pattern = u32;

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Node of the longest proper suffix of this node's text that is also in the tree.
    fail: u32,
    /// Longest pattern that is a suffix of this node's text.
    longest: Option<Pattern>,
}

/// Links from a pattern to the patterns that are a prefix of it, from the longest down.
#[derive(Clone, Copy, Debug)]
struct Shorter {
    bytes: usize,
    /// Number of links from here to the shortest.
    depth: u32,
    next: Option<Pattern>,
    /// Link further down, so that a path of n links needs about log n of these jumps ("An applicative
    /// random-access stack", E. W. Myers, 1983).
    jump: Option<Pattern>,
}

/// Set of texts to search for. Of equal texts the first is found.
#[derive(Debug)]
pub(super) struct Patterns {
    nodes: Vec<Node>,
    edges: HashMap<(u32, u8), u32>,
    /// Edges of the root, where the search is most of the time.
    first: Box<[u32; 256]>,
    shorter: Vec<Shorter>,
}

impl Patterns {
    /// Creates a set; empty texts are never found.
    pub(super) fn new<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Patterns {
        let mut set = Patterns {
            nodes: vec![Node::default()],
            edges: HashMap::new(),
            first: Box::new([0; 256]),
            shorter: Vec::new(),
        };
        let mut ends = Vec::new();
        for text in texts {
            ends.push(set.add(text));
        }
        set.link_nodes();
        set.link_patterns(&ends);
        set
    }

    /// Adds a reversed text to the tree and returns its node.
    fn add(&mut self, text: &[u8]) -> u32 {
        let pattern = self.shorter.len() as Pattern;
        self.shorter.push(Shorter { bytes: text.len(), depth: 0, next: None, jump: None });
        let mut node = 0;
        for &byte in text.iter().rev() {
            let new = self.nodes.len() as u32;
            node = *self.edges.entry((node, byte)).or_insert(new);
            if node == new {
                self.nodes.push(Node::default());
            }
        }
        if node != 0 {
            self.nodes[node as usize].longest.get_or_insert(pattern);
        }
        node
    }

    /// Links the nodes in the order of their depth: a link leads to a node that is already linked.
    fn link_nodes(&mut self) {
        let mut depth = vec![0u32; self.nodes.len()];
        let mut edges: Vec<(u32, u8, u32)> = self.edges.iter().map(|(&(p, byte), &c)| (p, byte, c)).collect();
        // A node is created after its parent, so in this order a parent's depth is known.
        edges.sort_unstable_by_key(|(_, _, child)| *child);
        for &(parent, byte, child) in &edges {
            depth[child as usize] = depth[parent as usize] + 1;
            if parent == 0 {
                self.first[usize::from(byte)] = child;
            }
        }
        edges.sort_by_key(|(_, _, child)| depth[*child as usize]);
        for (parent, byte, child) in edges {
            if parent == 0 {
                continue;
            }
            let fail = self.step(self.nodes[parent as usize].fail, byte);
            let inherited = self.nodes[fail as usize].longest;
            let node = &mut self.nodes[child as usize];
            node.fail = fail;
            node.longest = node.longest.or(inherited);
        }
    }

    /// Links the patterns; `ends` are their nodes.
    fn link_patterns(&mut self, ends: &[u32]) {
        let mut order: Vec<usize> = (0..ends.len()).collect();
        order.sort_by_key(|&p| self.shorter[p].bytes);
        for p in order {
            let fail = self.nodes[ends[p] as usize].fail;
            let Some(next) = self.nodes[fail as usize].longest.filter(|_| ends[p] != 0) else { continue };
            let near = self.shorter[next as usize];
            let far = near.jump.map(|j| self.shorter[j as usize]);
            let equal = far.is_some_and(|far| {
                let furthest = far.jump.map_or(0, |j| self.shorter[j as usize].depth);
                far.jump.is_some() && near.depth - far.depth == far.depth - furthest
            });
            let jump = if equal { far.and_then(|far| far.jump) } else { Some(next) };
            let link = &mut self.shorter[p];
            (link.depth, link.next, link.jump) = (near.depth + 1, Some(next), jump);
        }
    }

    fn step(&self, mut node: u32, byte: u8) -> u32 {
        loop {
            if node == 0 {
                return self.first[usize::from(byte)];
            }
            match self.edges.get(&(node, byte)) {
                Some(next) => return *next,
                None => node = self.nodes[node as usize].fail,
            }
        }
    }

    /// Returns the number of bytes of a pattern.
    pub(super) fn bytes(&self, pattern: Pattern) -> usize {
        self.shorter[pattern as usize].bytes
    }

    /// Returns every offset of a text at which a pattern begins, with the longest such pattern; from the last
    /// offset to the first.
    pub(super) fn longest_at<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = (usize, Pattern)> + 'a {
        let mut node = 0;
        text.iter().enumerate().rev().filter_map(move |(at, &byte)| {
            node = self.step(node, byte);
            self.nodes[node as usize].longest.map(|pattern| (at, pattern))
        })
    }

    /// Returns the longest pattern of at most `limit` bytes among a pattern and the patterns that are a
    /// prefix of it.
    pub(super) fn within(&self, pattern: Pattern, limit: usize) -> Option<Pattern> {
        let mut at = pattern;
        loop {
            let link = &self.shorter[at as usize];
            if link.bytes <= limit {
                return Some(at);
            }
            at = link.jump.filter(|&j| self.bytes(j) > limit).or(link.next)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::rng::Rng;

    /// Returns a text of up to `most` of the first letters of the alphabet.
    fn text(rng: &mut Rng, letters: u64, most: u64) -> String {
        let count = rng.next_u64() % (most + 1);
        (0..count).map(|_| char::from(b'a' + (rng.next_u64() % letters) as u8)).collect()
    }

    #[test]
    fn the_longest_that_begins_and_fits() {
        let mut rng = Rng::new(1);
        for _ in 0..2000 {
            let count = rng.next_u64() % 12;
            let texts: Vec<String> = (0..count).map(|_| text(&mut rng, 2, 5)).collect();
            let (text, limit) = (text(&mut rng, 3, 24), rng.next_u64() as usize % 6);
            let set = Patterns::new(texts.iter().map(|t| t.as_bytes()));
            let begins = |at: usize, limit: usize| {
                let fits =
                    |t: &&String| !t.is_empty() && t.len() <= limit && text[at..].starts_with(t.as_str());
                let longest = texts.iter().filter(fits).max_by_key(|t| t.len())?;
                texts.iter().position(|t| t == longest)
            };
            let found: HashMap<usize, Pattern> = set.longest_at(text.as_bytes()).collect();
            for at in 0..text.len() {
                let longest = found.get(&at).copied();
                assert_eq!(
                    longest.map(|p| p as usize),
                    begins(at, usize::MAX),
                    "{texts:?} in {text} at {at}"
                );
                let short = longest.and_then(|p| set.within(p, limit));
                assert_eq!(short.map(|p| p as usize), begins(at, limit), "{texts:?} in {text} at {at}");
            }
        }
    }

    #[test]
    fn a_long_way_down_is_taken_in_few_steps() {
        let text = vec![b'a'; 5000];
        let set = Patterns::new((1..=5000).map(|n| &text[..n]));
        for limit in [1, 2, 2500, 4999, 5000] {
            assert_eq!(set.within(4999, limit), Some(limit as u32 - 1));
            let (mut at, mut steps) = (4999, 0);
            while set.bytes(at) > limit {
                let link = set.shorter[at as usize];
                at = link.jump.filter(|&j| set.bytes(j) > limit).or(link.next).unwrap();
                steps += 1;
            }
            assert!(steps < 40, "{steps} steps to {limit}");
        }
        assert_eq!(set.within(4999, 0), None);
    }
}
