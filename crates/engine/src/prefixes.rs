//! Prefixes that outlive their slots: which are kept, which one a request can use, which go first.
//!
//! A prefix is a path of sections, each continuing the one before; texts with a common beginning
//! share the sections of it. What a section holds is on a [`Shelf`]; here is only known what there
//! is. When there is more than the budget allows, the least recently used section goes that no
//! other continues.

use std::collections::HashMap;
use std::sync::Arc;

use lapidary_core::{Backend, KvCache, Section, SlotId, TokenId};

use crate::{Label, SectionKey, Shelf};

/// What saved prefixes may take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Budget {
    /// Bytes of all sections together.
    pub bytes: u64,
    /// Fewer tokens than this are cheaper to read than to keep.
    pub least: u32,
}

/// What saved prefixes have done so far, and what they hold.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PrefixStats {
    /// Sequences that began with a saved prefix.
    pub hits: u64,
    /// Tokens of those prefixes.
    pub tokens: u64,
    /// Sections saved.
    pub saved: u64,
    /// Sections given up for want of room.
    pub evicted: u64,
    /// Sections that the shelf refused or lost, or that the cache could not use.
    pub lost: u64,
    /// Sections held.
    pub held: usize,
    /// Bytes that they take.
    pub bytes: u64,
}

/// The saved prefixes of one model and one cache regime.
pub struct Prefixes {
    /// `None` keeps nothing.
    shelf: Option<Box<dyn Shelf>>,
    budget: Budget,
    nodes: HashMap<SectionKey, Node>,
    /// Sections that begin a sequence.
    roots: Vec<SectionKey>,
    /// How often a prefix was used or saved: the clock of what is recent.
    uses: u64,
    stats: PrefixStats,
}

struct Node {
    label: Label,
    children: Vec<SectionKey>,
    used: u64,
}

impl Node {
    fn end(&self) -> usize {
        self.label.from as usize + self.label.tokens.len()
    }
}

/// Sections one after the other, and how many tokens of a sequence they are good for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Path {
    keys: Vec<SectionKey>,
    len: usize,
}

impl Prefixes {
    /// Keeps nothing.
    pub fn none() -> Self {
        let budget = Budget { bytes: 0, least: u32::MAX };
        Self::with(None, budget)
    }

    /// Keeps what the shelf holds already, as far as it fits the budget, and what is saved later.
    pub fn new(mut shelf: Box<dyn Shelf>, budget: Budget) -> Self {
        let mut labels: Vec<_> = (1..).zip(shelf.labels()).collect();
        let mut prefixes = Self::with(Some(shelf), budget);
        prefixes.uses = labels.len() as u64;
        // A section is of use only after those that it continues.
        loop {
            let (known, unknown): (Vec<_>, Vec<_>) =
                labels.into_iter().partition(|(_, label)| prefixes.continues(label));
            if known.is_empty() {
                unknown.into_iter().for_each(|(_, label)| prefixes.lose(label.key));
                break;
            }
            known.into_iter().for_each(|(used, label)| prefixes.insert(label, used));
            labels = unknown;
        }
        prefixes.evict();
        prefixes
    }

    fn with(shelf: Option<Box<dyn Shelf>>, budget: Budget) -> Self {
        let stats = PrefixStats::default();
        Self { shelf, budget, nodes: HashMap::new(), roots: Vec::new(), uses: 0, stats }
    }

    /// What was done so far.
    pub fn stats(&self) -> PrefixStats {
        PrefixStats { held: self.nodes.len(), ..self.stats }
    }

    /// How many of these tokens a slot could be given.
    pub fn longest(&self, tokens: &[TokenId]) -> u32 {
        self.find(tokens).len as u32
    }

    /// Gives a slot the longest saved prefix of these tokens that has more than `least` of them,
    /// and returns its length; zero, with the cache unchanged, if there is none.
    pub fn restore<B: Backend>(
        &mut self,
        tokens: &[TokenId],
        least: u32,
        ops: &B,
        cache: &mut dyn KvCache<B>,
        slot: SlotId,
    ) -> u32 {
        loop {
            let path = self.find(tokens);
            if path.len <= least as usize {
                return 0;
            }
            let Some(sections) = self.fetch(&path) else { continue };
            let sections: Vec<_> = sections.iter().map(|section| &**section).collect();
            if cache.restore(ops, slot, &sections, path.len as u32) {
                self.touch(&path);
                self.stats.hits += 1;
                self.stats.tokens += path.len as u64;
                return path.len as u32;
            }
            // It will not fit the next time either.
            self.give_up(path.keys[path.keys.len() - 1]);
        }
    }

    /// Keeps the slot's entries, which are those of these tokens, as far as they are not kept.
    pub fn save<B: Backend>(
        &mut self,
        tokens: &[TokenId],
        ops: &B,
        cache: &dyn KvCache<B>,
        slot: SlotId,
    ) {
        let known = self.whole_sections(tokens);
        self.touch(&known);
        let key = SectionKey::of(tokens);
        let fresh = tokens.len() - known.len;
        let worthwhile = fresh >= self.budget.least.max(1) as usize;
        if self.shelf.is_none() || !worthwhile || self.nodes.contains_key(&key) {
            return;
        }
        let Some(section) = cache.save(ops, slot, known.len as u32..tokens.len() as u32) else {
            return;
        };
        let label = Label {
            key,
            parent: known.keys.last().copied(),
            tokens: tokens[known.len..].to_vec(),
            from: section.from,
            floor: section.floor,
            bytes: section.bytes(),
        };
        if label.bytes > self.budget.bytes {
            return;
        }
        if self.shelf.as_mut().is_some_and(|shelf| shelf.put(&label, section)) {
            self.uses += 1;
            self.insert(label, self.uses);
            self.stats.saved += 1;
            self.evict();
        } else {
            self.stats.lost += 1;
        }
    }

    /// The longest prefix of these tokens that a sequence can go on from.
    fn find(&self, tokens: &[TokenId]) -> Path {
        self.search(tokens, |node, len| len >= node.label.floor as usize)
    }

    /// The longest path of whole sections among these tokens.
    fn whole_sections(&self, tokens: &[TokenId]) -> Path {
        self.search(tokens, |node, len| len == node.end())
    }

    /// The longest path that may end in its last section at the length at which it parts from the
    /// tokens.
    fn search(&self, tokens: &[TokenId], may_end: impl Fn(&Node, usize) -> bool) -> Path {
        let mut best = Path::default();
        let mut open = vec![Path::default()];
        while let Some(path) = open.pop() {
            for &key in self.after(&path) {
                let node = &self.nodes[&key];
                let common = common(&node.label.tokens, &tokens[path.len..]);
                let len = path.len + common;
                if common == 0 {
                    continue;
                }
                let longer = Path { keys: [&path.keys[..], &[key]].concat(), len };
                if len > best.len && may_end(node, len) {
                    best = longer.clone();
                }
                if len == node.end() {
                    open.push(longer);
                }
            }
        }
        best
    }

    fn after(&self, path: &Path) -> &[SectionKey] {
        path.keys.last().map_or(&self.roots, |key| &self.nodes[key].children)
    }

    /// All sections of a path. `None`, with the missing one given up, if the shelf lost one.
    fn fetch(&mut self, path: &Path) -> Option<Vec<Arc<Section>>> {
        let mut sections = Vec::new();
        for &key in &path.keys {
            match self.shelf.as_mut().and_then(|shelf| shelf.get(key)) {
                Some(section) => sections.push(section),
                None => {
                    self.give_up(key);
                    return None;
                }
            }
        }
        Some(sections)
    }

    fn touch(&mut self, path: &Path) {
        self.uses += 1;
        for key in &path.keys {
            self.nodes.get_mut(key).expect("paths are made of nodes").used = self.uses;
        }
    }

    /// Whether a label goes on from what is there.
    fn continues(&self, label: &Label) -> bool {
        let begins = match label.parent {
            None => label.from == 0,
            Some(parent) => {
                self.nodes.get(&parent).is_some_and(|node| node.end() == label.from as usize)
            }
        };
        begins && !label.tokens.is_empty() && !self.nodes.contains_key(&label.key)
    }

    fn insert(&mut self, label: Label, used: u64) {
        self.stats.bytes += label.bytes;
        let key = label.key;
        match label.parent.and_then(|parent| self.nodes.get_mut(&parent)) {
            Some(parent) => parent.children.push(key),
            None => self.roots.push(key),
        }
        self.nodes.insert(key, Node { label, children: Vec::new(), used });
    }

    /// Makes room.
    fn evict(&mut self) {
        while self.stats.bytes > self.budget.bytes {
            let leaves = self.nodes.iter().filter(|(_, node)| node.children.is_empty());
            let oldest = leaves.min_by_key(|(_, node)| node.used).map(|(key, _)| *key);
            let Some(oldest) = oldest else { return };
            self.stats.evicted += 1;
            self.remove(oldest);
        }
    }

    /// Forgets a section and all that continue it, because it cannot be had.
    fn give_up(&mut self, key: SectionKey) {
        let children = self.nodes[&key].children.clone();
        children.into_iter().for_each(|child| self.give_up(child));
        self.stats.lost += 1;
        self.remove(key);
    }

    fn lose(&mut self, key: SectionKey) {
        self.stats.lost += 1;
        if let Some(shelf) = &mut self.shelf {
            shelf.remove(key);
        }
    }

    fn remove(&mut self, key: SectionKey) {
        let Some(node) = self.nodes.remove(&key) else { return };
        self.stats.bytes -= node.label.bytes;
        let siblings = match node.label.parent.and_then(|parent| self.nodes.get_mut(&parent)) {
            Some(parent) => &mut parent.children,
            None => &mut self.roots,
        };
        siblings.retain(|sibling| *sibling != key);
        if let Some(shelf) = &mut self.shelf {
            shelf.remove(key);
        }
    }
}

/// How many tokens two texts have in common at their beginning.
pub(crate) fn common(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
